"""When canaries are sent: rarely, one at a time, and sooner where something is suspected."""

import asyncio
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from vllm_watch.errors import WatchError
from vllm_watch.samples.observation import Call, CanaryCall
from vllm_watch.settings.stages import CanarySettings
from vllm_watch.sources.canary import Asked
from vllm_watch.watch.canary_rounds import (
    GAP_SECONDS_MIN,
    REFUSED_SECONDS,
    UNTRUSTED_SECONDS,
    CanaryRounds,
)

IDLE, SUSPECTED = {"0": False}, {"0": True}


def ended(outcome="ok", problem=None):
    canary = CanaryCall(ok=outcome == "ok", latency_s=0.1, outcome=outcome)
    return Asked(canary, Call(outcome="ok"), problem)


class Source:
    """Answers what it is told to, at once or when it may."""

    def __init__(self, *ends, held=False):
        self.ends = list(ends)
        self.asked = []
        self.may = asyncio.Event()
        if not held:
            self.may.set()

    async def ask(self, model, engine):
        self.asked.append((model, engine))
        await self.may.wait()
        end = self.ends.pop(0) if self.ends else ended()
        if isinstance(end, Exception):
            raise end
        return end


async def run(source, wanted, seconds, *, step=5, engines=1, interval=60.0):
    """Looks every `step` seconds; returns the seconds at which a canary was sent."""
    rounds = CanaryRounds("t", CanarySettings(enabled=True, interval_seconds=interval), source)
    sent = []
    for second in range(0, seconds, step):
        before = len(source.asked)
        rounds.take()
        rounds.send(wanted(second) if callable(wanted) else wanted, "m", engines, float(second))
        for _ in range(5):
            await asyncio.sleep(0)
        sent += [second] * (len(source.asked) - before)
    await rounds.stop()
    return sent


async def test_an_idle_engine_is_asked_once_an_interval():
    """The first within one interval, then about one a minute."""
    sent = await run(Source(), IDLE, 3600)
    assert sent[0] <= 65
    assert 48 <= len(sent) <= 62
    assert min(b - a for a, b in pairwise(sent)) >= 50


async def test_a_suspected_engine_is_asked_at_once_but_not_more_often_than_the_hard_limit():
    """However long it is suspected."""
    sent = await run(Source(), SUSPECTED, 600, step=1)
    assert sent[0] == 0
    assert min(b - a for a, b in pairwise(sent)) == GAP_SECONDS_MIN


async def test_there_is_never_a_second_one_under_way():
    """While one waits for its answer, none is sent, suspected or not."""
    assert await run(Source(held=True), SUSPECTED, 600) == [0]


async def test_what_was_refused_is_not_tried_again_soon_and_said_once():
    """A person must mend it; another trouble is said again, and the same one after it had gone."""
    problem = WatchError("HTTP 401", "name a key file")
    other = WatchError("HTTP 404", "set canary.model")
    refused, again = ended("refused", problem), ended("refused", other)
    source = Source(refused, refused, again, ended(), refused)
    with capture_logs() as logs:
        sent = await run(source, SUSPECTED, 2000)
    assert sent[1] - sent[0] == REFUSED_SECONDS
    said = [line["cause"] for line in logs if line["event"] == "canary_refused"]
    assert said == ["HTTP 401", "HTTP 404", "HTTP 401"]


async def test_of_several_engines_each_has_its_turn():
    """The suspected one first; the others share the limit."""
    source = Source()
    await run(source, {"0": False, "1": True, "2": False}, 12, engines=3)
    assert source.asked[0] == ("m", "1")
    source = Source()
    await run(source, {"0": False, "1": False, "2": False}, 600, engines=3)
    assert {engine for _, engine in source.asked} == {"0", "1", "2"}


async def test_a_bug_in_it_holds_nothing_up():
    """It is logged, and the next try is later."""
    with capture_logs() as logs:
        sent = await run(Source(RuntimeError("x")), SUSPECTED, 900)
    assert sent[1] - sent[0] == REFUSED_SECONDS
    assert [line["event"] for line in logs] == ["canary_failed"]


@pytest.mark.parametrize("held", [True, False])
async def test_it_ends_with_its_target(held):
    """Nothing is left behind."""
    rounds = CanaryRounds("t", CanarySettings(enabled=True), Source(held=held))
    rounds.send(SUSPECTED, "m", 1, 0.0)
    await asyncio.sleep(0)
    await rounds.stop()
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "canary t"]


async def by_itself(source, wanted, seconds):
    """As run(), where nobody has switched canaries on; returns what was brought to be judged, too."""
    rounds, sent, brought = CanaryRounds("t", CanarySettings(), source), [], []
    for second in range(0, seconds, 5):
        before = len(source.asked)
        asked = rounds.take()
        brought += [asked.canary.outcome] if asked is not None else []
        rounds.send(wanted, "m", 1, float(second))
        for _ in range(5):
            await asyncio.sleep(0)
        sent += [second] * (len(source.asked) - before)
    await rounds.stop()
    return sent, brought


async def test_where_nobody_switched_them_on_a_server_that_answers_well_is_asked_every_three_minutes():
    """Not in its first minute and a half, however suspect it is."""
    sent, brought = await by_itself(Source(), IDLE, 3600)
    assert 90 <= sent[0] <= 185
    assert 16 <= len(sent) <= 22
    assert set(brought) == {"ok"}
    sent, _ = await by_itself(Source(), SUSPECTED, 300)
    assert sent[0] >= 90
    assert sent[1] - sent[0] == GAP_SECONDS_MIN  # it has answered: now a suspicion counts


SLOW = Asked(CanaryCall(ok=True, latency_s=1.5, outcome="ok"), Call(outcome="ok"), None)
UNTRUSTED = {
    "slow": SLOW,
    "refused": ended("refused", WatchError("HTTP 401", "name a key file")),
    "unanswered": ended("unanswered"),
}


@pytest.mark.parametrize("first", UNTRUSTED.values(), ids=UNTRUSTED)
async def test_a_server_whose_first_answer_is_not_good_is_left_alone_for_an_hour(first):
    """Nothing of it is judged or logged; then it is tried again."""
    source = Source(first)
    with capture_logs() as logs:
        sent, brought = await by_itself(source, IDLE, 7000)
    assert sent[1] - sent[0] >= UNTRUSTED_SECONDS
    assert len(sent) >= 10
    assert set(brought) == {"ok"}
    assert logs == []


async def test_one_that_refuses_later_is_left_alone_too():
    """It has got a key: nobody asked for canaries, so nobody is told."""
    refused = ended("refused", WatchError("HTTP 401", "name a key file"))
    with capture_logs() as logs:
        sent, brought = await by_itself(Source(ended(), refused), IDLE, 3000)
    assert (len(sent), brought, logs) == (2, ["ok"], [])


async def test_a_busy_engine_is_not_asked():
    """Its counters tell more."""
    assert await run(Source(), {}, 3600) == []


async def test_its_answer_makes_it_busy_for_a_look_and_changes_nothing():
    """The look that sees the canary's own step does not begin the interval anew."""
    sent = await run(Source(), lambda second: IDLE if second % 10 else {}, 3600)
    assert 44 <= len(sent) <= 62


async def test_one_that_answered_well_is_judged_by_what_it_leaves_unanswered():
    """That is what they are for."""
    _, brought = await by_itself(Source(ended(), ended("unanswered")), IDLE, 700)
    assert brought[:3] == ["ok", "unanswered", "ok"]
