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

from vllm_watch.errors import JournalError
from vllm_watch.state import file
from vllm_watch.state import journal as journal_module
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import LOST, Entry, Journal

ROOT = Path(__file__).parents[2]
ATTEMPT = Attempt(
    id="a1", target="chat-0", group="chat", trigger="incident", hook="systemd", reason="it hangs",
    actor="vllm-watch", state="intent", began_t=time.time(),
)  # fmt: skip
ENTRY = Entry(t=1.0, actor="ana", source="127.0.0.1", action="pause", reason="migration")


async def test_attempt_is_kept_with_its_last_state(tmp_path: Path) -> None:
    """Written twice it is one, and another journal on the same folder reads it whole."""
    journal = Journal(tmp_path)
    await journal.write(ATTEMPT)
    called = replace(ATTEMPT, state="calling", called_t=5.0, before={"kinds": ["engine_stalled"]})
    await journal.write(called)
    await journal.close()

    again = Journal(tmp_path)
    assert await again.attempts("chat") == (called,)
    assert await again.attempts("other") == ()
    assert await again.attempts(since_t=ATTEMPT.began_t + 1) == ()
    await again.close()


async def test_wishes_are_kept_in_order(tmp_path: Path) -> None:
    """The last so many, oldest first."""
    journal = Journal(tmp_path)
    for number in range(5):
        await journal.note(replace(ENTRY, t=float(number)))
    assert [entry.t for entry in await journal.entries(limit=3)] == [2.0, 3.0, 4.0]
    await journal.close()


async def test_what_holds_until_it_is_ended(tmp_path: Path) -> None:
    """A pause outlives the watcher, and ends when it is ended."""
    journal = Journal(tmp_path)
    await journal.set("pause", {"actor": "ana", "reason": "x", "until_t": None})
    await journal.close()
    again = Journal(tmp_path)
    assert (await again.standing())["pause"]["actor"] == "ana"
    await again.set("pause", None)
    assert "pause" not in await again.standing()
    await again.close()


async def test_two_users_of_one_file(tmp_path: Path) -> None:
    """The command line reads while the daemon writes."""
    daemon, reader = Journal(tmp_path), Journal(tmp_path)
    for number in range(20):
        await daemon.write(replace(ATTEMPT, id=f"a{number}"))
        assert len(await reader.attempts()) == number + 1
    await daemon.close()
    await reader.close()


WRITER = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from tests.state.test_journal import ATTEMPT
from vllm_watch.state.journal import Journal
async def main():
    journal = Journal(Path(sys.argv[1]))
    for number in range(100_000):
        await journal.write(replace(ATTEMPT, id=f"a{number:06}"))
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

        kept = asyncio.run(_attempts(folder))
        assert [attempt.id for attempt in kept[: last + 1]] == [f"a{n:06}" for n in range(last + 1)]
        assert len(kept) <= last + 2


async def _attempts(folder: Path) -> tuple[Attempt, ...]:
    journal = Journal(folder)
    try:
        return await journal.attempts()
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
            await journal.write(ATTEMPT)
        assert raised.value.remedy
        await journal.close()


async def test_trouble_ends_when_a_write_succeeds(tmp_path: Path) -> None:
    """A disk that was away is used again without a restart."""
    folder = tmp_path / "state"
    journal = Journal(folder)
    await journal.open()
    assert journal.trouble is not None
    folder.mkdir()
    await journal.write(ATTEMPT)
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
        await journal.write(ATTEMPT)
        with pytest.raises(JournalError) as raised:  # noqa: PT012 - which of them does not fit is its own
            for number in range(200):
                await journal.write(replace(ATTEMPT, id=f"b{number}", reason="x" * 4000))
        assert "no room" in raised.value.cause
        assert journal.trouble is not None
        assert (await journal.attempts())[0] == ATTEMPT
        assert journal.trouble is not None  # that it can be read does not make room
        await journal.close()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


async def test_damaged_file_makes_the_history_unknown(tmp_path: Path) -> None:
    """The store moves it aside; the new one knows that nobody knows what was spent."""
    journal = Journal(tmp_path)
    await journal.write(ATTEMPT)
    assert LOST not in await journal.standing()
    file.move_aside(tmp_path, time.time())

    assert LOST in await journal.standing()
    assert await journal.attempts() == ()
    await journal.close()
    again = Journal(tmp_path)
    assert LOST in await again.standing()
    await again.set(LOST, None)
    await again.close()
    last = Journal(tmp_path)
    assert LOST not in await last.standing()
    await last.close()


async def test_entry_that_is_not_ours_makes_what_was_spent_unknown(tmp_path: Path) -> None:
    """Neither a text that is no JSON nor one of other fields is skipped: it might have been a restart."""
    insert = "INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?, ?, ?)"
    for said in ("no JSON", '{"id": "b1"}'):
        journal = Journal(tmp_path)
        row = ("b1", "chat-0", "chat", "helped", time.time(), said)
        await journal._do(lambda db, row=row: db.execute(insert, row))
        with pytest.raises(JournalError, match="cannot be read"):
            await journal.attempts()
        await journal.close()


async def test_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """What we do not understand we do not write into."""
    journal = Journal(tmp_path)
    await journal.write(ATTEMPT)
    await journal._do(lambda db: db.execute("PRAGMA user_version = 99"))
    await journal.close()
    with pytest.raises(JournalError, match="schema 99"):
        await Journal(tmp_path).write(ATTEMPT)


async def test_old_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither time nor number grows without end."""
    monkeypatch.setattr(journal_module, "KEPT_MAX", 3)
    journal = Journal(tmp_path)
    for number in range(5):
        await journal.write(replace(ATTEMPT, id=f"a{number}", began_t=ATTEMPT.began_t + number))
    await journal.write(replace(ATTEMPT, id="ancient", began_t=1.0))
    await journal._do(lambda db: journal.prune(db, time.time()))
    assert [attempt.id for attempt in await journal.attempts()] == ["a2", "a3", "a4"]
    await journal.close()


CLOSING = """
import asyncio, sys, time
from pathlib import Path
from vllm_watch.state.journal import Entry, Journal

async def main(folder):
    for number in range(100):
        journal = Journal(folder)
        await journal.open()
        entry = Entry(t=time.time(), actor="a", source="b", action="c", reason="x" * 5000)
        work = [asyncio.create_task(each) for _ in range(5) for each in (journal.note(entry), journal.entries())]
        await asyncio.sleep(0.001 * (number % 7))
        await journal.close()
        await asyncio.gather(*work, return_exceptions=True)

asyncio.run(main(Path(sys.argv[1])))
"""


def test_closing_in_the_midst_of_a_write(tmp_path):
    """Closing a connection that another thread uses ends the process: so that thread closes it."""
    command = [sys.executable, "-c", CLOSING, tmp_path]
    done = subprocess.run(command, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0


async def test_an_entry_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """What no column takes is a trouble of the journal, with its cause, until the next write."""
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="an entry cannot be written: "):
        await journal.write(replace(ATTEMPT, before={"kinds": object()}))
    assert journal.trouble is not None
    assert journal.trouble.startswith("an entry cannot be written: ")
    await journal.write(ATTEMPT)
    assert journal.trouble is None
    await journal.close()
