"""One state for one trouble: it comes from the open incidents, with one hysteresis, and routers get the number of that state."""

from dataclasses import replace

import pytest

from tests.incidents.test_lifecycle import MOMENT, T, collapse, stall
from vllm_watch.incidents.lifecycle import Lifecycle
from vllm_watch.incidents.states import States
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Call, Observation, Reading
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.signals.state import health_ratio
from vllm_watch.watch.watch import Watch


class Engine:
    """One engine whose verdicts are given, looked at every `step` seconds; `shown`: its state at each look."""

    def __init__(self, step=5.0):
        self.lifecycle, self.states = Lifecycle("x"), States()
        self.step, self.now, self.shown = step, 0.0, []

    def look(self, *verdicts, times=1, raw="serving", life=1.0):
        for _ in range(times):
            moment = replace(MOMENT, t=T + self.now, at_s=self.now, process_start_time=life)
            self.lifecycle.update(moment, verdicts)
            engines = {"0": EngineSignals(engine="0", state=raw, state_text=raw)}
            signals = TargetSignals(
                target="x", t=T + self.now, up=True, outcome="ok", state=raw, state_text=raw,
                process_start_time=life, engines=engines,
            )  # fmt: skip
            self.states.show(signals, self.lifecycle.incidents, self.now)
            self.shown.append(signals.state)
            self.now += self.step
        return self

    @property
    def changes(self):
        return [now for before, now in zip(["", *self.shown], self.shown, strict=False) if now != before]  # fmt: skip


@pytest.mark.parametrize("step", [1.0, 5.0, 15.0])
@pytest.mark.parametrize(("ill", "well"), [(1, 1), (2, 2), (1, 3)])
def test_a_trouble_that_flickers_for_half_an_hour_shows_one_state(step, ill, well):
    """Found and not found in turn, under one open incident: the state changes a few times at most, not hundreds."""
    engine = Engine(step)
    while engine.now < 1800.0:
        engine.look(stall(), times=ill).look(stall("clear"), times=well)
    assert len(engine.lifecycle.incidents) == 1
    assert engine.lifecycle.opened == {"engine_stalled": 1}
    assert engine.changes[:1] == ["stalled"]
    assert len(engine.changes) <= 3


class Flickers:
    """A detector that finds a stall at every second look."""

    def __init__(self):
        self.looks = 0

    def update(self, _view):
        self.looks += 1
        return [stall() if self.looks % 2 else stall("clear")]


def test_the_daemon_and_routers_see_one_state_of_a_trouble_that_flickers():
    """Through the whole judgement, half an hour at a look every five seconds: the state and the number change once."""
    watch, shown, numbers = Watch("x", detectors={"engine_stalled": Flickers()}), [], []
    for look in range(360):
        sample = EngineSample(engine="0", generation_tokens=float(look), requests_running=2.0)
        reading = Reading(vllm=True, engines=(sample,))
        watch.observe(Observation(t=T + 5.0 * look, target="x", scrape=Call(outcome="ok"), reading=reading))  # fmt: skip
        engine = watch.signals.engines["0"]
        shown.append((engine.state, watch.signals.state))
        numbers.append(health_ratio(engine.state, engine.throughput_ratio))
    assert set(shown) == {("stalled", "stalled")}
    assert set(numbers) == {0}


def test_a_look_that_cannot_be_judged_keeps_the_state():
    engine = Engine().look(collapse(), times=3).look(collapse("unknown"), times=3, raw="unknown")
    assert engine.changes == ["collapsed"]


def test_the_state_leaves_fifteen_seconds_after_the_trouble_and_with_its_process():
    """Whole soon after the recovery, not only when the incident closes; another process is whole at once."""
    engine = Engine().look(stall(), times=3).look(stall("clear"), times=3)
    assert engine.shown == ["stalled"] * 5 + ["serving"]
    again = Engine().look(stall(), times=3).look(stall("clear"), life=2.0)
    assert again.shown == ["stalled"] * 3 + ["serving"]


def test_the_worse_of_two_troubles_is_shown():
    engine = Engine().look(collapse(), times=2).look(collapse(), stall(since_seconds=40.0), times=8)
    assert engine.shown[-1] == "stalled"


@pytest.mark.parametrize("raw", ["down", "starting", "sleeping"])
def test_what_signals_know_for_reasons_of_their_own_stays(raw):
    assert Engine().look(stall(), times=2, raw=raw).changes == [raw]


def test_routers_get_the_number_of_the_state():
    assert [health_ratio(word, 0.4) for word in ("serving", "prefilling", "overloaded")] == [1, 1, 1]  # fmt: skip
    assert [health_ratio(word, 0.4) for word in ("stalled", "down", "failing", "sleeping")] == [0, 0, 0, 0]  # fmt: skip
    assert (health_ratio("collapsed", 0.4), health_ratio("collapsed", 1.2)) == (0.4, 1.0)
    assert (health_ratio("collapsed", None), health_ratio("unknown", 0.4)) == (None, None)
