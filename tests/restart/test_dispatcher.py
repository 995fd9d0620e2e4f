"""Requests: each is one however often it is made, waits for its moment, and is void when its reason ends."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.restart.dispatching import PERSON, Story, file_lock
from tests.restart.world import REQUEST, SETTINGS, TARGET, Server
from vllm_watch.restart import decider, guard
from vllm_watch.restart import dispatcher as dispatcher_module
from vllm_watch.restart.facts import Answer
from vllm_watch.state.attempt import Attempt

pytestmark = pytest.mark.usefixtures("quick")

FREE = Answer(name="prometheus", allows=True, text="none fires")
FIRES = Answer(name="prometheus", allows=False, text="NodeDown fires")
OFF = SETTINGS.model_copy(update={"mode": "off"})


async def test_request_is_fulfilled_once_however_often_it_is_asked(server: Server) -> None:
    """The same incident of the same server is one request, also while it is being fulfilled."""
    async with Story(server) as story:
        for _ in range(5):
            story.dispatcher.submit(REQUEST)
        assert len(story.dispatcher.waiting("chat-0")) == 1
        assert story.dispatcher.waiting_for("i1") is not None
        await story.until(lambda: story.dispatcher.attempts.busy("chat-0"))
        story.dispatcher.submit(REQUEST)
        assert (await story.over()).state == "helped"
        assert story.dispatcher.waiting("chat-0") == []
        story.dispatcher.submit(REQUEST)
        await story.until(
            lambda: (
                story.dispatcher.waiting("chat-0")[0].decision is not None
                and story.dispatcher.waiting("chat-0")[0].decision.check == "cooldown"
            )
        )
        assert server.lines("ended") == [(await story.journal.attempts())[0].id]


async def test_fulfilled_request_is_gone_though_one_of_another_target_stands_first(
    server: Server,
) -> None:
    """Asked for again it is a new request; the other target's still waits."""
    async with Story(server) as story:
        other = replace(TARGET, name="chat-1", url="http://127.0.0.1:8", group="other")
        story.world.watch(other, OFF)
        story.dispatcher.submit(replace(REQUEST, target="chat-1", group="other"))
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        await story.over()
        story.dispatcher.submit(REQUEST)
        assert len(story.dispatcher.waiting("chat-0")) == 1
        assert len(story.dispatcher.waiting("chat-1")) == 1


async def test_two_reasons_at_once_are_one_restart(server: Server) -> None:
    """An incident, a schedule and a person ask in the same moment: one is carried out."""
    async with Story(server) as story:
        story.dispatcher.submit(REQUEST)
        story.dispatcher.submit(
            replace(REQUEST, trigger="schedule", schedule="nightly", incident_id=None)
        )
        answers = await asyncio.gather(*(story.dispatcher.decide_now(PERSON) for _ in range(3)))
        await story.over()
        begun = [attempt for _, attempt in answers if attempt is not None]
        assert len(begun) <= 1
        spent = [each for each in await story.journal.attempts() if each.spent]
        assert len(spent) == len(server.lines("ended")) == 1


