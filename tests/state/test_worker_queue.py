"""The state folder's queue: what is written when, what is given up, and what is said of it."""

import asyncio
import gc
import sqlite3
import threading
import time
import weakref
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import structlog

from tests.state.test_worker import PATIENCE, Told, incident, rows
from vllm_watch.errors import StateError
from vllm_watch.state import file
from vllm_watch.state import worker as worker_module
from vllm_watch.state.worker import Worker

NAMES = "SELECT name FROM standing ORDER BY name"
INSERT = "INSERT INTO standing VALUES (?, '{}')"


class Clock:
    """Time that passes where the worker waits for it, at most `step_s` at once."""

    def __init__(self):
        self.now_s = 1000.0
        self.step_s = 1e9
        self.waits = []

    def monotonic(self):
        return self.now_s

    def time(self):
        return time.time()

    def passed(self, seconds):
        self.waits.append(seconds)
        self.now_s += min(seconds, self.step_s)
        return False


@pytest.fixture
def clock(monkeypatch):
    one = Clock()

    class Condition(threading.Condition):
        def wait(self, timeout=None):
            return super().wait() if timeout is None else one.passed(timeout)

    threads = SimpleNamespace(Condition=Condition, Thread=threading.Thread)
    monkeypatch.setattr(worker_module, "threading", threads)
    monkeypatch.setattr(worker_module, "time", one)
    return one


class Table:
    """Notes what it is asked."""

    def __init__(self, clock=None):
        self.begun = 0
        self.pruned = []
        self._clock = clock

    def begin(self, db):
        self.begun += 1

    def prune(self, db, t):
        assert abs(t - time.time()) < 60
        self.pruned.append(self._clock.now_s)


@asynccontextmanager
async def held_up(worker):
    """Its thread is busy with a read until the block ends."""
    begun, go_on = threading.Event(), threading.Event()

    def hold(_):
        begun.set()
        go_on.wait(PATIENCE)

    reading = asyncio.create_task(worker.do(hold, seconds=PATIENCE * 2, writes=False))
    await asyncio.to_thread(begun.wait, PATIENCE)
    try:
        yield
    finally:
        go_on.set()
        await reading


def nothing(_):
    """What may be asked of a disk to see whether it answers."""


def fails(_):
    raise sqlite3.OperationalError("disk I/O error")


async def asked(worker, work=nothing, *, writes=True):
    return await worker.do(work, seconds=PATIENCE, writes=writes)


async def test_rows_are_tried_again_ten_seconds_after_a_failure(tmp_path, clock):
    """No sooner when something else wakes the thread, and until the disk takes them."""
    clock.step_s = 9.5
    tries = []

    def write(_):
        tries.append(clock.now_s)
        if len(tries) < 3:
            fails(_)

    async with Told(tmp_path) as told:
        told.worker.put("row", write)
        await told.until(lambda: told.reasons[-3:] == ["io", "io", None])
    assert tries == [1000.0, 1010.0, 1020.0]
    assert clock.waits == [10.0, 0.5, 10.0, 0.5]


async def test_tables_are_pruned_with_the_first_rows_and_then_once_an_hour(tmp_path, clock):
    """Not at each write, and not while it ends."""
    table = Table(clock)
    async with Told(tmp_path) as told:
        told.worker.tables.append(table)
        for passed_s in (0.0, 3599.0, 1.0, 3599.5):
            clock.now_s += passed_s
            await told.kept(incident())
            await asked(told.worker, writes=False)
    assert table.pruned == [1000.0, 4600.0]


async def test_what_was_learnt_waits_until_nobody_waits_for_an_answer(tmp_path):
    """Rows go before all that writes; lessons after it, by themselves."""
    done = []
    async with Told(tmp_path) as told:
        async with held_up(told.worker):
            told.worker.put("lesson", lambda _: done.append("lesson"), learnt=True)
            told.worker.put("row", lambda _: done.append("row"))
            answers = [
                asyncio.create_task(asked(told.worker, lambda _, name=name: done.append(name)))
                for name in ("first", "second")
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*answers)
        await told.until(lambda: "lesson" in done)
        told.worker.put("lesson", lambda _: done.append("alone"), learnt=True)
        await told.until(lambda: "alone" in done)
    assert done == ["row", "first", "second", "lesson", "alone"]


async def test_only_what_was_learnt_may_be_lost_with_the_power(tmp_path):
    """The disk is made to flush for rows and for answers, not for lessons."""
    flushed = []

    def look(db):
        flushed.extend(db.execute("PRAGMA synchronous").fetchone())

    async with Told(tmp_path) as told:
        for number, put in enumerate(({"learnt": True}, {}, {"learnt": True}), 1):
            told.worker.put("row", look, **put)
            await told.until(lambda number=number: len(flushed) == number)
            await asked(told.worker, writes=False)
        await asked(told.worker, look)
    assert flushed == [1, 2, 1, 2]


