"""What we write is for us alone, and lands where we said: whatever names targets have and links somebody laid."""

import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from vllm_watch.errors import RecordingError
from vllm_watch.restart import evidence
from vllm_watch.restart.locks import file as file_lock
from vllm_watch.settings.target import slug
from vllm_watch.sources.recording import Writer
from vllm_watch.sources.tape import Chunk, Spool
from vllm_watch.state import file as state_file

HOSTILE = (
    "../../victim/file", "..", "/etc/passwd", "a/../../victim/file", "a\0b", "a\nb", ".hidden", "x" * 5000,
    "-rf", "~root", "$(reboot)", "；", "con\u202egnp",
)  # fmt: skip


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The worst that somebody could start us with."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that is nobody's business."""
    file = tmp_path / "victim" / "file"
    file.parent.mkdir(mode=0o755)
    file.write_text("precious")
    return file


async def part() -> AsyncIterator[bytes]:
    yield b"evidence"


async def spool(folder: Path) -> None:
    """Write a piece of a recording to disk."""
    found = Spool(folder)
    chunk = Chunk(b"recorded")
    found.write(found.new_file(), chunk, 0)
    found._submit(lambda: None).result(10)
    found.free_written()
    found._jobs.put(None)
    found._thread.join(10)


async def bundle(folder: Path) -> None:
    await evidence.write(folder, "a1", {"part": part()})


async def lock(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    held = await file_lock.Lock(folder, "lock", slots=1, ttl_seconds=5).acquire("me", "a1")
    assert held.held, held.text


async def state(folder: Path) -> None:
    held = state_file.lock(folder)
    try:
        state_file.connect(folder).close()
    finally:
        os.close(held)


async def record(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    with Writer(folder / "today.jsonl.gz", bytes_max=1 << 20) as writer:
        writer.write(b"{}\n")


WRITERS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "the flight recorder": spool, "evidence": bundle, "locks": lock, "the state file": state,
    "record": record,
}  # fmt: skip


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
async def test_for_the_owner_only(tmp_path: Path, write: Callable[[Path], Awaitable[None]]) -> None:
    """Folders 0700 and files 0600, whatever the umask is."""
    folder = tmp_path / "state"
    await write(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert files
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in files} == {
        each.name: 0o600 for each in files
    }


LINKS = {
    "the flight recorder": (spool, "1.flight"),
    "evidence, where it is first written": (bundle, "a1.new"),
    "locks": (lock, "lock.lock.new"),
    "a lock's guard": (lock, "lock.lock"),
    "the state file": (state, state_file.NAME),
    "the state file's log": (state, f"{state_file.NAME}-wal"),
    "the state folder's lock": (state, state_file.LOCK_NAME),
    "record": (record, "today.jsonl.gz"),
}


async def refused(written: Awaitable[None]) -> str | None:
    """Why it was not written; None where it was."""
    try:
        await written
    except (OSError, AssertionError, RecordingError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(("write", "name"), LINKS.values(), ids=LINKS)
async def test_no_link_is_written_through(
    tmp_path: Path, victim: Path, write: Callable[[Path], Awaitable[None]], name: str
) -> None:
    """A link to another file, laid where ours will be: that file stays as it is."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o777)
    missing = victim.with_name("missing")
    for target in (victim, missing):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        refusal = await refused(write(folder))
        assert refusal is None or "link" in refusal
        assert victim.read_text() == "precious"
        assert not missing.exists()


@pytest.mark.parametrize("write", [spool, bundle])
async def test_no_folder_of_ours_is_a_link(
    tmp_path: Path, victim: Path, write: Callable[[Path], Awaitable[None]]
) -> None:
    """What is below the state folder is made by us: a link there is somebody else's."""
    folder = tmp_path / "recordings"
    folder.symlink_to(victim.parent)
    before = sorted(victim.parent.iterdir())
    refusal = await refused(write(folder))
    assert refusal is None or "link" in refusal
    assert sorted(victim.parent.iterdir()) == before


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_name_leads_out_of_the_folder(tmp_path: Path, victim: Path, name: str) -> None:
    """Names come from discovery and from who asks; a file's name keeps letters, digits, and three signs."""
    folder = tmp_path / "evidence"
    path = await evidence.write(folder, name, {name: part()})
    assert path.parent == folder
    assert sorted(folder.iterdir()) == [path]
    assert victim.read_text() == "precious"
    assert "/" not in slug(name)
    assert not slug(name).startswith(".")
