"""One attempt: the disk is ahead of what is done, whatever objects stops it before the call, and it ends.

Its drain: what makes progress is waited for, to the deadline; what makes none is not.
"""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.restart.dispatching import FIRES, FREE, Asked, Story
from tests.restart.world import OURS, REQUEST, TARGET, Lent
from vllm_watch.restart import restart as restart_module
from vllm_watch.restart.hooks.base import REFUSED, HookResult
from vllm_watch.restart.locks.base import Held
from vllm_watch.settings.restart import DrainSettings
from vllm_watch.signals.records import EngineSignals, TargetSignals


@pytest.fixture(autouse=True)
def _quicker(quick, monkeypatch):
    monkeypatch.setattr(restart_module, "EVIDENCE_SECONDS", 1.0)
    monkeypatch.setattr(restart_module, "HOOK_GRACE_SECONDS", 1.0)


async def attempted(story):
    """Have it asked for; return the attempt as it ended."""
    async with story:
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        (attempt, *_) = await story.journal.attempts()
        return attempt


ORDER = [
    "asked", "intent", "restarting on", "evidence", "draining on", "asked", "calling", "hook", "draining off", "verifying",
    "helped", "restarting off",
]  # fmt: skip


async def test_order(server):
    """The intent is on disk first of all, evidence is before the act, and the act is written before it is made."""
    story = Story(server)
    attempt = await attempted(story)
    assert story.world.told == ORDER
    assert (attempt.state, attempt.payoff_ratio) == ("helped", 1.0)
    assert attempt.began_t < attempt.called_t <= attempt.ended_t
    assert server.lines("ended") == [attempt.id]
    (told,) = story.calls
    evidence = f"{server.folder}/evidence/chat-0-{attempt.id}.tar"
    assert (told.evidence_path, told.attempt_id) == (evidence, attempt.id)


def lost(renewed=OURS, *, ours=True):
    def happens(story):
        story.lent.renewed, story.lent.ours = renewed, ours

    return happens


NOT_CALLED: dict[str, tuple[str, Any, str]] = {
    # once what is written something happens, and the call is not made
    # The request is withdrawn, or the trigger objects, whichever is first.
    "its engine has come back": ("intent", lambda story: story.incident(resolved_t=2.0), ""),
    "what is asked last breaks": (
        "intent", lambda story: setattr(story.world.targets, "startup_seconds", None), "the last check failed: TypeError"),
    "its URL is another": (
        "intent", lambda story: story.world.watch(replace(TARGET, url="http://127.0.0.1:7"), story.world.settings),
        "chat-0 is now a different target: http://127.0.0.1:7, not http://127.0.0.1:9"),
    "it is gone": ("intent", lambda story: story.world.targets.managed.clear(), "chat-0 is no longer watched"),
    "the lock was not renewed, by its time it is ours": (
        "intent", lost(Held(held=None, text="no answer")), "the lock was lost: no answer"),
    "the lock was renewed too late": ("intent", lost(ours=False), "the lock was lost: it is ours"),
    "the lock is another's": (
        "intent", lost(Held(held=False, text="b has it"), ours=False), "the lock was lost: b has it"),
    "the watcher is suspended": (
        "calling", lambda story: setattr(story.world.targets, "_ticked_s", time.monotonic() - 60.0),
        "there has been no scrape since vllm-watch was suspended"),
    "the lock is lost": ("calling", lost(ours=False), "the lock was lost while"),
}  # fmt: skip


@pytest.mark.parametrize(("when", "happens", "text"), NOT_CALLED.values(), ids=NOT_CALLED)
async def test_what_happens_before_the_call_is_seen(server, when, happens, text):
    """The engine may have healed, another watcher may restart it, or it is not what was decided about."""
    lock = Lent()
    story = Story(server, lock=lambda: lock)
    story.lent, write = lock, story.journal.write

    async def slowly(attempt):
        await write(attempt)
        if attempt.state == when:
            happens(story)

    story.journal.write = slowly
    attempt = await attempted(story)
    assert (attempt.state, attempt.spent) == ("cancelled", False)
    assert text in attempt.text
    assert (attempt.called_t is None) is (when == "intent")
    assert (story.calls, server.lines("called")) == ([], [])


class Broken(Asked):
    """A hook that breaks its contract."""

    def __init__(self, story):
        super().__init__(story)
        self.timeout_seconds = 3.0  # in which the command itself surely ends

    async def restart(self, call):
        await super().restart(call)
        raise ZeroDivisionError


class Hanging(Broken):
    async def restart(self, call):
        with pytest.raises(ZeroDivisionError):
            await super().restart(call)
        await asyncio.Event().wait()


class Colourful(Asked):
    async def restart(self, call):
        return HookResult(outcome=REFUSED, text="\x1b[2J\x1b[31mno")


OUTCOMES: dict[str, tuple[dict[str, Any], str, str, int, int]] = {
    # what is different; state at last, words, calls, servers ended
    "the hook says no in escape sequences": ({"hook": Colourful}, "failed", r"\x1b[2J\x1b[31mno", 0, 0),
    "the hook stays busy": (
        {"script": "always busy"}, "failed", "status 75", restart_module.RETRIES_MAX + 1, 0),
    "the new one stalls as well": (
        {"script": "stalls again"}, "did_not_help", "has the fault again: engine_stalled", 1, 1),
    "nothing comes up": ({"script": "never starts"}, "did_not_help", "nothing answers", 1, 1),
    "the hook did nothing and said otherwise": (
        {"script": "does nothing"}, "did_not_help", "the old process still serves", 1, 0),
    "the hook is busy once": ({"script": "busy once"}, "helped", "100%", 2, 1),
    "the hook fails: it may have acted": (
        {"script": "fails"}, "did_not_help", "the old process still serves", 1, 0),
    "the hook hangs: it may have acted": (
        {"script": "hangs", "timeout_seconds": 2.0}, "did_not_help", "nothing answers", 1, 1),
    "the hook restarts it, and breaks": ({"hook": Broken}, "helped", "100%", 1, 1),
    "the hook restarts it, and never returns": ({"hook": Hanging}, "helped", "100%", 1, 1),
    "something objects to a retry": (
        {"script": "busy once", "answers": [FREE, FREE, FIRES]}, "failed", "not called again: blockers: ", 1, 0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "state", "words", "calls", "ended"), OUTCOMES.values(), ids=OUTCOMES
)
async def test_outcome(server, change, state, words, calls, ended):
    """How it ends, in one word and in a sentence; every call is under the one attempt's id."""
    story = Story(server, **change)
    attempt = await attempted(story)
    assert (attempt.state, words in attempt.text) == (state, True), attempt.text
    assert {call.attempt_id for call in story.calls} <= {attempt.id}
    assert (len(server.lines("called")), len(server.lines("ended"))) == (calls, ended)
    assert story.world.told.count("draining off") == 1


@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_evidence_never_holds_a_restart_up(server, how):
    """It is wanted; the restart is needed."""

    async def breaks(_):
        if how == "raises":
            raise OSError("disk full")
        await asyncio.Event().wait()

    story = Story(server)
    story.world.evidence.keep = breaks
    assert (await attempted(story)).state == "helped"
    assert story.calls[0].evidence_path is None


async def test_server_that_is_not_seen_any_more_does_not_hold_it_open(server):
    """A target that is gone, or no look for long: time goes on, and a start may take only so long."""
    story = Story(server)

    def acting(name, *, on):
        story.world.seen = False

    story.world.targets.acting = acting
    attempt = await attempted(story)
    assert (attempt.state, "nothing answers" in attempt.text) == ("did_not_help", True)


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
