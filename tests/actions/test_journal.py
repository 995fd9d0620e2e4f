"""The journal: on the disk when a write returns, and a clear no when it cannot be."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_watch.actions import journal as journal_module
from vllm_watch.actions.journal import Entry, Journal
from vllm_watch.errors import JournalError
from vllm_watch.store import file

ROOT = Path(__file__).parents[2]
NOW = time.time()
ENTRY = Entry(t=NOW, actor="ana", source="127.0.0.1", action="pause", reason="migration")


async def test_wishes_are_kept_in_order(tmp_path: Path) -> None:
    """The last so many, oldest first, whole, and for another journal on the same folder too."""
    journal = Journal(tmp_path)
    for number in range(5):
        await journal.note(replace(ENTRY, t=NOW + number))
    assert [entry.t - NOW for entry in await journal.entries(limit=3)] == [2.0, 3.0, 4.0]
    assert len(await journal.entries(since_t=NOW + 3)) == 2
    await journal.close()
    again = Journal(tmp_path)
    assert (await again.entries())[0] == ENTRY
    await again.close()


async def test_two_users_of_one_file(tmp_path: Path) -> None:
    """The command line reads while the daemon writes."""
    daemon, reader = Journal(tmp_path), Journal(tmp_path)
    for number in range(20):
        await daemon.note(ENTRY)
        assert len(await reader.entries()) == number + 1
    await daemon.close()
    await reader.close()


WRITER = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from tests.actions.test_journal import ENTRY
from vllm_watch.actions.journal import Journal
async def main():
    journal = Journal(Path(sys.argv[1]))
    for number in range(100_000):
        await journal.note(replace(ENTRY, target=f"a{number:06}"))
        print(number, flush=True)
asyncio.run(main())
"""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """What was said to be written is there after SIGKILL, every time, and the file is whole."""
    for round_ in range(3):
        folder = tmp_path / str(round_)
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert process.stdout is not None
        last = -1
        for _ in range(10 + 7 * round_):
            last = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        last = int(rest[-1]) if rest else last

        kept = asyncio.run(_entries(folder))
        assert [entry.target for entry in kept[: last + 1]] == [f"a{n:06}" for n in range(last + 1)]
        assert len(kept) <= last + 2


async def _entries(folder: Path) -> tuple[Entry, ...]:
    journal = Journal(folder)
    try:
        return await journal.entries(limit=100_000)
    finally:
        await journal.close()


async def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Neither a missing folder nor a file in its place: each is said, with what to do."""
    for place in (tmp_path / "missing", tmp_path / "file"):
        (tmp_path / "file").write_text("")
        journal = Journal(place)
        await journal.open()
        assert journal.trouble is not None
        with pytest.raises(JournalError) as raised:
            await journal.note(ENTRY)
        assert raised.value.remedy
        await journal.close()


async def test_trouble_ends_when_a_write_succeeds(tmp_path: Path) -> None:
    """A disk that was away is used again without a restart."""
    folder = tmp_path / "state"
    journal = Journal(folder)
    await journal.open()
    assert journal.trouble is not None
    folder.mkdir()
    await journal.note(ENTRY)
    assert journal.trouble is None
    await journal.close()


async def test_full_disk(tmp_path: Path) -> None:
    """On a file system of 256 KiB the write that does not fit is a no, and what was there stays."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.fail(f"this test mounts a small file system, as root: {mounted.stderr.decode()}")
    try:
        journal = Journal(tmp_path)
        await journal.note(ENTRY)
        with pytest.raises(JournalError) as raised:  # noqa: PT012 - which of them does not fit is its own
            for _ in range(200):
                await journal.note(replace(ENTRY, reason="x" * 4000))
        assert "no room" in raised.value.cause
        assert journal.trouble is not None
        assert (await journal.entries())[0] == ENTRY
        await journal.close()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


async def test_damaged_file_that_was_moved_aside(tmp_path: Path) -> None:
    """The store moves it aside while we have it open; we go on in the new one."""
    journal = Journal(tmp_path)
    await journal.note(ENTRY)
    file.move_aside(tmp_path, time.time())
    assert await journal.entries() == ()
    await journal.note(ENTRY)
    assert await journal.entries() == (ENTRY,)
    await journal.close()


async def test_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """What we do not understand we do not write into."""
    journal = Journal(tmp_path)
    await journal.note(ENTRY)
    await journal._do(lambda db: db.execute("PRAGMA user_version = 99"))
    await journal.close()
    with pytest.raises(JournalError, match="schema 99"):
        await Journal(tmp_path).note(ENTRY)


async def test_old_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither time nor number grows without end."""
    monkeypatch.setattr(journal_module, "KEPT_MAX", 3)
    journal = Journal(tmp_path)
    for number in range(5):
        await journal.note(replace(ENTRY, t=NOW + number))
    await journal.note(replace(ENTRY, t=1.0))
    await journal.close()
    again = Journal(tmp_path)
    assert [entry.t - NOW for entry in await again.entries()] == [2.0, 3.0, 4.0]
    await again.close()
