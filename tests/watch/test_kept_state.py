"""What a Watch keeps for the next run of the watcher: what counts again, what is learnt anew, what is left out."""

import json
from dataclasses import replace

import pytest

from tests.state.splitting import told
from tests.told import said
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.signals.life import Life
from vllm_watch.watch.watch import Watch

LOOK = 5.0


def learnt(observations):
    watch = Watch("vllm")
    for each in observations:
        watch.observe(each)
    return json.loads(json.dumps(watch.export_state(), allow_nan=False))


def gone_on(state, observations, *, away=0.0):
    """The events of a watcher that begins with `state`; what it sees is `away` seconds later than it was."""
    watch = Watch("vllm")
    first, events = True, []
    for each in observations:
        later = replace(each, t=each.t + away, monotonic_s=None)
        if first:
            assert watch.restore(state, later.t) == []
            first = False
        events += said(watch.observe(later))
    assert watch.failures == {}
    return events, watch


def pages(events):
    """What paged at all, in order: a slow engine opens as a ticket."""
    found = {
        e["id"]: (e["kind"], e["cause"])
        for e in events
        if e["event"] != "resolved" and e["severity"] == "page"
    }
    return list(found.values())


@pytest.fixture(scope="module")
def slow():
    """An engine that is well for five minutes and slow from then on."""
    return told("healthy", 600, LOOK, ((305, "fault", "slow"),))


@pytest.fixture(scope="module")
def well(slow):
    return learnt(slow[:61])


def another_process(look, version=None):
    reading = look.reading
    engines = tuple(
        replace(each, created_time=(each.created_time or 0.0) + 9.0, process_start_time=None)
        for each in reading.engines
    )
    server = replace(
        reading.server, process_start_time=(reading.server.process_start_time or 0) + 9
    )
    return replace(look, reading=replace(reading, engines=engines, server=server))


def another_config(look):
    reading = look.reading
    engines = tuple(
        replace(each, cache_config_info={**(each.cache_config_info or {}), "block_size": "7"})
        for each in reading.engines
    )
    return replace(look, reading=replace(reading, engines=engines))


HOUR = 3600.0
# What the watcher meets after it was away: found slow again, or taken for how this engine is.
MET = {
    "at once": (0.0, lambda look: look, True),
    "five hours later": (5 * HOUR, lambda look: look, True),
    "seven hours later": (7 * HOUR, lambda look: look, False),
    "another process": (60.0, another_process, False),
    "another configuration": (60.0, another_config, False),
}


@pytest.mark.parametrize(("away", "what", "found"), MET.values(), ids=MET)
def test_an_engine_that_became_slow_while_nobody_looked(slow, well, away, what, found):
    """It is measured by what the same process did when fresh; any other begins anew, and nobody is woken."""
    events, _ = gone_on(well, [what(each) for each in slow[64:]], away=away)
    assert pages(events) == ([("throughput_collapse", "slow_engine")] if found else [])


@pytest.mark.parametrize("away", [60.0, 300.0, 5 * HOUR])
@pytest.mark.parametrize("moment", [63, 70, 90])
def test_an_alarm_of_an_earlier_run_wakes_nobody(slow, moment, away):
    """The engine recovered while nobody looked: what was open ends, and nothing opens."""
    state = learnt(slow[:moment])
    state["lifecycle"]["followed"] = []  # even if its incident was lost
    healthy = told("healthy", 600, LOOK)
    events, _ = gone_on(state, healthy[moment + 6 :], away=away)
    assert pages(events) == []


def refused(t):
    return Observation(t=t, target="vllm", scrape=Call(outcome="refused", error="refused"))


GONE = {
    "a minute later": (60.0, ["ticket", "page"]),
    "nine minutes later": (540.0, ["ticket", "page"]),
    "an hour later": (HOUR, []),  # as for a watcher that never saw it: it starts
}


@pytest.mark.parametrize(("away", "severities"), GONE.values(), ids=GONE)
def test_a_server_that_went_while_nobody_looked(well, away, severities):
    """A ticket first, since both may have been stopped on purpose, and a page when it stays away."""
    looks = [refused(well["t"] + LOOK * n) for n in range(1, 60)]
    events, watch = gone_on(well, looks, away=away)
    assert [e["severity"] for e in events] == severities
    assert watch.signals.state == ("down" if severities else "starting")


def test_a_life_that_ended_while_nobody_looked_is_counted(well, slow):
    """Restarts go on counting, and so do the kinds of incidents."""
    _, watch = gone_on(well, [another_process(each) for each in slow[61:63]])
    assert watch.signals.engines["0"].restarts == 1
    _, watch = gone_on(well, slow[61:63])
    assert watch.signals.engines["0"].restarts == 0
    _, watch = gone_on(learnt(slow[:80]), slow[80:82])
    assert watch.opened == {"throughput_collapse": 1}


