"""Attempts: one at a time for each target, each with an end, and taken up by the next run of the watcher."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from tests.restart.world import (
    LOCKED,
    MATE,
    REQUEST,
    SETTINGS,
    TARGET,
    Backends,
    Lent,
    Server,
    World,
    command,
    state_before,
)
from vllm_watch.errors import JournalError
from vllm_watch.restart import attempts as attempts_module
from vllm_watch.restart.attempts import Attempts
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.decider import Decider
from vllm_watch.restart.locks.base import Held, Lock
from vllm_watch.restart.locks.file import Lock as FileLock
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

pytestmark = pytest.mark.usefixtures("quick")


def no_lock():
    return None


@dataclass
class Run:
    """One run of the watcher on a server's folder."""

    server: Server
    script: str = "restarts"
    lock: Callable[[], Lock | None] = no_lock
    over: list[Attempt] = field(default_factory=list)

    def __post_init__(self):
        self.journal = Journal(self.server.folder)
        self.world = World(self.server, SETTINGS if self.lock is no_lock else LOCKED)
        self.attempts = self.new_attempts()

    def new_attempts(self):
        backends = Backends(lambda: command(self.server, self.script), self.lock)
        controls, world = Controls(self.journal, "1"), self.world
        decider = Decider(world.targets, self.journal, controls, backends)
        return Attempts(decider, world.evidence, self.over.append)

    async def begin(self, attempt_id="a1", lock=None):
        """Begin without asking the guard, which is asked once more before the call."""
        self.attempts.ledger.resumed = True
        targets = self.world.targets
        befores = {TARGET.name: targets.before(TARGET.name)}
        managed = targets.managed[TARGET.name]
        await self.attempts.begin(REQUEST, managed, attempt_id, lock, befores)

    async def ended(self):
        """Wait for the target's attempt to be over."""
        async with asyncio.timeout(20):
            while self.attempts.ledger.busy.get("chat-0") is not None:
                self.world.change.clear()
                await self.world.change.wait()
        last = self.attempts.ledger.last("chat-0")
        assert last is not None
        return last[0]

    async def on_disk(self):
        """The state of each attempt that the next run would find."""
        return {each.id: each.state for each in await self.journal.attempts()}

    async def close(self):
        await self.attempts.stop()
        await self.journal.close()


@pytest.fixture
async def run(server):
    """A run on a server that hangs."""
    run = Run(server)
    yield run
    await run.close()


async def test_one_at_a_time(run):
    assert run.attempts.ledger.busy.get("chat-0") is None
    await run.begin("a1")
    assert await run.on_disk() == {"a1": "intent"}
    assert run.attempts.ledger.busy.get("chat-0") == "a1"
    with pytest.raises(RuntimeError, match="not ended"):
        await run.begin("a2")
    assert (await run.ended()).state == "helped"
    assert await run.on_disk() == {"a1": "helped"}
    assert run.server.lines("ended") == ["a1"]
    assert run.attempts.outcomes == {("chat-0", "incident", "helped"): 1}
    assert [each.state for each in run.over] == ["helped"]


async def test_intent_that_cannot_be_written_begins_nothing(run):
    """The caller is told, nothing is under way, and should the disk have it after all, it is ended there."""
    folder = run.server.folder
    away = folder.with_name("away")
    folder.rename(away)
    run.server.folder = away
    with pytest.raises(JournalError) as failed:
        await run.begin("a1")
    assert run.attempts.ledger.busy.get("chat-0") is None
    last = run.attempts.ledger.last("chat-0")
    assert last is not None
    assert (last[0].state, last[1]) == ("cancelled", failed.value.cause)
    away.rename(folder)
    run.server.folder = folder
    assert run.server.lines("called") == []
    await run.attempts.retry()
    assert await run.on_disk() == {"a1": "cancelled"}


