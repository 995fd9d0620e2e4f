"""When a request is asked about again, what it leaves behind, and what is known right before a call: by a clock of the test's own."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.restart.dispatching import PERSON, Story
from tests.restart.world import REQUEST, TARGET, Server
from vllm_watch.errors import JournalError
from vllm_watch.restart import dispatcher as dispatcher_module
from vllm_watch.restart import guard, verify
from vllm_watch.restart import restart as restart_module
from vllm_watch.restart.facts import Answer
from vllm_watch.restart.locks.base import Held, Lock
from vllm_watch.settings.restart_times import ScheduleSettings
from vllm_watch.state.attempt import Attempt

FREE = Answer(name="prometheus", allows=True, text="none fires")
FIRES = Answer(name="prometheus", allows=False, text="NodeDown fires")
OURS = Held(held=True, text="it is ours")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "ASK_SECONDS", 0.02)
    monkeypatch.setattr(restart_module, "DRAIN_POLL_SECONDS", 0.02)
    monkeypatch.setattr(verify, "STOP_SECONDS", 0.3)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The dispatcher's, which is moved on by hand."""
    one = SimpleNamespace(now_s=1000.0, monotonic=lambda: one.now_s, time=time.time)
    monkeypatch.setattr(dispatcher_module, "time", one)
    return one


@dataclass
class Lent:
    """A lock that says what a test wants it to, and notes how it is given back."""

    acquired: Held = OURS
    renewed: Held = OURS
    ours: bool = True
    ttl_seconds: float = 3600.0
    released: list[bool] = field(default_factory=list)  # was it used?

    async def acquire(self, *_: object) -> Held:
        return self.acquired

    async def renew(self, *_: object) -> Held:
        return self.renewed

    def still_ours(self) -> bool:
        return self.ours

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        self.released.append(used)

    def __call__(self) -> Lock:
        return cast("Lock", self)


async def test_what_was_given_up_before_the_call_is_asked_about_in_a_minute(
    server: Server, clock: SimpleNamespace
) -> None:
    """A readiness gate that was closed for nothing must not come and go every few seconds."""
    async with Story(server, answers=[FREE, FIRES, FREE]) as story:
        story.dispatcher.submit(REQUEST)
        outcomes = story.dispatcher.attempts.outcomes
        await story.until(lambda: outcomes[("chat-0", "incident", "cancelled")])
        (pending,) = story.dispatcher.waiting("chat-0")
        assert pending.after_s == 1060.0
        clock.now_s = 1060.0
        story.dispatcher.wake()
        await story.until(lambda: outcomes[("chat-0", "incident", "helped")])


