"""Evidence: what was there is kept, whatever else fails, hangs or is too large."""

import asyncio
import os
import subprocess
import tarfile

import pytest

from vllm_watch.restart import evidence


async def part(*chunks):
    for chunk in chunks:
        yield chunk


async def broken():
    yield b"half"
    raise OSError("no such device")


async def hanging():
    yield b"half"
    await asyncio.Event().wait()


def read(path):
    """What is in an archive, by name."""
    with tarfile.open(path) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive.getmembers()}


async def test_archive_holds_all_parts_for_the_owner_only(tmp_path):
    """A folder of the attempt's name, in order, readable by nobody else."""
    parts = {"recording.jsonl": part(b"a", b"b"), "verdicts.json": part(b"{}")}
    path = await evidence.write(tmp_path / "deep" / "evidence", "a1", parts)
    assert list(read(path).items()) == [("a1/recording.jsonl", b"ab"), ("a1/verdicts.json", b"{}")]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_part_that_fails_hangs_or_is_too_large_costs_no_other(tmp_path, monkeypatch):
    """What is missing is named with why, and what came after it is there."""
    monkeypatch.setattr(evidence, "PART_SECONDS", 1.0)
    monkeypatch.setattr(evidence, "BYTES_MAX", 10)
    parts = {
        "a": part(b"12345"), "broken": broken(), "hanging": hanging(), "large": part(b"x" * 6),
        "b": part(b"67890"),
    }  # fmt: skip
    kept = read(await evidence.write(tmp_path, "a1", parts))
    assert kept.pop("a1/missing.txt").decode().splitlines() == [
        "broken: OSError: no such device",
        "hanging: TimeoutError: not in time",
        "large: ValueError: larger than the 5 bytes that are left",
    ]
    assert kept == {"a1/a": b"12345", "a1/b": b"67890"}


async def test_many_that_hang_are_waited_for_together(tmp_path, monkeypatch):
    """The restart waits only so long: what came in time is written within it."""
    monkeypatch.setattr(evidence, "PART_SECONDS", 1.0)
    monkeypatch.setattr(evidence, "ALL_SECONDS", 2.5)
    parts = {"first": part(b"1")} | {f"hanging {n}": hanging() for n in range(50)}
    async with asyncio.timeout(30):
        kept = read(await evidence.write(tmp_path, "a1", parts))
    assert kept["a1/first"] == b"1"
    assert len(kept["a1/missing.txt"].splitlines()) == 50


async def test_oldest_go(tmp_path):
    """The last so many stay, whatever else is in the folder."""
    (tmp_path / "note.txt").write_text("a person's")
    for number in range(evidence.BUNDLES_MAX + 3):
        path = await evidence.write(tmp_path, f"a{number:02}", {})
        os.utime(path, (number, number))
    await evidence.write(tmp_path, "last", {})
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == sorted(
        ["note.txt", "last.tar", *(f"a{n:02}.tar" for n in range(4, evidence.BUNDLES_MAX + 3))]
    )


NAMES = {
    "../../etc/cron.d/x": "_.._etc_cron.d_x.tar",
    "...": "unnamed.tar",
    "a\0b\nc": "a_b_c.tar",
    "a" * 300: "a" * 150 + ".tar",
}


@pytest.mark.parametrize(("name", "file"), NAMES.items(), ids=range(len(NAMES)))
async def test_no_name_leads_out_of_the_folder(tmp_path, name, file):
    """An attempt's or a part's name is text, and no path."""
    folder = tmp_path / "evidence"
    path = await evidence.write(folder, name, {name: part(b"x")})
    assert [each.name for each in folder.iterdir()] == [path.name] == [file]
    (inside,) = read(path)
    assert ".." not in inside.split("/")
    assert not inside.startswith("/")
    assert [each.name for each in tmp_path.iterdir()] == ["evidence"]


async def test_link_is_not_followed(tmp_path):
    """Who may write into the folder cannot have another file overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / "a1.tar").symlink_to(victim)
    (folder / "a1.new").symlink_to(victim)
    path = await evidence.write(folder, "a1", {"a": part(b"x")})
    assert victim.read_text() == "untouched"
    assert not path.is_symlink()
    assert read(path) == {"a1/a": b"x"}


async def test_full_disk_keeps_nothing_half(tmp_path):
    """What does not fit is taken away again: the journal may be on the same disk."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.fail(f"this test mounts a small file system, as root: {mounted.stderr.decode()}")
    try:
        with pytest.raises(OSError, match="No space left"):
            await evidence.write(tmp_path, "a1", {"a": part(b"x" * 100_000)})
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