async def test_what_breaks_has_an_end(run, monkeypatch):
    """An error of our own leaves nothing under way: before the call nothing was done, after it nobody knows."""

    def breaks(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(run.world.targets, "draining", breaks)
    await run.begin("a1")
    assert (await run.ended()).state == "cancelled"
    monkeypatch.undo()
    monkeypatch.setattr(run.world.targets, "acting", breaks)
    await run.begin("a2")
    assert (await run.ended()).state == "uncertain"
    assert await run.on_disk() == {"a1": "cancelled", "a2": "uncertain"}


async def given_back(lock):
    """Wait until another may have it."""
    async with asyncio.timeout(10):
        while not (await lock.acquire("another", "b1")).held:
            await asyncio.sleep(0.01)


def left(state, before, **more):
    """What an earlier run left on the disk."""
    called_t = None if state == "intent" else time.time()
    said: dict[str, Any] = {
        "id": "a1", "target": "chat-0", "group": "chat", "trigger": "incident", "hook": "script",
        "reason": "it hangs", "actor": "vllm-watch", "began_t": time.time(), "called_t": called_t,
        "before": before and before.to_json(),
    }  # fmt: skip
    return Attempt(state=state, **said | more)


def noted_writes(run, monkeypatch):
    """The states that are written from now on."""
    states: list[str] = []
    write = run.journal.write

    async def noted(attempt):
        states.append(attempt.state)
        await write(attempt)

    monkeypatch.setattr(run.journal, "write", noted)
    return states


RESUMED: dict[str, tuple[str, bool, bool, str, list[str]]] = {
    # state it was left in, was the server restarted since, is known what was before; its end, and
    # the states that the next run wrote
    "intent": ("intent", False, False, "cancelled", ["cancelled"]),
    "calling, and it had acted": ("calling", True, True, "helped", ["uncertain", "helped"]),
    "calling, and it had not": (
        "calling", False, True, "did_not_help", ["uncertain", "did_not_help"]),
    "calling, what was before is lost": ("calling", True, False, "uncertain", ["uncertain"]),
    "verifying": ("verifying", True, True, "helped", ["helped"]),
    "verifying, what was before is lost": ("verifying", True, False, "uncertain", ["uncertain"]),
    "uncertain, and the watcher ended again": ("uncertain", True, True, "helped", ["helped"]),
    "uncertain, for good": ("uncertain", True, False, "uncertain", []),
    "ended": ("did_not_help", True, True, "did_not_help", []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "restarted", "known", "end", "written"), RESUMED.values(), ids=RESUMED
)
async def test_resumed(server, state, restarted, known, end, written, monkeypatch):
    """Each state is taken up for what it is; nothing is called again."""
    before = state_before(server.signals(), ("engine_stalled",)) if known else None
    if restarted:
        server.start()
    run = Run(server)
    await run.journal.write(left(state, before))
    states = noted_writes(run, monkeypatch)
    await run.attempts.resume()
    assert (await run.ended()).state == end
    assert await run.on_disk() == {"a1": end}
    counted = {outcome: n for (_, _, outcome), n in run.attempts.outcomes.items()}
    assert counted == ({end: 1} if written else {})
    assert states == written
    assert server.lines("called") == []
    await run.close()


CALLED: dict[str, tuple[float, str]] = {
    # seconds from its call to the watcher's start: what its verification says of a server that is gone
    "an hour ago": (3600.0, "nothing answers 3600 s after the restart"),
    "in the future, by a clock that was set back": (-3600.0, "nothing answers 2 s after the restart"),
}  # fmt: skip


@pytest.mark.parametrize(("ago_s", "words"), CALLED.values(), ids=CALLED)
async def test_resumed_verification_counts_from_the_call(run, ago_s, words):
    """The time that a start may take went on while no watcher ran, and never runs backwards."""
    before = state_before(run.server.signals(), ("engine_stalled",))
    run.server.end_all()
    await run.journal.write(left("verifying", before, called_t=time.time() - ago_s))
    await run.attempts.resume()
    ended = await run.ended()
    assert (ended.state, ended.text.partition(";")[0]) == ("did_not_help", words)


async def test_only_the_last_one_is_verified(run):
    """An older one that never ended is left as uncertain: what came since is not its doing."""
    before = state_before(run.server.signals(), ("engine_stalled",))
    run.server.start()
    await run.journal.write(left("verifying", before, id="old", began_t=time.time() - 60))
    await run.journal.write(left("verifying", before, id="new"))
    await run.attempts.resume()
    await run.ended()
    assert await run.on_disk() == {"old": "uncertain", "new": "helped"}
    assert sorted(outcome for _, _, outcome in run.attempts.outcomes) == ["helped", "uncertain"]


async def test_what_passed_while_nobody_watched_is_not_held_against_it(run):
    """Taken up an hour later, without a look yet: the new process is given the time to be seen."""
    before = state_before(run.server.signals(), ("engine_stalled",))
    await run.journal.write(left("uncertain", before, called_t=time.time() - 3600.0))
    run.server.start()
    run.world.seen = False
    await run.attempts.resume()
    await asyncio.sleep(0.1)
    assert run.attempts.ledger.busy.get("chat-0") == "a1"
    run.world.seen = True
    assert (await run.ended()).state == "helped"


async def test_old_uncertainty_is_left(run):
    """After a day nobody asks any more what it did."""
    before = state_before(run.server.signals(), ("engine_stalled",))
    await run.journal.write(left("uncertain", before, called_t=time.time() - 86_460.0))
    await run.attempts.resume()
    assert run.attempts.ledger.busy.get("chat-0") is None
    last = run.attempts.ledger.last("chat-0")
    assert last is not None
    assert last[0].state == "uncertain"


async def test_target_that_is_never_found_does_not_hold_it_open(run, monkeypatch):
    """A pod that was evicted never comes back under its name; an hour is enough to find any other."""
    clock = SimpleNamespace(now_s=1000.0, monotonic=lambda: clock.now_s, time=time.time)
    monkeypatch.setattr(attempts_module, "time", clock)
    before = state_before(run.server.signals(), ("engine_stalled",))
    await run.journal.write(left("verifying", before))
    run.world.targets.managed.clear()
    await run.attempts.resume()
    clock.now_s += 3599.0
    await run.attempts.retry()
    assert await run.on_disk() == {"a1": "verifying"}
    clock.now_s += 1.0
    await run.attempts.retry()
    (attempt,) = await run.journal.attempts()
    assert (attempt.state, attempt.text) == ("uncertain", "its target is no longer watched")
    assert [outcome for _, _, outcome in run.attempts.outcomes] == ["uncertain"]


async def test_a_gang_is_verified_when_each_of_its_ranks_is_found(server):
    """One of two is not enough; then both are under way."""
    before = state_before(server.signals(), ("engine_stalled",))
    server.start()
    run = Run(server)
    await run.journal.write(left("verifying", before, gang={MATE: before.to_json()}))
    await run.attempts.resume()
    assert run.attempts.ledger.busy.get("chat-0") is None
    shown = run.attempts.ledger.last("chat-0")
    assert shown is not None
    assert shown[0].state == "verifying"
    run.world.watch(replace(TARGET, name=MATE))
    await run.attempts.retry()
    assert (run.attempts.ledger.busy.get("chat-0"), run.attempts.ledger.busy.get(MATE)) == (
        "a1",
        "a1",
    )
    assert (await run.ended()).state == "helped"
    assert (run.attempts.ledger.busy.get(MATE), await run.on_disk()) == (None, {"a1": "helped"})
    await run.close()


async def test_resumed_twice_is_resumed_once(run, monkeypatch):
    """What this run has begun or taken up is its own, and no leftover of another."""
    states = noted_writes(run, monkeypatch)
    await run.begin("a1")
    await run.attempts.resume()
    await run.attempts.resume()
    assert (await run.ended()).state == "helped"
    assert states == ["intent", "calling", "verifying", "helped"]


async def test_what_was_taken_up_is_no_leftover_when_the_journal_is_read_again(run, monkeypatch):
    before = state_before(run.server.signals(), ("engine_stalled",))
    await run.journal.write(left("verifying", before))
    run.server.start()
    states = noted_writes(run, monkeypatch)
    await run.attempts.resume()
    await run.attempts.resume()
    assert (await run.ended()).state == "helped"
    assert states == ["helped"]


async def test_resumed_attempt_holds_its_lock_again(server):
    """A server that may still be loading keeps others from restarting theirs; so does it after our crash."""

    def lock():
        return FileLock(server.folder, "chat", slots=1, ttl_seconds=60)

    before = state_before(server.signals(), ("engine_stalled",))
    dead = lock()
    assert (await dead.acquire("the watcher that crashed", "a1")).held
    run = Run(server, lock=lock)
    await run.journal.write(left("verifying", before))
    await run.attempts.resume()
    assert (await lock().acquire("another", "b1")).held is False
    server.start()
    assert (await run.ended()).state == "helped"
    await given_back(lock())
    await run.close()


async def test_what_the_disk_would_not_take_is_known_and_written_later(run, tmp_path):
    """Meanwhile the guard is shown how it stands; the disk says it is under way."""
    folder, state = run.server.folder, run.server.folder / "state"
    state.mkdir()
    run.journal = Journal(state)
    run.attempts = run.new_attempts()
    run.script = f"mv {state} {folder}/away; cd {folder}; echo x >> ended; kill -9 $(cat server.pid); setsid sleep 600 > /dev/null 2>&1 & cd {folder}; echo $! >> pids; echo $! > server.pid"
    await run.begin("a1")
    ended = await run.ended()
    assert ended.state == "helped"
    (folder / "away").rename(state)
    kept = await run.journal.attempts()
    assert [each.state for each in kept] == ["calling"]
    assert [each.state for each in run.attempts.ledger.newest(kept)] == ["helped"]
    await run.attempts.retry()
    assert await run.on_disk() == {"a1": "helped"}
    assert run.attempts.ledger.newest([replace(ended, id="other")])[0].id == "other"


AHEAD: dict[str, tuple[Attempt, bool]] = {
    # seen at 1000: does it count from then on?
    "a minute ahead": (left("helped", None, began_t=1050.0, called_t=1060.0), False),
    "more": (left("helped", None, began_t=1050.0, called_t=1061.0), True),
    "more, and it was cancelled before its call": (left("cancelled", None, began_t=1061.0, called_t=None), True),
    "under way": (left("verifying", None, began_t=2000.0, called_t=2001.0), False),
}  # fmt: skip


@pytest.mark.parametrize(("attempt", "set_right"), AHEAD.values(), ids=AHEAD)
async def test_what_ended_in_the_future_is_set_right(run, attempt, set_right):
    """By more than two clocks differ; what was never called stays so, and what goes on has no end to set right."""
    (known,) = await run.attempts.ledger.without_future((attempt,), 1000.0)
    if not set_right:
        assert known == attempt
        assert await run.on_disk() == {}
        return
    called_t = None if attempt.called_t is None else 1000.0
    assert (known.began_t, known.ended_t, known.called_t) == (1000.0, 1000.0, called_t)
    assert await run.journal.attempts() == (known,)


async def test_a_lock_is_given_back_after_its_last_renewal(run):
    """Or a late one would take it again."""
    lock, write = Lent(ttl_seconds=0.03), run.journal.write

    async def hangs_from_the_call(attempt):
        await write(attempt)
        lock.renewed = None if attempt.state == "calling" else lock.renewed

    run.journal.write = hangs_from_the_call
    run.world.fresh_ratio = None
    await run.begin("a1", lock)
    assert (await run.ended()).state == "helped"
    await lock.given_back()
    assert lock.done == ["renewed no more", "helped, used"]


STOPPED: dict[str, tuple[str, list[str]]] = {
    # in which state our own end comes: what becomes of the lock
    "intent": ("intent", ["intent, unused"]),
    "verifying": ("verifying", []),
}


@pytest.mark.parametrize(("state", "released"), STOPPED.values(), ids=STOPPED)
async def test_a_watcher_that_ends_after_the_call_keeps_the_lock(server, state, released):
    """Its server may be loading: the next run takes both up."""
    run = Run(server, "never starts")
    run.world.settings = SETTINGS.model_copy(
        update={"drain": SETTINGS.drain.model_copy(update={"deadline_seconds": 60.0})}
        if state == "intent"
        else {}
    )
    lock = Lent()
    await run.begin("a1", lock)
    async with asyncio.timeout(10):
        while (await run.on_disk()) != {"a1": state}:
            await asyncio.sleep(0.01)
    await run.close()
    assert run.attempts.ledger.busy.get("chat-0") is None
    assert lock.done == released


@pytest.mark.parametrize(("held", "told"), [(True, 0), (False, 1), (None, 1)])
async def test_a_resumed_attempt_without_its_lock_is_told(server, held, told):
    """It is verified all the same: the server is as it is."""
    before = state_before(server.signals(), ("engine_stalled",))
    server.start()
    lent = Lent(Held(held=held, text="another's"))
    run = Run(server, lock=lambda: lent)
    await run.journal.write(left("verifying", before))
    with structlog.testing.capture_logs() as logs:
        await run.attempts.resume()
        assert (await run.ended()).state == "helped"
    assert [each["event"] for each in logs].count("lock_not_held") == told
    await run.close()


async def test_calls_of_a_gang_that_were_cut_off_say_who_may_have_been_restarted(run):
    """A person looks at each."""
    await run.journal.write(left("calling", None, gang={MATE: None}))
    await run.attempts.resume()
    (attempt,) = await run.journal.attempts()
    assert f"the hooks of chat-0, {MATE} were called: each may have acted" in attempt.text
