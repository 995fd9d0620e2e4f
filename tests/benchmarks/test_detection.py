"""The detection benchmark: runs that are what their truth says, rules that do what they claim, a fresh page; and its scorer.

What counts as found, as a false alarm, as right.
"""

import json
from dataclasses import replace

import pytest

from benchmarks.detection import bench, page
from benchmarks.detection.baselines import BASELINES, predict, tracks
from benchmarks.detection.runs import EPOCH, RUN_SECONDS, play
from benchmarks.detection.scenarios import CONFUSERS, FAULTS, SCRIPTS, runs
from benchmarks.detection.score import score, summary
from tests.detectors.looks import engine, seen
from vllm_watch.samples.engine import Histogram


def test_the_page_is_that_of_the_code():
    """docs/detection.md: python benchmarks/bench_detection.py --full --page measures and writes it anew."""
    kept = page.load()
    assert page.PAGE.read_text() == page.text(kept)
    lab = kept[page.LAB]
    assert lab["whose"].keys() == {bench.OURS, *BASELINES}
    assert lab["scenarios"].keys() == SCRIPTS.keys()
    assert lab["whose"][bench.OURS]["recordings"] == len(runs())


def test_every_kind_of_hardware_load_and_interval_is_met():
    made = runs()
    assert 40 <= len(made) <= 80
    for what in ("hardware", "shape", "load", "interval_s", "old", "monotonic"):
        assert len({getattr(run, what) for run in made}) > 1, what
    assert {run.name for run in made}.isdisjoint(run.name for run in runs(1))


@pytest.mark.parametrize("scenario", SCRIPTS)
def test_a_run_is_what_its_truth_says(scenario):
    """Faults have their event within the run, felt at or after its cause; confusers have none."""
    run = next(run for run in runs() if run.scenario == scenario)
    played = play(replace(run, interval_s=30.0), SCRIPTS[scenario])
    truth = played.truth
    assert truth["confuser"] is (scenario in CONFUSERS)
    for event in truth["events"]:
        assert EPOCH < event["start"] <= event["effect_start"] < event["end"] < EPOCH + RUN_SECONDS
    assert bool(truth["events"]) is (scenario in FAULTS)


