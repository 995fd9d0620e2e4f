"""The journal: on the disk when a write returns, and a clear no when it cannot be."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from vllm_watch.errors import JournalError
from vllm_watch.state import file
from vllm_watch.state import journal as journal_module
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import LOST, Attempted, Entry, Journal, approval
from vllm_watch.state.worker import Worker

ROOT = Path(__file__).parents[2]
ATTEMPT = Attempt(
    id="a1", target="chat-0", group="chat", trigger="incident", hook="systemd", reason="it hangs",
    actor="vllm-watch", state="intent", began_t=time.time(),
)  # fmt: skip
ENTRY = Entry(t=1.0, actor="ana", source="127.0.0.1", action="pause", reason="migration")


@pytest.fixture
async def journal():
    """In memory."""
    one = Journal(None)
    yield one
    await one.close()


async def test_attempt_is_kept_with_its_last_state(tmp_path):
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


def test_killed_at_any_moment(tmp_path):
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


async def _attempts(folder):
    journal = Journal(folder)
    try:
        return await journal.attempts()
    finally:
        await journal.close()


async def test_opening_says_whether_the_disk_takes_anything(tmp_path):
    """Before the first thing that has to be written, until a write succeeds; without a restart."""
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "missing", tmp_path / "file"):
        journal = Journal(folder)
        await journal.probe()
        assert str(folder) in (journal.trouble or "")
        with pytest.raises(JournalError) as raised:
            await journal.write(ATTEMPT)
        assert raised.value.remedy
        if folder.name == "missing":
            folder.mkdir()
            await journal.write(ATTEMPT)
            assert journal.trouble is None
        await journal.close()
    passing = Journal(None)
    await passing.probe()
    await passing.note(ENTRY)
    assert (passing.trouble, await passing.entries()) == (None, (ENTRY,))
    await passing.close()


async def test_entry_that_is_not_ours_makes_what_was_spent_unknown(tmp_path):
    """Neither a text that is no JSON nor one of other fields is skipped: it might have been a restart."""
    insert = "INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?, ?, ?)"
    for said in ("no JSON", '{"id": "b1"}'):
        journal = Journal(tmp_path)
        row = ("b1", "chat-0", "chat", "helped", time.time(), said)
        await journal._do(lambda db, row=row: db.execute(insert, row))
        with pytest.raises(JournalError, match="cannot be read"):
            await journal.attempts()
        await journal.close()


CLOSING = """
import asyncio, sys, time
from pathlib import Path
from vllm_watch.state.journal import Entry, Journal

