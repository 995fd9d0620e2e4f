"""One attempt: the disk is ahead of what is done, whatever objects stops it before the call, and it ends.

Its drain: what makes progress is waited for, to the deadline; what makes none is not.
"""

import asyncio
import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.restart.world import REQUEST, SETTINGS, Server, World, command
from vllm_watch.restart import restart as restart_module
from vllm_watch.restart import verify
from vllm_watch.restart.hooks.base import REFUSED, HookCall, HookResult
from vllm_watch.restart.restart import PendingWrites, Restart
from vllm_watch.settings.restart import DrainSettings
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

ATTEMPT = Attempt(
    id="a1", target="chat-0", group="chat", trigger="incident", hook="script", reason="it hangs",
    actor="vllm-watch", state="intent", began_t=time.time(), incident_id="i1",
)  # fmt: skip
CALL = HookCall(
    attempt_id="a1", target="chat-0", url="http://127.0.0.1:9", group="chat", trigger="incident",
    reason=REQUEST.reason,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _quicker(quick, monkeypatch):
    monkeypatch.setattr(restart_module, "EVIDENCE_SECONDS", 1.0)
    monkeypatch.setattr(restart_module, "HOOK_GRACE_SECONDS", 1.0)


class Noting(Journal):
    """The journal on disk, whose writes are noted in order with all else."""

    def __init__(self, server, done):
        super().__init__(server.folder / "state")
        self._done = done
        (server.folder / "state").mkdir()

    async def write(self, attempt):
        await super().write(attempt)
        self._done.append(attempt.state)


@dataclass
class Story:
    """An attempt with all around it; what is done is noted in order."""

    server: Server
    script: str = "restarts"
    objections: list[str | None] = field(default_factory=list)  # in turn; none left: no objection
    objecting_breaks: bool = False
    timeout_seconds: float = 20.0
    hook: Any = None
    ours: bool = True
    seen_up: list[HookCall] = field(default_factory=list)

    def __post_init__(self):
        self.world = World(self.server)
        self.done = self.world.told
        self.journal = Noting(self.server, self.done)
        attempt = replace(ATTEMPT, before=self.world.targets.before("chat-0").to_json())
        self.restart = Restart(
            attempt, SETTINGS, self.world.targets, PendingWrites(self.journal), self.world.evidence
        )

    async def run(self):
        try:
            async with asyncio.timeout(20):
                await self.restart.intend()
                return await self.carry_out()
        finally:
            await self.journal.close()

    async def carry_out(self):
        """What follows the intent."""
        hook = Called(self.hook or command(self.server, self.script, self.timeout_seconds), self)
        lock: Any = SimpleNamespace(still_ours=lambda: self.ours)
        return await self.restart.run([(CALL, hook)], lock, self._objection)

    async def _objection(self):
        self.done.append("ask once more")
        if self.objecting_breaks:
            raise ZeroDivisionError
        return self.objections.pop(0) if self.objections else None


class Called:
    def __init__(self, hook, story):
        self._hook, self._story = hook, story
        self.timeout_seconds = hook.timeout_seconds

    async def refusal(self, call):
        return None

    async def rehearse(self, call):
        return []

    async def restart(self, call):
        self._story.done.append("hook")
        self._story.seen_up.append(call)
        result: HookResult = await self._hook.restart(call)
        return result


ORDER = [
    "intent", "evidence", "draining on", "ask once more", "calling", "hook", "draining off", "verifying",
]  # fmt: skip


async def test_order(server):
    """The intent is on disk first of all, evidence is before the act, and the act is written before it is made."""
    story = Story(server)
    attempt = await story.run()
    assert story.done == [*ORDER, "helped"]
    assert attempt.state == "helped"
    assert attempt.payoff_ratio == 1.0
    assert attempt.began_t < (attempt.called_t or 0) <= (attempt.ended_t or 0)
    assert server.lines("ended") == ["a1"]
    (told,) = story.seen_up
    assert (told.evidence_path, told.attempt_id) == (
        f"{server.folder}/evidence/chat-0-a1.tar",
        "a1",
    )


async def test_watcher_that_slept_over_the_call_does_not_make_it(server, monkeypatch):
    """It was suspended while it wrote the call down: the engine may have healed."""
    story = Story(server)
    write = story.journal.write

    async def slept(attempt):
        await write(attempt)
        if attempt.state == "calling":
            story.restart._targets._ticked_s = time.monotonic() - 60.0

    monkeypatch.setattr(story.journal, "write", slept)
    attempt = await story.run()
    assert (attempt.state, story.seen_up) == ("cancelled", [])
    assert attempt.text == "there has been no scrape since vllm-watch was suspended"
    assert not attempt.spent


class Colourful:
    """Does nothing, and says so in escape sequences."""

    timeout_seconds = 20.0

    async def restart(self, call):
        return HookResult(outcome=REFUSED, text="\x1b[2J\x1b[31mno")


OUTCOMES: dict[str, tuple[dict[str, Any], str, str, int, int]] = {
    # what is different; state at last, words, calls, servers ended
    "the new one stalls as well": (
        {"script": "stalls again"}, "did_not_help", "has the fault again: engine_stalled", 1, 1),
    "nothing comes up": ({"script": "never starts"}, "did_not_help", "nothing answers", 1, 1),
    "the hook did nothing and said otherwise": (
        {"script": "does nothing"}, "did_not_help", "the old process still serves", 1, 0),
    "the hook is busy once": ({"script": "busy once"}, "helped", "100%", 2, 1),
    "the hook stays busy": (
        {"script": "always busy"}, "failed", "status 75", restart_module.RETRIES_MAX + 1, 0),
    "the hook fails: it may have acted": (
        {"script": "fails"}, "did_not_help", "the old process still serves", 1, 0),
    "the hook hangs: it may have acted": (
        {"script": "hangs", "timeout_seconds": 2.0}, "did_not_help", "nothing answers", 1, 1),
    "something objects after the drain": (
        {"objections": ["blockers: NodeDown fires"]}, "cancelled", "blockers: NodeDown fires", 0, 0),
    "something objects to a retry": (
        {"script": "busy once", "objections": [None, "trigger: the incident has ended by itself"]},
        "failed", "not called again: trigger: the incident has ended", 1, 0),
    "who is asked cannot say": ({"objecting_breaks": True}, "cancelled", "", 0, 0),
    "the hook says no in escape sequences": ({"hook": Colourful()}, "failed", r"\x1b[2J\x1b[31mno", 0, 0),
    "the lock is lost while the call is written": (
        {"ours": False}, "cancelled", "the lock was lost", 0, 0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "state", "words", "calls", "ended"), OUTCOMES.values(), ids=OUTCOMES
)
async def test_outcome(server, change, state, words, calls, ended):
    """How it ends, in one word and in a sentence; every call is under the one attempt's id."""
    story = Story(server, **change)
    attempt = await story.run()
    assert attempt.state == state, attempt.text
    assert words in attempt.text
    assert {call.attempt_id for call in story.seen_up} <= {"a1"}
    assert (len(server.lines("called")), len(server.lines("ended"))) == (calls, ended)
    assert story.done.count("draining off") == 1
    if state != "failed":
        assert ("hook" in story.done) == (calls > 0)


class Broken:
    """A hook that breaks its contract."""

    def __init__(self, server, how):
        self._server, self._how = server, how
        self.timeout_seconds = 3.0  # in which the command itself surely ends

    async def restart(self, call):
        await command(self._server, "restarts").restart(call)
        if self._how == "raises":
            raise ZeroDivisionError
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("how", ["raises", "never returns"])
async def test_hook_that_breaks_its_contract_may_have_acted(server, how):
    """It is cut off, not called again, and what it did is looked at."""
    attempt = await Story(server, hook=Broken(server, how)).run()
    assert attempt.state == "helped"
    assert len(server.lines("called")) == 1


@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_evidence_never_holds_a_restart_up(server, how, monkeypatch):
    """It is wanted; the restart is needed."""

    async def breaks(_):
        if how == "raises":
            raise OSError("disk full")
        await asyncio.Event().wait()

    story = Story(server)
    monkeypatch.setattr(story.world.evidence, "keep", breaks)
    assert (await story.run()).state == "helped"
    assert story.seen_up[0].evidence_path is None


async def test_server_that_is_not_seen_any_more_does_not_hold_it_open(server, monkeypatch):
    """A target that is gone, or no look for long: time goes on, and a start may take only so long."""
    story = Story(server)

    def acting(name, *, on):
        story.world.seen = False

    monkeypatch.setattr(story.restart._targets, "acting", acting)
    attempt = await story.run()
    assert (attempt.state, "nothing answers" in attempt.text) == ("did_not_help", True)


async def test_what_passed_while_nobody_watched_is_not_held_against_it(server):
    """Taken up an hour later, without a look yet: the new process is given the time to be seen."""
    story = Story(server)
    before = verify.before(server.signals(), ("engine_stalled",))
    await command(server, "restarts").restart(CALL)
    story.restart.attempt = replace(ATTEMPT, state="uncertain")
    story.world.seen = False
    resuming = asyncio.create_task(story.restart.resume({"chat-0": before}, 3600.0))
    await asyncio.sleep(0.1)
    assert not resuming.done()
    story.world.seen = True
    async with asyncio.timeout(10):
        attempt = await resuming
    await story.journal.close()
    assert attempt.state == "helped"
    assert len(server.lines("called")) == 1


SERVING = TargetSignals(
    target="chat-0", t=1.0, up=True, outcome="ok", state="serving", state_text="",
    engines={"0": EngineSignals(engine="0", requests_running=2.0, requests_waiting=1.0)},
)  # fmt: skip


def serving(*counts):
    """A server whose engines have so many requests running and waiting."""
    engines = {
        str(n): EngineSignals(engine=str(n), requests_running=running, requests_waiting=waiting)
        for n, (running, waiting) in enumerate(counts)
    }
    return replace(SERVING, engines=engines)


WORK: dict[str, tuple[TargetSignals, float | None]] = {
    "all engines count": (serving((2, 1), (3, 0)), 6.0),
    "waiting unknown is none": (serving((2, None)), 2.0),
    "running unknown is unknown": (serving((2, 1), (None, 0)), None),
    "no engine is seen": (serving(), None),
    "it does not answer": (replace(SERVING, up=False), None),
}


@pytest.mark.parametrize(("signals", "left"), WORK.values(), ids=WORK)
def test_work(signals, left):
    assert restart_module.requests_in_flight(signals) == left


DRAINS: dict[str, tuple[list[TargetSignals | None], str]] = {
    # looks, one a second; the last one ends it, and how it went
    "nothing in hand": ([serving((0, 0))], "no request was in flight after 0 s"),
    "they finish": ([serving((2, 1)), serving((1, 0)), serving((0, 0))], "no request was in flight after 2 s"),
    "they do not finish": ([serving((5, 0))] * 4, "5 requests were still in flight after 3 s"),
    "it hangs": ([replace(SERVING, state="stalled")], "the engine makes no progress"),
    "it comes to hang meanwhile": (
        [serving((2, 1)), replace(SERVING, state="stalled")], "makes no progress"),
    "it was never seen": ([None], "makes no progress"),
    "nobody knows how many": ([serving((None, None))], "their number is not known"),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "words"), DRAINS.values(), ids=DRAINS)
def test_how_a_drain_goes(looks, words):
    """It ends by itself, and says how."""
    told = [
        restart_module.drain_progress(DrainSettings(deadline_seconds=3), look, s)
        for s, look in enumerate(looks)
    ]
    assert [over for over, _ in told] == [False] * (len(looks) - 1) + [True]
    assert all("waiting at most" in text for _, text in told[:-1])
    assert words in told[-1][1]


def test_switched_off():
    """Nobody is waited for, and it is said which key did that."""
    over, text = restart_module.drain_progress(DrainSettings(enabled=False), serving((5, 5)), 0.0)
    assert over
    assert "restart.drain.enabled" in text
