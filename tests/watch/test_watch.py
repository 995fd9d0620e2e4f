"""A target's signals from its observations, live or replayed: up, silent, late, gone, come back."""

import gc
import json
from dataclasses import replace
from types import FunctionType, ModuleType

import pytest

from tests.detectors import looks
from tests.told import said
from vllm_watch.detectors.base import Verdict
from vllm_watch.incidents.verdicts import RestartNews
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Call, Observation, Reading, ServerSample
from vllm_watch.watch.watch import Watch

UNKNOWN_SERVER = ServerSample()


def seen(t, tokens=None, *, engines=1, monotonic_s=None, server=UNKNOWN_SERVER, **fields):
    """An observation of a server whose engines have generated `tokens`."""
    samples = tuple(
        EngineSample(engine=str(n), generation_tokens=tokens, model_name="m", **fields)
        for n in range(engines)
    )
    reading = Reading(vllm=True, engine_kind="V1", engines=samples, server=server)
    return Observation(
        t=t, monotonic_s=monotonic_s, target="x", scrape=Call(outcome="ok", status=200),
        health=Call(outcome="ok", status=200), reading=reading,
    )  # fmt: skip


def silent(t, outcome="refused", *, health=None, status=None):
    call = Call(outcome=outcome, status=status, error=f"said {outcome}")
    return Observation(t=t, target="x", scrape=call, health=health)


def follow(*observations):
    watch = Watch("x")
    for observation in observations:
        watch.observe(observation)
    return watch.signals


def states(*observations):
    watch = Watch("x")
    found = []
    for observation in observations:
        watch.observe(observation)
        found.append(watch.signals.state)
    return found


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        ([silent(0)], ["starting"]),  # never seen, and vLLM refuses connections while it loads
        ([silent(0), silent(1799)], ["starting", "starting"]),
        ([silent(0), silent(1801)], ["starting", "down"]),
        ([seen(0, 1.0), silent(5)], ["idle", "down"]),  # it was there: now nothing listens
        (
            [seen(0, 1.0), silent(5, "read_timeout")],
            ["idle", "unknown"],
        ),  # one look may meet a busy server
        ([seen(0, 1.0), silent(5, "read_timeout"), silent(10, "read_timeout")], ["idle", "unknown", "down"]),
        ([seen(0, 1.0), silent(5, "read_timeout"), seen(10, 2.0)], ["idle", "unknown", "serving"]),
        ([seen(0, 1.0), silent(5, "garbled")], ["idle", "unknown"]),
        ([seen(0, 1.0), silent(5, "dns")], ["idle", "unknown"]),
        ([seen(0, 1.0), silent(5, "http", status=500)], ["idle", "unknown"]),
        ([seen(0, 1.0), silent(5, "http", status=500, health=Call(outcome="http", status=503))], ["idle", "down"]),
    ],
)  # fmt: skip
def test_a_silent_target(observations, expected):
    """What silence means depends on how it came and on what was there before."""
    assert states(*observations) == expected


def test_a_clock_step_breaks_the_rates_and_nothing_else():
    """Across a step of Unix time no rate is known; two looks later it is again."""
    before = [seen(10_000 + 5 * n, 100.0 * n) for n in range(4)]
    after = [seen(5_000 + 5 * n, 400.0 + 100.0 * n) for n in range(2)]

    assert follow(*before, after[0]).engines["0"].generation_tokens_per_second is None
    assert follow(*before, *after).engines["0"].generation_tokens_per_second == 20.0
    assert follow(*before, *after).engines["0"].restarts == 0


def test_an_observation_that_comes_late_is_left_out():
    """Lines out of order are not a restart: the older one says nothing new."""
    signals = follow(seen(0, 100.0), seen(10, 300.0), seen(5, 200.0), seen(15, 400.0))
    assert signals.engines["0"].restarts == 0
    assert signals.engines["0"].generation_tokens_per_second == 20.0


def test_an_answer_without_a_series_does_not_forget_the_engines():
    """A server that has just started may say nothing at first; what was counted before stays."""
    nothing = Observation(
        t=10, target="x", scrape=Call(outcome="ok"), reading=Reading(vllm=False, why_not="empty")
    )
    engine = follow(seen(0, 100.0), seen(5, 200.0), nothing, seen(15, 10.0)).engines["0"]
    assert (engine.restarts, engine.generation_tokens_per_second) == (1, pytest.approx(110 / 15))


def test_the_worst_engine_speaks_for_the_target():
    """One stalled engine among data-parallel ones is not hidden by the others."""
    step = EngineSample(engine="0", generation_tokens=1.0, requests_running=0.0)
    stuck = replace(step, engine="1", requests_running=2.0)
    step_of_it = replace(stuck, generation_tokens=0.0)
    looks = [
        Observation(
            t=t,
            target="x",
            scrape=Call(outcome="ok"),
            reading=Reading(vllm=True, engines=(step, stuck if t else step_of_it)),
        )
        for t in range(0, 200, 10)
    ]
    signals = follow(*looks)
    assert {name: engine.state for name, engine in signals.engines.items()} == {
        "0": "idle",
        "1": "stalled",
    }
    assert signals.state == "stalled"
    assert signals.state_text.startswith("1 of 2 engines; engine 1: ")


class Says:
    """A detector that says the same at every look, and keeps what it was shown."""

    def __init__(self, *verdicts):
        self.verdicts = verdicts
        self.views = []

    def update(self, view):
        self.views.append(view)
        return self.verdicts