async def main(folder):
    for number in range(100):
        journal = Journal(folder)
        await journal.probe()
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
    done = subprocess.run(command, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0


async def test_an_entry_that_cannot_be_written_is_told(journal):
    """What no column takes is a trouble of the journal, with its cause, until the next write."""
    with pytest.raises(JournalError, match="an entry cannot be written: "):
        await journal.write(replace(ATTEMPT, before={"kinds": object()}))
    assert journal.trouble is not None
    assert journal.trouble.startswith("an entry cannot be written: ")
    await journal.write(ATTEMPT)
    assert journal.trouble is None


async def test_only_a_folder_of_its_own_is_closed_with_it(tmp_path):
    worker = Worker(tmp_path / "shared", lambda *_: None)
    shared, own = Journal(worker), Journal(tmp_path)
    for journal in (shared, own):
        await journal.probe()
        await journal.close()
    await shared.note(ENTRY)
    with pytest.raises(JournalError, match="is closed"):
        await own.note(ENTRY)
    await worker.close()


@pytest.mark.parametrize("incident_id", ["i1", None])
@pytest.mark.parametrize(("state", "used"), [("intent", False), ("calling", True)])
async def test_a_call_uses_up_the_yes_that_it_had(journal, incident_id, state, used):
    """That of its own incident and target, and not before the hook is called."""
    own, others = approval(incident_id or "", "chat-0"), approval("i1", "chat-1")
    for name in (own, others):
        await journal.set(name, {"actor": "ana"})
    await journal.write(replace(ATTEMPT, state=state, incident_id=incident_id))
    assert {own, others} - set(await journal.standing()) == ({own} if used else set())


GANG = {"chat-1": {"kinds": []}}


@pytest.mark.parametrize(("gang", "kept"), [(None, False), (GANG, True)])
async def test_an_attempt_without_a_gang_is_read_by_older_versions(journal, gang, kept):
    """They know no such field; with one it is kept."""
    attempt = replace(ATTEMPT, gang=gang)
    await journal.write(attempt)
    ((said,),) = await journal._do(lambda db: db.execute("SELECT said FROM attempt").fetchall())
    assert ('"gang"' in said) is kept
    assert await journal.attempts() == (attempt,)


async def test_what_was_written_and_pruned_is_no_loss_to_the_next_run(tmp_path):
    """Each change renews the sums that tell whether a row is what was written."""
    for number in range(3):
        worker = Worker(tmp_path, lambda *_: None)
        journal = Journal(worker)
        assert await journal.loss() is None
        assert len(await journal.attempts()) == len(await journal.entries()) == number
        await journal.note(replace(ENTRY, t=journal_module.KEPT_SECONDS))
        await journal.note(ENTRY)
        await journal.write(replace(ATTEMPT, id=f"a{number}"))
        await journal.set("pause", {"number": number})
        await journal._do(partial(journal.prune, t=journal_module.KEPT_SECONDS + 2.0))
        await worker.close()
    assert list(tmp_path.glob("*.damaged-*")) == []


async def test_a_file_of_an_older_version_is_no_loss(tmp_path):
    """It has entries and no sums yet."""
    for older in (True, False):
        worker = Worker(tmp_path, lambda *_: None)
        journal = Journal(worker)
        await journal.note(ENTRY)
        if older:
            await worker.do(lambda db: db.execute("UPDATE seal SET held = NULL, noted = NULL"), seconds=10.0)  # fmt: skip
        await worker.close()
    again = Worker(tmp_path, lambda *_: None)
    assert await Journal(again).loss() is None
    await again.close()


@pytest.mark.parametrize("table", ["attempt", "audit"])
async def test_what_is_older_than_a_year_and_a_month_goes(journal, table):
    """To the second, and however few there are; of more than 20,000 the newest stay."""
    now_t = 500 * 86400.0
    for age_s in (400 * 86400.0 + 1.0, 400 * 86400.0, 1.0):
        await journal.note(replace(ENTRY, t=now_t - age_s))
        await journal.write(replace(ATTEMPT, id=f"a{age_s}", began_t=now_t - age_s))
    await journal._do(lambda db: journal.prune(db, now_t))
    assert [each.t for each in await journal.entries()] == [now_t - 400 * 86400.0, now_t - 1.0]
    assert len(await journal.attempts()) == 2
    columns = "(id, target, group_name, state, began_t, said) SELECT n, '', '', '', n, '{}'"
    if table == "audit":
        columns = "(t, said) SELECT n, '{}'"
    fill = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20001)"
    await journal._do(lambda db: db.execute(f"{fill} INSERT INTO {table} {columns} FROM c"))
    await journal._do(lambda db: journal.prune(db, 20_001.0))
    count = f"SELECT count(*) FROM {table}"
    assert await journal._do(lambda db: db.execute(count).fetchone()) == (20_000,)


async def test_what_is_told_says_whether_there_is_more(journal):
    for t in (1.0, 3.0):
        await journal.note(replace(ENTRY, t=t))
    await journal.write(replace(ATTEMPT, began_t=2.0))
    for most, times, older in ((4, [1, 2, 3], False), (3, [1, 2, 3], False), (2, [2, 3], True)):
        told = await journal.told(0.0, most)
        assert ([each.t for each in told.entries], told.older, told.lost) == (times, older, None)


@pytest.mark.parametrize(
    ("said", "words"),
    [({"why": "it was cut"}, "it was cut"), ({"file": "/old"}, "damaged: /old")],
    ids=["as it is written", "as an older version wrote it"],
)
async def test_a_loss_is_accepted_once(journal, said, words):
    """What was lost is told, and who accepted it is written down; where nothing was lost nothing is."""
    assert await journal.accept_loss("ana", "a new disk") is None
    assert await journal.entries() == ()
    await journal.set(LOST, said)
    assert await journal.loss() == words
    assert await journal.accept_loss("ana", "a new disk") == words
    assert await journal.loss() is None
    (entry,) = await journal.entries()
    assert (entry.actor, entry.action, entry.reason, entry.before) == (
        "ana", "accept_loss", "a new disk", words,
    )  # fmt: skip


async def test_full_disk(tmp_path):
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
        assert "no space" in raised.value.cause
        assert journal.trouble is not None
        assert (await journal.attempts())[0] == ATTEMPT
        assert journal.trouble is not None  # that it can be read does not make room
        await journal.close()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_an_attempt_in_the_words_of_the_journal():
    said = replace(ATTEMPT, state="helped", text="it answers", payoff_ratio=0.5)
    assert Attempted.of(said).after == "helped: it answers; payoff +50%"


async def test_damaged_file_makes_the_history_unknown(tmp_path):
    """The store moves it aside; the new one knows that nobody knows what was spent."""
    journal = Journal(tmp_path)
    await journal.write(ATTEMPT)
    file.move_aside(tmp_path, time.time())
    assert LOST in await journal.standing()
    assert await journal.attempts() == ()
    await journal.close()