def test_a_sibling_gives_its_patience_and_nothing_else(well, slow):
    """Another server of the group may run on other hardware: its speed is no yardstick."""
    state = json.loads(json.dumps(well))
    state["detectors"]["engine_stalled"]["engines"]["0"]["habits"]["usual"] = [30.0, 31.0, 32.0]
    state["detectors"]["engine_down"]["loading"]["starts_s"] = [700.0]
    watch = Watch("sibling")
    assert watch.inherit(state) == []
    assert pages([event for each in slow[64:] for event in said(watch.observe(each))]) == []
    detectors = watch.export_state()["detectors"]
    assert detectors["engine_stalled"]["engines"]["0"]["habits"]["usual"][:3] == [30.0, 31.0, 32.0]
    assert detectors["engine_down"]["loading"]["starts_s"] == [700.0]


def damaged(path, value):
    def damage(state):
        *parts, last = path.split(".")
        for part in parts:
            state = state[part]
        state[last] = value

    return damage


DAMAGES = {
    "another version": (damaged("version", 99), "all"),
    "another target": (damaged("target", "b"), "all"),
    "no time": (damaged("t", None), "all"),
    "engines are a list": (damaged("engines", []), "all"),
    "one gauge": (damaged("engines.0.progress.poll.gauges", 1.0), "all"),
    "several queues": (damaged("engines.0.progress.poll.waiting", [1]), "all"),
    "incidents are a text": (damaged("lifecycle.followed", "x"), "lifecycle"),
    "a life that is none": (damaged("lifecycle.recurrence", [["k", "0", "", "soon", 1.0, 1, 0.0, None, None]]), "lifecycle"),
    "no detectors": (damaged("detectors", {}), "throughput_collapse"),
    "equations that are not finite": (
        damaged("detectors.throughput_collapse.engines.0.judge.baseline.model.moment", [1, 2, 1e999]),
        "throughput_collapse",
    ),
    "a level that is none": (
        damaged("detectors.throughput_collapse.engines.0.judge.baseline.slow.level", True),
        "throughput_collapse",
    ),
    "pauses that are texts": (
        damaged("detectors.engine_stalled.engines.0.habits.usual", ["long"]), "engine_stalled",
    ),
    "a run that is none": (damaged("detectors.engine_down.run", {"began_s": 0}), "engine_down"),
    "a first minute that is none": (damaged("detectors.host_memory_growth.first", [1]), "host_memory_growth"),
    "minutes that are none": (damaged("detectors.host_memory_growth.minutes", [[1]]), "host_memory_growth"),
    "queues of another version": (damaged("detectors.overload.version", 0), "overload"),
    "silences of another version": (damaged("detectors.engine_down.version", 0), "engine_down"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "part"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_left_out(well, slow, damage, part):
    """It is named, the rest is used, and watching goes on."""
    state = json.loads(json.dumps(well))
    damage(state)
    watch = Watch("vllm")
    lost = watch.restore(state, well["t"] + LOOK)
    assert part in [each.partition(":")[0] for each in lost]
    for each in slow[61:70]:
        watch.observe(each)
    assert watch.failures == {}
    of_no_use = {"all", "lifecycle", "throughput_collapse"} & {
        each.partition(":")[0] for each in lost
    }
    assert [each.kind for each in watch.incidents] == ([] if of_no_use else ["throughput_collapse"])


LIFE = Life(
    created_time=5.0, process_start_time=4.0, counters=(10.0, 100.0, None), config="c", model="m",
    version="0.33.0", max_model_len=8192,
)  # fmt: skip
LIVES = {
    "itself, after hours": ({}, 99_999, True),
    "counters went on": ({"counters": (11.0, 200.0, 3.0)}, 60, True),
    "created anew": ({"created_time": 6.0}, 60, False),
    "another process": ({"created_time": None, "process_start_time": 6.0}, 60, False),
    "no start is told": ({"created_time": None, "process_start_time": None}, 60, True),
    "... for long": ({"created_time": None, "process_start_time": None}, 601, False),
    "... and counters fell": (
        {"created_time": None, "process_start_time": None, "counters": (9.0, 100.0, None)}, 60, False,
    ),
    "another model": ({"model": "n"}, 60, False),
    "other blocks": ({"config": "d"}, 60, False),
    "a version that is not known yet": ({"version": None, "max_model_len": None}, 60, True),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "away", "same"), LIVES.values(), ids=LIVES)
def test_the_same_process(fields, away, same):
    """Start times decide; where none is told, counters that went on do, for ten minutes."""
    assert LIFE.goes_on_as(replace(LIFE, **fields), away) is same
    assert Life.restore(json.loads(json.dumps(LIFE.export_state()))) == LIFE


def test_nothing_to_keep():
    """Before the first look there is no state."""
    assert Watch("x").export_state() is None