ENDS = {
    "said so": lambda story: story.dispatcher.trouble_over("i1"),
    "closed": lambda story: story.incident(resolved_t=2.0),
    "forgotten": lambda story: story.world.no_incidents(),
    "the target is gone": lambda story: story.world.targets.managed.clear(),
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
async def test_request_is_void_when_its_reason_ends(server: Server, ends: Any) -> None:
    """Nothing waits any more, and nothing was done."""
    async with Story(server, answers=[FIRES]) as story:
        assert (await story.decided()).check == "blockers"
        ends(story)
        await story.until(lambda: not story.dispatcher.waiting("chat-0"))
        story.answers[:] = [FREE]
        assert await story.states() == []
        assert server.lines("called") == []


async def test_request_waits_and_is_asked_again(server: Server) -> None:
    """What blocks now may not in a moment; the request outlasts it."""
    async with Story(server, answers=[FIRES]) as story:
        decision = await story.decided()
        assert (decision.verdict, decision.check) == (guard.REFUSE, "blockers")
        await story.asks(6)
        story.answers[:] = [FREE]
        assert (await story.fulfilled()).state == "helped"
        assert story.dispatcher.blocked == {("chat-0", "blockers"): 1}


async def test_note_is_written_once_per_change(server: Server) -> None:
    """However often it is asked: who, why, what was so before and what is now."""
    async with Story(server, answers=[FIRES]) as story:
        await story.decided()
        await story.asks(4)
        story.dispatcher.submit(REQUEST)
        await story.asks(4)
        story.answers[:] = [FREE]
        await story.fulfilled()
        notes = await story.noted()
        assert [(each.before, each.after) for each in notes] == [
            ("", "refuse: prometheus: NodeDown fires"), ("refuse", "act: every check passed"),
        ]  # fmt: skip
        assert (notes[0].actor, notes[0].source, notes[0].reason) == (
            "vllm-watch", "incident", "no step for 90 s",
        )  # fmt: skip


async def test_expired_request_is_left_out(server: Server) -> None:
    """Not even a yes that comes too late is followed; it is written down that it came too late."""
    soon = replace(REQUEST, expires_t=time.time() + 0.2)
    late = replace(REQUEST, expires_t=time.time() - 1, incident_id=None, schedule="nightly")
    async with Story(server, answers=[FIRES]) as story:
        await story.decided(soon)
        await story.until(lambda: not story.dispatcher.waiting("chat-0"))
        story.answers[:] = [FREE]
        story.dispatcher.submit(late)
        await story.until(lambda: not story.dispatcher.waiting("chat-0"))
        assert "the request expired at" in (await story.noted())[-1].after
        assert server.lines("called") == []


PERSONS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "acts at once": ({}, guard.ACT, None),
    "in mode approve": ({"mode": "approve"}, guard.ACT, None),
    "in mode observe": ({"mode": "observe"}, guard.ACT, None),
    "is told no": ({"answers": [FIRES]}, guard.REFUSE, "blockers"),
    "is told no where restarts are off": ({"mode": "off"}, guard.REFUSE, "mode"),
    "is told of the hook": ({"refusal": "nothing starts it again"}, guard.REFUSE, "hook"),
}


@pytest.mark.parametrize("locked", [False, True], ids=["no lock", "lock"])
@pytest.mark.parametrize(("change", "verdict", "check"), PERSONS.values(), ids=PERSONS)
async def test_person_is_answered_at_once(
    server: Server, change: dict[str, Any], verdict: str, check: str | None, locked: bool
) -> None:
    """Yes or no, now; a no leaves nothing that waits."""

    lock = file_lock(server)
    async with Story(server, lock=lock if locked else None, **change) as story:
        decision, attempt = await story.dispatcher.decide_now(PERSON)
        assert (decision.verdict, decision.check) == (verdict, check)
        assert story.dispatcher.waiting("chat-0") == []
        assert (attempt is not None) == (verdict == guard.ACT)
        if attempt is not None:
            ended = await story.over()
            assert (ended.state, ended.actor, ended.id) == ("helped", "ana", attempt.id)


async def test_observe_writes_what_it_would_do(server: Server) -> None:
    """A dry run is an attempt on disk that costs nothing; the request is over."""
    async with Story(server, mode="observe") as story:
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: not story.dispatcher.waiting("chat-0"))
        (dry,) = await story.journal.attempts()
        assert (dry.state, dry.spent, dry.text) == (
            "dry_run", False, "it would be restarted now (mode observe)",
        )  # fmt: skip
        assert story.dispatcher.attempts.outcomes == {("chat-0", "incident", "dry_run"): 1}
        assert server.lines("called") == []


async def test_what_costs_is_asked_last_and_in_order(server: Server) -> None:
    """The hook, the blockers, then the lock; and all of them once more before the call."""

    lock = file_lock(server)
    async with Story(server, answers=[FREE], lock=lock) as story:
        story.dispatcher.submit(REQUEST)
        await story.fulfilled()
        await story.until(lambda: story.asked[-1] == "lock given back")
        assert story.asked == [*["hook", "blockers", "lock"] * 2, "lock given back"]


NOT_USED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a check refuses": ({"mode": "off"}, []),
    "the hook refuses": ({"refusal": "no supervisor"}, ["hook"]),
    "the hook is not configured": ({"known": False}, []),
    "a blocker blocks": ({"answers": [FIRES]}, ["hook", "blockers"]),
    "a person must approve": ({"mode": "approve"}, ["hook"]),
}


@pytest.mark.parametrize(("change", "asked"), NOT_USED.values(), ids=NOT_USED)
async def test_lock_is_not_taken_for_nothing(
    server: Server, change: dict[str, Any], asked: list[str]
) -> None:
    """Another watcher may have it all the while."""

    lock = file_lock(server)
    async with Story(server, lock=lock, **change) as story:
        await story.decided()
        assert [each for each in story.asked if each != "lock given back"][: len(asked)] == asked
        assert "lock" not in story.asked
        assert (await lock().acquire("another", "b1")).held


