"""Requests: each is one however often it is made, waits for its moment, and is void when its reason ends.

When it is asked about again, and what is known right before a call: by a clock of the test's own.
"""

import asyncio
import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.restart.dispatching import FIRES, FREE, PERSON, Story, file_lock
from tests.restart.world import OURS, REQUEST, TARGET, Lent, state_before
from tests.state.test_damaged_folders import cases, damaged, folder
from vllm_watch.errors import JournalError
from vllm_watch.restart import decider, guard
from vllm_watch.restart import dispatcher as dispatcher_module
from vllm_watch.restart.locks.file import Lock as FileLock

pytestmark = pytest.mark.usefixtures("quick")


async def test_request_is_fulfilled_once_however_often_it_is_asked(server):
    """The same incident of the same server is one request, also while it is being fulfilled."""
    async with Story(server) as story:
        for _ in range(5):
            story.dispatcher.submit(REQUEST)
        assert len(story.dispatcher.waiting("chat-0")) == 1
        assert story.dispatcher.waiting_for("i1") is not None
        await story.until(lambda: story.dispatcher.attempts.ledger.busy.get("chat-0"))
        story.dispatcher.submit(REQUEST)
        assert (await story.over()).state == "helped"
        assert story.dispatcher.waiting("chat-0") == []
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: story.dispatcher.blocked[("chat-0", "cooldown")])
        assert server.lines("ended") == [(await story.journal.attempts())[0].id]


async def test_two_reasons_at_once_are_one_restart(server):
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
async def test_request_is_void_when_its_reason_ends(server, ends):
    """Nothing waits any more, and nothing was done."""
    async with Story(server, answers=[FIRES]) as story:
        assert (await story.decided()).check == "blockers"
        ends(story)
        await story.until(lambda: not story.dispatcher.waiting("chat-0"))
        story.answers[:] = [FREE]
        assert await story.states() == []
        assert server.lines("called") == []


async def test_note_is_written_once_per_change(server):
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


async def test_expired_request_is_left_out(server):
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
    "is told that there is no hook": ({"known": False}, guard.REFUSE, "hook"),
    "is told of the hook": ({"refusal": "nothing starts it again"}, guard.REFUSE, "hook"),
}


@pytest.mark.parametrize(("change", "verdict", "check"), PERSONS.values(), ids=PERSONS)
async def test_person_is_answered_at_once(server, change, verdict, check):
    """Yes or no, now; a no leaves nothing that waits."""
    async with Story(server, lock=file_lock(server), **change) as story:
        decision, attempt = await story.dispatcher.decide_now(PERSON)
        assert (decision.verdict, decision.check) == (verdict, check)
        assert story.dispatcher.waiting("chat-0") == []
        assert (attempt is not None) == (verdict == guard.ACT)
        if attempt is not None:
            ended = await story.over()
            assert (ended.state, ended.actor, ended.id) == ("helped", "ana", attempt.id)


async def test_observe_writes_what_it_would_do(server):
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


async def test_what_costs_is_asked_last_and_in_order(server):
    """The hook, the blockers, then the lock; and all of them once more before the call."""
    async with Story(server, answers=[FREE], lock=file_lock(server)) as story:
        story.dispatcher.submit(REQUEST)
        await story.fulfilled()
        await story.until(lambda: story.asked[-1] == "lock given back")
        assert story.asked == [*["hook", "blockers", "lock"] * 2, "lock given back"]


async def test_escape_sequences_of_a_refusal_are_shown_as_text(server):
    """Whoever reads the log in a terminal reads what the hook said."""
    async with Story(server, refusal="\x1b[2Jno") as story:
        assert r"\x1b[2Jno" in (await story.decided()).text


async def raising():
    raise ZeroDivisionError


async def hanging():
    await asyncio.Event().wait()