async def test_what_cannot_be_written_down_is_tried_again_in_a_minute(
    server: Server, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock that it had is free meanwhile, and counts for no hour."""
    lock = Lent()
    async with Story(server, lock=lock) as story:

        async def full(_: Attempt) -> None:
            raise JournalError("the disk is full", "make room")

        with monkeypatch.context() as broken:
            broken.setattr(story.journal, "write", full)
            story.dispatcher.submit(REQUEST)
            await story.until(lambda: story.dispatcher.blocked[("chat-0", "journal")])
            await story.until(lambda: lock.released)
        (pending,) = story.dispatcher.waiting("chat-0")
        assert pending.after_s == 1060.0
        assert pending.decision is not None
        assert pending.decision.text == "the journal cannot be written: the disk is full"
        assert lock.released == [False]
        clock.now_s = 1060.0
        story.dispatcher.wake()
        assert (await story.fulfilled()).state == "helped"
        await story.until(lambda: len(lock.released) == 2)
        assert lock.released == [False, True]


@pytest.mark.parametrize(("ours", "after_s"), [(True, 1060.0), (False, 0.0)])
async def test_a_lock_that_was_taken_for_nothing_is_not_taken_again_at_once(
    server: Server, clock: SimpleNamespace, ours: bool, after_s: float
) -> None:
    """What those who share it know is against it; where it was not taken, nothing was disturbed."""
    known = REQUEST.attempt("theirs", "helped", "script", time.time() - 5.0)
    lock = Lent(Held(held=True, text="ours", others=(known,)), ours=ours)
    async with Story(server, lock=lock) as story:
        decision = await story.decided()
        assert decision.check == "cooldown"
        await story.until(lambda: lock.released)
        (pending,) = story.dispatcher.waiting("chat-0")
        assert pending.after_s == after_s
        assert set(lock.released) == {False}


LAST: dict[str, tuple[Held, bool, str]] = {
    "it was not renewed, by its time it is ours": (
        Held(held=None, text="no answer"), True, "the lock was lost: no answer"),
    "it was renewed too late": (OURS, False, "the lock was lost: it is ours"),
    "it is another's": (Held(held=False, text="b has it"), False, "the lock was lost: b has it"),
}  # fmt: skip


@pytest.mark.parametrize(("renewed", "ours", "text"), LAST.values(), ids=LAST)
async def test_a_lock_that_is_not_surely_ours_right_before_the_call_is_no_yes(
    server: Server, renewed: Held, ours: bool, text: str
) -> None:
    """Nothing is put down as called, and nothing is."""
    lock = Lent()
    async with Story(server, lock=lock) as story:
        keep = story.world.evidence.keep

        async def evidence(attempt: Attempt) -> str | None:
            lock.renewed, lock.ours = renewed, ours
            return await keep(attempt)

        story.world.evidence.keep = evidence  # type: ignore[method-assign]
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        (attempt,) = await story.journal.attempts()
        assert (attempt.state, attempt.text, attempt.called_t) == ("cancelled", text, None)
    assert server.lines("called") == []


async def test_a_scrape_that_begins_after_the_drain_is_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that began before it shows nothing of now; for a minute beyond two intervals at most."""
    async with Story(server) as story:
        targets, asked = story.world.targets, list[tuple[str, float]]()
        next_scrape = targets.next_scrape

        async def looked(name: str, timeout_seconds: float) -> bool:
            asked.append((name, timeout_seconds))
            return await next_scrape(name, timeout_seconds)

        with monkeypatch.context() as noted:
            noted.setattr(targets, "next_scrape", looked)
            story.dispatcher.submit(REQUEST)
            assert (await story.fulfilled()).state == "helped"
        assert asked[0] == ("chat-0", pytest.approx(70.0, abs=1.0))


async def test_what_waits_is_asked_about_every_five_seconds(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without anybody that wakes it."""
    monkeypatch.undo()
    slept: asyncio.Queue[float] = asyncio.Queue()

    class Asyncio:
        """The dispatcher's, whose waits are noted and over at once."""

        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        def timeout(self, seconds: float) -> asyncio.Timeout:
            slept.put_nowait(seconds)
            return asyncio.timeout(0.01)

    monkeypatch.setattr(dispatcher_module, "asyncio", Asyncio())
    async with Story(server), asyncio.timeout(20):
        assert [await slept.get() for _ in range(3)] == [5.0, 5.0, 5.0]


async def test_a_thousand_requests_may_wait(server: Server) -> None:
    """The next is left out."""
    story = Story(server)
    for number in range(1001):
        story.dispatcher.submit(replace(REQUEST, incident_id=f"i{number}"))
    assert len(story.dispatcher.waiting("chat-0")) == 1000
    assert story.dispatcher.waiting_for("i999") is not None
    assert story.dispatcher.waiting_for("i1000") is None


async def test_a_request_that_is_withdrawn_while_another_is_asked_about_is_not_asked_about(
    server: Server,
) -> None:
    """Both were due in the same round."""
    other = replace(REQUEST, target="chat-1", group="other", incident_id="i2")
    async with Story(server, refusal="busy") as story:

        async def withdraws() -> None:
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


YES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # what is asked for, and how it goes: which approvals still hold
    "used up by its restart": ({}, {}, ["i1 chat-1", "i2 chat-0"]),
    "not by one that was given up": ({}, {"refuses": True}, ["i1 chat-0", "i1 chat-1", "i2 chat-0"]),
    "not by one for no incident": ({"incident_id": None}, {}, ["i1 chat-0", "i1 chat-1", "i2 chat-0"]),
}  # fmt: skip


@pytest.mark.parametrize(("change", "how", "left"), YES.values(), ids=YES)
async def test_a_yes_serves_for_one_restart(
    server: Server, change: dict[str, Any], how: dict[str, Any], left: list[str]
) -> None:
    """That of another target, or to another incident, is another yes."""
    async with Story(server) as story:
        pairs = [("i1", "chat-0"), ("i1", "chat-1"), ("i2", "chat-0")]
        for incident_id, target in pairs:
            await story.controls.approve(incident_id, target, "ana", 1.0)
        if how:
            story.world.evidence.keep = refusing(story)  # type: ignore[method-assign]
        decision, _ = await story.dispatcher.decide_now(
            replace(PERSON, **{"incident_id": "i1", **change})
        )
        assert decision.verdict == guard.ACT
        await story.over()
        holds = [" ".join(each) for each in pairs if story.controls.approved_by(*each)]
        assert holds == left


def refusing(story: Story) -> Callable[[Attempt], Any]:
    async def evidence(_: Attempt) -> str | None:
        story.refusal = "nothing starts it again"
        return None

    return evidence


async def test_each_attempt_has_a_name_of_its_own(server: Server) -> None:
    """Of 64 bits: what a hook is told, and what the journal knows it by."""
    async with Story(server) as story:
        _, attempt = await story.dispatcher.decide_now(PERSON)
        assert attempt is not None
        await story.over()
    async with Story(server, mode="observe", folder="other") as story:
        story.dispatcher.submit(REQUEST)
        await story.until(lambda: not story.dispatcher.waiting("chat-0"))
        (dry,) = await story.journal.attempts()
        assert (dry.hook, dry.ended_t) == ("script", dry.began_t)
    names = (attempt.id, dry.id)
    assert len(set(names)) == len(names)
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in names)