@pytest.mark.parametrize("scenario", ["kv_pinning", "kv_leak", "preemption_thrash"])
def test_what_should_starve_an_engine_does(scenario):
    """In every run of it requests wait while it lasts; else the truth would be wrong."""
    for run in runs():
        if run.scenario != scenario:
            continue
        played = play(replace(run, interval_s=15.0), SCRIPTS[scenario])
        (event,) = played.truth["events"]
        during = [
            sample.requests_waiting
            for look in played.observations
            if look.reading and event["effect_start"] + 120.0 < look.t < event["end"]
            for sample in look.reading.engines
        ]
        assert sorted(during)[len(during) // 4] > 0, run.name


def test_a_run_can_be_written_and_judged_from_its_file(tmp_path):
    """Recordings of the lab are judged alike from memory and from a file, so own recordings are, too."""
    run = next(run for run in runs() if run.scenario == "hang")
    bench.write_run(run, tmp_path)
    (truth,) = bench.truth_files([tmp_path])
    assert json.loads(truth.read_text())["scenario"] == "hang"
    from_file, from_memory = bench.judge_file(truth), bench.judge_run(run)
    assert from_file.keys() == from_memory.keys()
    for whose, own in from_memory.items():
        assert from_file[whose] == own, whose


def working(second, *, tokens_per_second=100.0, **fields):
    tokens = 1e6 + tokens_per_second * second
    fields.setdefault(
        "ttft", Histogram(second, second, (1.0, 10.0, float("inf")), (second, second, second))
    )
    return seen(second, replace(engine(1000), generation_tokens=tokens, **fields))


def opened(observations, rule):
    return [
        (event["kind"], round(event["t"] - 1_700_000_000.0))
        for event in predict(BASELINES[rule], tracks(observations))
        if event["event"] == "opened"
    ]


def every(seconds, until, **fields):
    return [working(second, **fields) for second in range(0, until, seconds)]


HANG = {"kind": "engine_stalled", "cause": "hang", "engine": None, "start": 1000.0,
        "effect_start": 1010.0, "end": 1600.0}  # fmt: skip
SLOW = HANG | {"kind": "throughput_collapse", "cause": "slow_engine"}


def truth(*events, notes=(), helps=None):
    return {"name": "x", "scenario": "s", "interval_s": 5.0, "t0": 0.0, "t1": 86_400.0,
            "events": list(events), "notes": list(notes), "restart_helps": helps}  # fmt: skip


def said(opened, closed=None, kind="engine_stalled", cause="hang", *, name="1", **more):
    events = [{"t": opened, "event": "opened", "id": name, "kind": kind, "cause": cause, **more}]
    if closed is not None:
        events.append({"t": closed, "event": "resolved", "id": name, "kind": kind, "cause": cause})
    return events


def updated(t, kind="engine_stalled", cause="hang", **more):
    return {"t": t, "event": "updated", "id": "1", "kind": kind, "cause": cause, **more}


@pytest.mark.parametrize(
    ("story", "predictions", "delay"),
    [
        ("in time", said(1030, 1700), 20.0),
        ("before the effect, after the cause", said(1005, 1700), 0.0),
        ("two intervals before the cause", said(990, 1700), 0.0),
        ("open long before anything began", said(900, 1700), None),
        ("over before users felt anything", said(1001, 1005), None),
        ("never resolved", said(1030), 20.0),
        ("within two intervals after the end", said(1609, 1900), 599.0),
        ("too late", said(1611, 1900), None),
        ("another kind", said(1030, 1700, "engine_down", "crash"), None),
        ("a kind that was corrected", [*said(1020, None, "engine_down", "crash"), updated(1040.0)], 30.0),
        ("nothing", [], None),
    ],
)  # fmt: skip
def test_what_counts_as_found(story, predictions, delay):
    """An incident of the event's kind, open during it, not open long before."""
    (found,) = score(truth(HANG), predictions).events
    assert found.delay_s == delay


@pytest.mark.parametrize(
    ("predictions", "false_alarms", "right"),
    [
        (said(1030, 1700), 0, 1),
        (said(1030, 1700, "engine_down", "crash"), 0, 1),  # another of the three kinds, beside it
        (said(1899, 1950), 0, 1),  # queues drain, averages lag
        (said(1901, 1950), 1, 0),
        (said(900, 1700), 1, 0),  # rang before
        ([*said(1030, 1100), *said(5000, 5100, name="2")], 1, 1),
        (said(5000, 5100, "overload", "demand"), 0, 0),
    ],
)
def test_what_counts_as_a_false_alarm(predictions, false_alarms, right):
    """A collapse, stall or down where none was, up to five minutes after its end."""
    result = score(truth(HANG), predictions)
    assert (result.false_alarms, result.spans_right) == (false_alarms, right)


def test_a_note_excuses_its_kind_only():
    """A planned restart may be called down, and nothing else."""
    planned = truth(notes=[{"kind": "engine_down", "start": 1000.0, "end": 1100.0}])
    assert score(planned, said(1050, 1200, "engine_down", "crash")).false_alarms == 0
    assert score(planned, said(1050, 1200)).false_alarms == 1
    assert score(planned, said(1050, 1200, severity="page")).pages_outside == 0
    assert score(planned, said(9000, 9200, severity="page")).pages_outside == 1


def test_the_engine_counts_where_the_truth_names_one():
    """An alarm on the healthy neighbour finds nothing, and is false."""
    first = truth(HANG | {"engine": "0"})
    assert score(first, said(1030, 1700, engine="0")).events[0].delay_s == 20.0
    assert score(first, said(1030, 1700, engine=None)).events[0].delay_s == 20.0
    other = score(first, said(1030, 1700, engine="1"))
    assert (other.events[0].delay_s, other.false_alarms) == (None, 1)


@pytest.mark.parametrize(
    ("helps", "predictions", "right"),
    [
        (True, said(1030, 1700, restart_advised=True), True),
        (True, [*said(1030, None), updated(1100.0, restart_advised=True)], True),
        (True, said(1030, 1700), False),
        (False, said(1030, 1700, restart_advised=True), False),
        (False, said(1030, 1700), True),
        (True, [], None),  # nothing was said: nothing was advised wrongly
        (None, said(1030, 1700), None),
    ],
)
def test_restart_advice(helps, predictions, right):
    """Advised where it cures, and not where it does not."""
    assert score(truth(SLOW, helps=helps), predictions).advice_right is right


def test_an_end_is_told_within_five_minutes():
    assert score(truth(HANG), said(1030, 1900)).events[0].resolved_in_time is True
    assert score(truth(HANG), said(1030, 1911)).events[0].resolved_in_time is False
    late = HANG | {"end": 86_300.0}
    assert score(truth(late), said(1030, 86_390)).events[0].resolved_in_time is None


def test_the_figures():
    """Over two recordings: one event found twice, one missed, one false alarm."""
    twice = score(truth(HANG), [*said(1030, 1100), *said(1200, 1300, name="2")])
    missed = score(truth(SLOW), said(9000, 9100))
    figures = summary([twice, missed])
    assert figures == {
        "recordings": 2, "days": 2.0, "events": 2, "recall_collapse": 0.0, "recall": 0.5,
        "precision": 2 / 3, "false_alarms_per_day": 0.5, "delay_median_s": 20.0, "delay_p95_s": 20.0,
        "cause_right": 1.0, "advice_right": None, "duplicates": 1, "resolved_in_time": 1.0,
        "recall_other": None, "other_false_alarms_per_day": 0.0, "pages_outside": 0,
    }  # fmt: skip