@pytest.mark.parametrize("how", [raising, hanging], ids=["breaks", "hangs"])
async def test_hook_that_does_not_say_is_no_yes(server, how, monkeypatch):
    """A question without an answer refuses, and keeps nobody else waiting for long."""
    monkeypatch.setattr(decider, "ASK_HOOK_SECONDS", 0.1)
    async with Story(server, hook_breaks=how) as story:
        assert (await story.decided()).check == "hook"
        assert server.lines("called") == []


async def test_one_request_that_breaks_keeps_no_other_waiting(server, monkeypatch):
    """An error of our own about one target is logged; the next target has its turn."""
    async with Story(server) as story:
        known = story.world.targets.startup_seconds

        def startup_seconds(name):
            if name == "chat-1":
                raise ZeroDivisionError
            return known(name)

        monkeypatch.setattr(story.world.targets, "startup_seconds", startup_seconds)
        story.world.watch(replace(TARGET, name="chat-1", group="other"))
        story.dispatcher.submit(replace(REQUEST, target="chat-1", group="other"))
        story.dispatcher.submit(REQUEST)
        assert (await story.fulfilled()).state == "helped"


async def test_pause_stops_what_waits_and_what_has_not_called_yet(server):
    """A person's pause written by another program holds at once."""
    async with Story(server) as story:
        said = {"actor": "ana", "reason": "migration", "until_t": None}
        await story.journal.set("pause", said)
        decision = await story.decided()
        assert (decision.check, decision.text) == ("pause", "paused by ana: migration")
        await story.journal.set("pause", None)
        assert (await story.fulfilled()).state == "helped"


@pytest.fixture
def clock(quick, monkeypatch):
    """The dispatcher's, which is moved on by hand."""
    one = SimpleNamespace(now_s=1000.0, monotonic=lambda: one.now_s, time=time.time)
    monkeypatch.setattr(dispatcher_module, "time", one)
    monkeypatch.setattr(dispatcher_module, "AGAIN_SECONDS", 60.0)  # as in life
    return one


async def test_what_was_given_up_before_the_call_is_asked_about_in_a_minute(server, clock):
    """A readiness gate that was closed for nothing must not come and go every few seconds. An approval is not used up."""
    async with Story(server, answers=[FREE, FIRES, FREE]) as story:
        approval = (REQUEST.incident_id, "chat-0")
        await story.controls.approve(*approval, "ana", 1.0)
        story.dispatcher.submit(REQUEST)
        outcomes = story.dispatcher.attempts.outcomes
        await story.until(lambda: outcomes[("chat-0", "incident", "cancelled")])
        (pending,) = story.dispatcher.waiting("chat-0")
        assert pending.after_s == 1060.0
        assert story.controls.approved_by(*approval) == "ana"
        clock.now_s = 1060.0
        story.dispatcher.wake()
        await story.until(lambda: outcomes[("chat-0", "incident", "helped")])
        assert story.controls.approved_by(*approval) is None


async def test_what_cannot_be_written_down_is_tried_again_in_a_minute(server, clock, monkeypatch):
    """The lock that it had is free meanwhile, and counts for no hour."""
    lock = Lent()
    async with Story(server, lock=lambda: lock) as story:

        async def full(_):
            raise JournalError("the disk is full", "make room")

        with monkeypatch.context() as broken:
            broken.setattr(story.journal, "write", full)
            story.dispatcher.submit(REQUEST)
            await story.until(lambda: story.dispatcher.blocked[("chat-0", "journal")])
            await lock.given_back()
        (pending,) = story.dispatcher.waiting("chat-0")
        assert pending.after_s == 1060.0
        assert pending.decision is not None
        assert pending.decision.text == "the journal cannot be written: the disk is full"
        assert lock.done == ["given back, unused"]
        clock.now_s = 1060.0
        story.dispatcher.wake()
        assert (await story.fulfilled()).state == "helped"
        await lock.given_back(2)
        assert lock.done == ["given back, unused", "helped, used"]