class Breaks:
    def update(self, view):
        raise ValueError(f"no {view.at_s:g}")


def judged(detector, *observations):
    watch = Watch("x", detectors={"it": detector})
    events = [event for each in observations for event in said(watch.observe(each))]
    return watch, events


@pytest.mark.parametrize(
    ("kind", "engine", "word"),
    [
        ("engine_stalled", "0", "stalled"),
        ("throughput_collapse", "0", "collapsed"),
        ("overload", "0", "overloaded"),
        ("engine_down", None, "down"),
        ("host_memory_growth", None, "serving"),
    ],
)
def test_the_state_follows_what_was_found(kind, engine, word):
    """An engine shows in one word what is wrong with it."""
    found = Verdict(state="firing", kind=kind, engine=engine, severity="page", summary="so it is")
    watch, _ = judged(Says(found), seen(0, 1.0), seen(5, 2.0, requests_running=1.0))
    assert watch.signals.engines["0"].state == watch.signals.state == word
    assert (watch.signals.state_text == "so it is") == (word != "serving")


def test_one_detectors_bug_does_not_blind_the_others():
    """What broke is kept, by the detector's name, and the look goes on."""
    found = Verdict(state="firing", kind="overload", engine="0")
    watch = Watch("x", detectors={"bad": Breaks(), "good": Says(found)})
    (event,) = watch.observe(seen(0, 1.0))
    assert event.incident.kind == "overload"
    assert watch.failures == {"bad": "ValueError: no 0"}


RESTARTING = RestartNews(under_way=True)
MISSING = RestartNews(missing="vllm-watch restarted it, and it did not come back")


def test_our_own_restart_is_no_new_trouble_and_one_that_fails_is_a_page():
    """What is known of it comes with each look: nothing opens while it is under way, and a page when it is given up."""
    watch = Watch("x")
    for n in range(12):
        watch.observe(seen(5 * n, 100.0 * n, requests_running=4.0))
    held = [e for n in range(12, 40) for e in watch.observe(silent(5 * n), restart=RESTARTING)]
    assert held == []
    (event,) = watch.observe(silent(200), restart=MISSING)
    assert (event.event, event.incident.severity) == ("opened", "page")
    assert event.incident.summary.startswith("vllm-watch restarted it, and it did not come back")
    assert not event.incident.restart_advised


def again(watch, second):
    """The same, in the next run of the watcher."""
    new = Watch("x")
    assert new.restore(json.loads(json.dumps(watch.export_state())), second) == []
    return new


def restarting(until):
    """A server that was restarted by us at second 60, by looks until then."""
    watch = Watch("x")
    for n in range(12):
        watch.observe(seen(5 * n, 100.0 * n, requests_running=4.0))
    for second in range(60, until, 5):
        assert watch.observe(silent(second), restart=RESTARTING) == []
    return again(watch, until)


@pytest.mark.parametrize("news", [RESTARTING, None])
def test_a_restart_of_ours_is_known_by_the_next_run_of_the_watcher(news):
    """Also until its journal has been read (`None`); that of which it tells nothing within a minute is over."""
    watch, known_until = restarting(75), 200 if news else 130
    told = [
        e
        for second in range(75, known_until, 5)
        for e in watch.observe(silent(second), restart=news)
    ]
    assert told == []
    told = [
        e
        for second in range(known_until, 500, 5)
        for e in watch.observe(silent(second), restart=None)
    ]
    assert told[0].event == "opened"


def held(root):
    """How many objects it holds, at any depth."""
    seen_ids, open_ = {id(root)}, [root]
    while open_:
        for each in gc.get_referents(open_.pop()):
            if id(each) not in seen_ids and not isinstance(each, type | ModuleType | FunctionType):
                seen_ids.add(id(each))
                open_.append(each)
    return len(seen_ids)


def test_a_server_that_tells_other_engines_at_each_look_fills_nothing():
    """A hostile one: what is known of an engine that is gone must go, too."""
    watch, grown = Watch("x"), []
    for look in range(121):
        names = [f"{look}-{number}" for number in range(16)]
        engines = [
            looks.engine(10, name=name, model_name=name, request_success={name: 1.0})
            for name in names
        ]
        watch.observe(looks.seen(5.0 * look, *engines))
        if look in (60, 120):
            grown.append(held(watch))
    assert watch.failures == {}
    assert grown[1] < 1.02 * grown[0]


def test_what_happens_to_the_process_that_came_is_news_for_the_next_run_of_the_watcher():
    """A restart under way excuses the process that it ends, and no other."""
    watch = restarting(75)
    for second in (75, 80, 85):
        new = seen(second, second, server=ServerSample(process_start_time=77.0))
        assert watch.observe(new, restart=RESTARTING) == []
    watch = again(watch, 90)
    told = [
        e for second in range(90, 500, 5) for e in watch.observe(silent(second), restart=RESTARTING)
    ]
    assert told[0].incident.kind == "engine_down"


def test_the_same_observation_twice_counts_once():
    """A repeated line changes neither rates nor time."""
    twice = seen(5, 200.0, monotonic_s=5.0)
    signals = follow(
        seen(0, 100.0, monotonic_s=0.0), twice, twice, seen(10, 300.0, monotonic_s=10.0)
    )
    assert signals.engines["0"].generation_tokens_per_second == 20.0