async def test_what_is_asked_for_is_written_whole_or_not_at_all(tmp_path):
    """What fails in the midst leaves nothing, and harms nothing that comes after."""

    def half(db):
        db.execute(INSERT, ("half",))
        raise KeyError("a defect")

    async with Told(tmp_path) as told:
        with pytest.raises(KeyError):
            await asked(told.worker, half)
        await asked(told.worker, lambda db: db.execute(INSERT, ("whole",)))
        assert rows(tmp_path, NAMES) == [("whole",)]
    assert rows(tmp_path, NAMES) == [("whole",)]


async def test_what_was_given_up_is_never_begun(tmp_path):
    """Also where its turn had come, and a row before it hangs."""
    begun, go_on, written = threading.Event(), threading.Event(), []

    def hangs(_):
        begun.set()
        go_on.wait(PATIENCE)

    async with Told(tmp_path) as told:
        async with held_up(told.worker):
            told.worker.put("hangs", hangs)
            late = asyncio.create_task(told.worker.do(written.append, seconds=0.2))
            await asyncio.sleep(0)
        with pytest.raises(StateError, match="did not answer"):
            await late
        await asyncio.to_thread(begun.wait, PATIENCE)
        go_on.set()
        await asked(told.worker)
    assert written == []


async def given_up(worker):
    """A reference to work for which nobody waits any more."""

    def work(_):
        """Never begun."""

    with pytest.raises(StateError, match="did not answer"):
        await worker.do(work, seconds=0.01)
    return weakref.ref(work)


async def test_a_disk_that_hangs_for_days_fills_neither_memory_nor_the_log(tmp_path):
    """What was given up is forgotten; the trouble is said once, and its end once."""
    with structlog.testing.capture_logs() as logs:
        async with Told(tmp_path) as told:
            async with held_up(told.worker):
                first, second = await given_up(told.worker), await given_up(told.worker)
                await asyncio.sleep(0.01)
                gc.collect()
                assert (first(), second()) == (None, None)
            await asked(told.worker)
            await asked(told.worker)
    said = [(each["event"], each.get("reason")) for each in logs]
    assert said == [("state_not_kept", "io"), ("state_kept_again", None)]


async def test_closing_claims_no_success(tmp_path):
    """A disk that failed, and was asked nothing since, is not well again because we end."""
    await Worker(tmp_path / "unused").close()
    with structlog.testing.capture_logs() as logs:
        async with Told(tmp_path) as told:
            with pytest.raises(StateError):
                await asked(told.worker, fails)
        await asyncio.sleep(0)
    assert told.reasons == [None, "io"]
    assert [each["event"] for each in logs] == ["state_not_kept"]


async def test_damage_that_is_met_late_moves_the_file_aside(tmp_path):
    """Whoever meets it: the next write goes to a new file."""

    def meets(_):
        raise sqlite3.DatabaseError("database disk image is malformed")

    async with Told(tmp_path) as told:
        with pytest.raises(StateError, match="was damaged"):
            await asked(told.worker, meets)
        await asked(told.worker, lambda db: db.execute(INSERT, ("new",)))
        assert told.reasons == [None, "damaged", None]
    assert len(list(tmp_path.glob(f"{file.NAME}.damaged-*"))) == 1
    assert rows(tmp_path, NAMES) == [("new",)]


async def test_a_file_that_cannot_be_opened_is_one_trouble(tmp_path):
    """It is not damaged, so nothing is moved."""
    (tmp_path / file.NAME).mkdir()
    with structlog.testing.capture_logs() as logs:
        async with Told(tmp_path) as told:
            assert told.reasons == ["not_writable"]
    assert [each["event"] for each in logs] == ["state_not_kept"]
    assert (tmp_path / file.NAME).is_dir()


async def test_what_the_file_has_lost_is_told_when_it_is_opened(tmp_path):
    async with Told(tmp_path) as told:
        await told.kept(incident())
    (tmp_path / file.NAME).write_bytes(b"")
    async with Told(tmp_path) as told:
        await asked(told.worker, writes=False)
        await asked(told.worker, writes=False)
        assert told.reasons == ["damaged", None, None, None]


async def test_a_row_of_ours_that_is_broken_is_no_trouble_that_ends(tmp_path):
    """It is logged each time, and nobody is told that all is well again."""

    def broken(_):
        raise ValueError("no plain value")

    with structlog.testing.capture_logs() as logs:
        async with Told(tmp_path) as told:
            for count in (1, 2):
                told.worker.put("broken", broken)
                await told.until(lambda count=count: told.reasons.count("entry") == count)
                await asked(told.worker)
    assert [each["event"] for each in logs] == ["state_not_kept"] * 2