async def test_what_the_past_in_the_lock_forbids_is_asked_about_in_a_minute(server, clock):
    """Else the lock would be taken and given back every few seconds."""
    tried = REQUEST.attempt("a0", "did_not_help", "script", time.time())
    lock = Lent(acquired=replace(OURS, others=(tried,)))
    async with Story(server, lock=lambda: lock) as story:
        assert (await story.decided()).check == "cooldown"
        await lock.given_back()
        (pending,) = story.dispatcher.waiting("chat-0")
        assert pending.after_s == 1060.0


async def test_a_thousand_requests_may_wait(server):
    """The next is left out."""
    story = Story(server)
    for number in range(1001):
        story.dispatcher.submit(replace(REQUEST, incident_id=f"i{number}"))
    assert len(story.dispatcher.waiting("chat-0")) == 1000
    assert story.dispatcher.waiting_for("i999") is not None
    assert story.dispatcher.waiting_for("i1000") is None


async def test_a_yes_serves_for_one_restart(server):
    """That of another target, or to another incident, is another yes."""
    async with Story(server) as story:
        pairs = [("i1", "chat-0"), ("i1", "chat-1"), ("i2", "chat-0")]
        for incident_id, target in pairs:
            await story.controls.approve(incident_id, target, "ana", 1.0)
        await story.dispatcher.decide_now(replace(PERSON, incident_id="i1"))
        await story.over()
        assert [each for each in pairs if story.controls.approved_by(*each)] == pairs[1:]


async def test_a_request_that_is_withdrawn_while_another_is_asked_about_is_not_asked_about(server):
    """Both were due in the same round."""
    other = replace(REQUEST, target="chat-1", group="other", incident_id="i2")
    async with Story(server, refusal="busy") as story:

        async def withdraws():
            story.dispatcher.withdraw(other)

        story.hook_breaks = withdraws
        story.world.watch(replace(TARGET, name="chat-1", group="other"))
        story.world.incident("i2", target="chat-1")
        story.dispatcher.submit(REQUEST)
        story.dispatcher.submit(other)
        await story.until(lambda: story.dispatcher.blocked[("chat-0", "hook")])
        await story.asks(2)
        assert story.dispatcher.blocked == {("chat-0", "hook"): 1}
        assert story.dispatcher.waiting("chat-1") == []


async def test_what_could_not_be_read_at_the_start_is_read_later(server, monkeypatch):
    """Of attempts and of what operators have set; until then nothing is done."""
    story = Story(server)

    async def attempts(*_):
        raise JournalError("it cannot be read", "see to it")

    with monkeypatch.context() as broken:
        broken.setattr(story.journal, "attempts", attempts)
        await story.dispatcher.resume()
    assert (story.dispatcher.attempts.ledger.resumed, story.controls.known) == (False, True)
    async with story:
        story.dispatcher.submit(REQUEST)
        assert (await story.fulfilled()).state == "helped"


async def test_attempt_of_an_earlier_run_is_verified_once_its_target_is_found(server):
    """Discovery may take minutes after the start."""
    story = Story(server)
    befores = {"chat-0": state_before(server.signals(), ("engine_stalled",))}
    await story.journal.write(REQUEST.attempt("a1", "uncertain", "script", time.time(), "", befores))  # fmt: skip
    server.start()
    story.world.targets.managed.clear()
    async with story:
        assert story.dispatcher.attempts.ledger.busy.get("chat-0") is None
        story.world.watch(TARGET)
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        assert await story.states() == ["helped"]


EAGER = {"cooldown_seconds": 0.0, "budget_per_hour": 100, "budget_per_day": 100}
"""Nothing but the breaker holds a restart back."""


SATURATED: dict[str, dict[str, Any] | None] = {
    "no incident": None,
    "an overload, which no restart cures": {"restart_advised": False},
    "a stall that is over": {"resolved_t": 2.0},
}


@pytest.mark.parametrize("incident", SATURATED.values(), ids=SATURATED)
async def test_healthy_saturated_engine_is_never_touched(server, incident):
    """With 500 requests in hand and everything allowed, requests for it come to nothing."""
    server.start()
    (server.folder / "requests").write_text("x\n" * 500)
    pid = server.pid
    async with Story(server, settings=EAGER) as story:
        story.world.no_incidents()
        if incident is not None:
            story.incident(**incident)
        for _ in range(20):
            story.dispatcher.submit(REQUEST)
            decision, attempt = await story.dispatcher.decide_now(REQUEST)
            assert (decision.verdict, decision.check, attempt) == (guard.REFUSE, "trigger", None)
        assert await story.states() == []
        assert (server.pid, server.signals().state) == (pid, "serving")
    assert server.lines("called") == []