async def test_lock_that_another_has_is_waited_for(server: Server) -> None:
    """It is said who holds it; and what is given back without an act is free at once."""

    lock = file_lock(server)
    other = lock()
    assert (await other.acquire("watcher b", "b1")).held
    async with Story(server, lock=lock) as story:
        decision = await story.decided()
        assert decision.check == "lock"
        assert "watcher b" in decision.text
        await other.release()
        assert (await story.fulfilled()).state == "helped"


async def test_escape_sequences_of_a_refusal_are_shown_as_text(server: Server) -> None:
    """Whoever reads the log in a terminal reads what the hook said."""
    async with Story(server, refusal="\x1b[2Jno") as story:
        assert r"\x1b[2Jno" in (await story.decided()).text


async def raising() -> None:
    raise ZeroDivisionError


async def hanging() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("how", [raising, hanging], ids=["breaks", "hangs"])
async def test_hook_that_does_not_say_is_no_yes(
    server: Server, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question without an answer refuses, and keeps nobody else waiting for long."""
    monkeypatch.setattr(decider, "ASK_HOOK_SECONDS", 0.1)
    async with Story(server, hook_breaks=how) as story:
        assert (await story.decided()).check == "hook"
        assert server.lines("called") == []


async def test_one_request_that_breaks_keeps_no_other_waiting(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of our own about one target is logged; the next target has its turn."""
    async with Story(server) as story:
        known = story.world.targets.startup_seconds

        def startup_seconds(name: str) -> float | None:
            if name == "chat-1":
                raise ZeroDivisionError
            return known(name)

        monkeypatch.setattr(story.world.targets, "startup_seconds", startup_seconds)
        story.world.watch(replace(TARGET, name="chat-1", group="other"))
        story.dispatcher.submit(replace(REQUEST, target="chat-1", group="other"))
        story.dispatcher.submit(REQUEST)
        assert (await story.fulfilled()).state == "helped"


async def test_request_that_is_withdrawn_during_the_drain_cancels(server: Server) -> None:
    """Whoever asked has taken it back: the attempt stops before the call, and nothing waits any more."""
    async with Story(server) as story:
        keep = story.world.evidence.keep

        async def evidence(attempt: Attempt) -> str | None:
            story.dispatcher.trouble_over("i1")
            return await keep(attempt)

        story.world.evidence.keep = evidence  # type: ignore[method-assign]
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        (attempt,) = await story.journal.attempts()
        assert (attempt.state, attempt.text) == ("cancelled", "the request was withdrawn")
        assert story.dispatcher.waiting("chat-0") == []
    assert server.lines("called") == []


async def test_incident_that_ends_during_the_drain_cancels(server: Server) -> None:
    """The engine has come back by itself while its requests could finish: it is left alone for good."""
    async with Story(server) as story:
        story.world.evidence.keep = recovering(story)  # type: ignore[method-assign]
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        assert await story.states() == ["cancelled"]
        await story.until(lambda: not story.dispatcher.waiting("chat-0"))
        assert server.lines("called") == []


def recovering(story: Story) -> Any:
    async def evidence(_: Attempt) -> str | None:
        story.incident(resolved_t=2.0)
        return None

    return evidence


async def test_pause_stops_what_waits_and_what_has_not_called_yet(server: Server) -> None:
    """A person's pause written by another program holds at once."""
    async with Story(server) as story:
        said = {"actor": "ana", "reason": "migration", "until_t": None}
        await story.journal.set("pause", said)
        decision = await story.decided()
        assert (decision.check, decision.text) == ("pause", "paused by ana: migration")
        await story.journal.set("pause", None)
        assert (await story.fulfilled()).state == "helped"


async def test_what_has_changed_is_asked_about_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wakes it does not wait for the next round."""
    async with Story(server) as story:
        rounds: asyncio.Queue[None] = asyncio.Queue()
        retry = story.dispatcher._retry

        async def counted() -> None:
            rounds.put_nowait(None)
            await retry()

        monkeypatch.setattr(story.dispatcher, "_retry", counted)
        monkeypatch.setattr(dispatcher_module, "ASK_SECONDS", 3600.0)
        async with asyncio.timeout(30):
            await rounds.get()  # from here on it sleeps for an hour
            for wake in (story.dispatcher.wake, lambda: story.dispatcher.submit(REQUEST)):
                wake()
                await rounds.get()