async def test_a_schedule_waits_though_no_incident_asks(server: Server) -> None:
    """What it waits for is its moment, and no trouble."""
    nightly = replace(REQUEST, trigger="schedule", schedule="nightly", incident_id=None)
    due = ScheduleSettings(name="nightly", cron="0 3 * * *")
    triggers = {"triggers": ("schedule",), "schedules": (due,)}
    async with Story(server, answers=[FIRES], settings=triggers) as story:
        await story.decided(nightly)
        await story.asks(6)
        assert len(story.dispatcher.waiting("chat-0")) == 1


async def test_trouble_that_is_over_takes_back_what_it_asked_for(server: Server) -> None:
    """For every target, with what a person has said to it; what another asks for goes on."""
    async with Story(server, answers=[FIRES]) as story:
        story.world.incident("i2")
        for incident_id in ("i1", "i2"):
            await story.controls.approve(incident_id, "chat-0", "ana", 1.0)
            story.dispatcher.submit(replace(REQUEST, incident_id=incident_id))
        story.dispatcher.trouble_over("i1")
        waiting = [each.request.incident_id for each in story.dispatcher.waiting("chat-0")]
        assert waiting == ["i2"]
        assert story.controls.approved_by("i1", "chat-0") is None
        assert story.controls.approved_by("i2", "chat-0") == "ana"


def test_who_shows_a_target_is_told_that_nothing_waits_for_it_any_more(server: Server) -> None:
    """Where something did."""
    story = Story(server)
    story.dispatcher.submit(REQUEST)
    for shown_anew in (True, False):
        story.world.change.clear()
        story.dispatcher.withdraw(REQUEST)
        assert story.world.change.is_set() is shown_anew


async def test_what_could_not_be_read_at_the_start_is_read_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of attempts and of what operators have set; until then nothing is done."""
    story = Story(server)
    read = story.journal.attempts
    tries = iter([True, True])

    async def attempts(*of: Any) -> tuple[Attempt, ...]:
        if next(tries, False):
            raise JournalError("it cannot be read", "see to it")
        return await read(*of)

    monkeypatch.setattr(story.journal, "attempts", attempts)
    await story.dispatcher.resume()
    assert (story.dispatcher.attempts.resumed, story.controls.known) == (False, True)
    async with story, asyncio.timeout(10):
        while not story.dispatcher.attempts.resumed:
            await asyncio.sleep(0.01)
        story.dispatcher.submit(REQUEST)
        assert (await story.fulfilled()).state == "helped"


async def test_what_the_disk_would_not_take_is_written_in_the_next_round(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether anybody asks for anything or not."""
    async with Story(server) as story:
        write, full = story.journal.write, [True]

        async def written(attempt: Attempt) -> None:
            if full[0] and attempt.state == "helped":
                raise JournalError("the disk is full", "make room")
            await write(attempt)

        monkeypatch.setattr(story.journal, "write", written)
        story.dispatcher.submit(REQUEST)
        assert (await story.fulfilled()).state == "helped"
        assert await story.states() == ["verifying"]
        full[0] = False
        async with asyncio.timeout(10):
            while await story.states() != ["helped"]:
                await asyncio.sleep(0.01)