__all__ = ["folder"]  # the fixture

EVERY = int(os.environ.get("VLLM_WATCH_TEST_EVERY", "10"))  # 1: all 200 folders


async def test_no_damage_makes_a_second_call(folder, server):
    """Sixteen attempts did not help, of an incident that is still open: the next watcher makes none."""
    stood_against = {}
    for number, case in enumerate(cases()[::EVERY]):
        damaged(folder, server.folder / str(number), *case)
        async with Story(server, folder=str(number)) as story:
            decision = await story.decided()
            assert decision.check is not None, case
            stood_against[decision.check] = stood_against.get(decision.check, 0) + 1
    assert server.lines("called") == []
    assert {"journal", "cooldown"} <= stood_against.keys(), stood_against  # lost and known


async def test_start_that_cannot_fit_is_never_retried(server):
    """Once it is known why no start can succeed nobody restarts it, neither by itself nor by hand."""
    async with Story(server, script="never starts", settings=EAGER) as story:
        story.dispatcher.submit(REQUEST)
        assert (await story.fulfilled()).state == "did_not_help"
        summary = "max_model_len needs 90 GiB of KV cache, 40 are free"
        story.world.incident("loop", kind="engine_down", cause="crash_loop", summary=summary, restart_advised=False)  # fmt: skip
        await story.resumed()
        for request in (REQUEST, PERSON):
            decision, attempt = await story.dispatcher.decide_now(request)
            assert (decision.check, attempt) == ("start_failure", None)
            assert "needs 90 GiB" in decision.text
        assert len(server.lines("called")) == 1


async def test_two_watchers_of_one_target_restart_it_once(server):
    """Each has a journal of its own and sees the same; only the holder of the lock acts."""

    lock = file_lock(server)
    async with (
        Story(server, lock=lock, holder="a", folder="a") as a,
        Story(server, lock=lock, holder="b", folder="b") as b,
    ):
        for story in (a, b):
            story.dispatcher.submit(REQUEST)
        both = (a, b)
        async with asyncio.timeout(20):
            while not any(each.dispatcher.attempts.outcomes for each in both):
                await asyncio.sleep(0.01)
        first, second = both if a.dispatcher.attempts.outcomes else (b, a)
        assert second.dispatcher.blocked[("chat-0", "lock")] == 1
        second.incident(resolved_t=2.0)  # it sees what the other has brought about
        await second.until(lambda: not second.dispatcher.waiting("chat-0"))
        assert await first.states() == ["helped"]
        async with asyncio.timeout(20):  # it may have begun one in between, which it then gives up
            while any(state != "cancelled" for state in await second.states()):
                await asyncio.sleep(0.01)
    assert len(server.lines("ended")) == len(server.lines("called")) == 1


async def test_lock_lost_while_the_machine_slept_stops_before_the_call(server):
    """Nobody renewed it, another watcher has it: what was intended is given up."""

    def lock():
        return FileLock(server.folder, "chat", slots=1, ttl_seconds=0.3)

    async def asleep(_):
        story.world.evidence.keep = keep
        time.sleep(1.2)  # three TTLs and more: from then on others may have it
        await FileLock(server.folder, "chat", slots=1, ttl_seconds=60).acquire("another", "b1")

    async with Story(server, lock=lock) as story:
        keep = story.world.evidence.keep
        story.world.evidence.keep = asleep
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        (attempt,) = await story.journal.attempts()
        assert attempt.state == "cancelled"
        assert "the lock was lost" in attempt.text
        await story.until(lambda: story.dispatcher.blocked[("chat-0", "lock")])
    assert server.lines("called") == []
