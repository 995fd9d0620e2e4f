"""The detection benchmark: runs that are what their truth says, rules that do what they claim, a fresh page."""

import json
from dataclasses import replace

import pytest

from benchmarks.detection import bench, page
from benchmarks.detection.baselines import BASELINES, predict, tracks
from benchmarks.detection.runs import EPOCH, RUN_SECONDS, play
from benchmarks.detection.scenarios import CONFUSERS, FAULTS, SCRIPTS, runs
from tests.detectors.looks import engine, seen, silent
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
    """And another seed plays other runs."""
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
    for whose, score in from_memory.items():
        assert from_file[whose] == score, whose


def test_a_folder_without_truth_is_refused(tmp_path):
    """With what is missing."""
    with pytest.raises(SystemExit, match=r"no \*\.truth\.json"):
        bench.truth_files([tmp_path])


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


@pytest.mark.parametrize(
    ("rule", "observations", "expected"),
    [
        ("KV cache > 95 % for 5 min", every(10, 900, kv_cache_usage=0.97), [("throughput_collapse", 300)]),
        ("KV cache > 95 % for 5 min", every(10, 300, kv_cache_usage=0.97), []),
        ("KV cache > 95 % for 5 min", every(10, 900, kv_cache_usage=0.95), []),
        ("waiting > 10 for 5 min", every(10, 900, requests_waiting=11.0), [("throughput_collapse", 300)]),
        ("waiting > 100 for 5 min", every(10, 900, requests_waiting=99.0), []),
        ("no answer 60 s, no token 5 min, nothing else",
         [*every(10, 100), *(silent(second) for second in range(100, 300, 10))], [("engine_down", 160)]),
        ("no answer 60 s, no token 5 min, nothing else", every(10, 900, tokens_per_second=0.0),
         [("engine_stalled", 280)]),
        ("no answer 60 s, no token 5 min, nothing else",
         every(10, 900, tokens_per_second=0.0, requests_running=0.0), []),
    ],
)  # fmt: skip
def test_rules_of_today(rule, observations, expected):
    """Each fires when its threshold has held for its time, and not before."""
    assert opened(observations, rule) == expected


def falling(*, waiting):
    """Half an hour at 100 tokens a second, then half an hour at 30."""
    looks, tokens = [], 0.0
    for second in range(0, 3600, 10):
        tokens += 10.0 * (100.0 if second < 1800 else 30.0)
        sample = replace(engine(1000), generation_tokens=tokens, requests_waiting=waiting)
        looks.append(seen(second, sample))
    return looks


@pytest.mark.parametrize(
    "rule",
    [
        "5 min rate < 50 % of the hour's, with waiting > 0",
        "the same without waiting",
        "Page-Hinkley on the minute's rate",
        "EWMA, 3 sigma, on the minute's rate",
    ],
)
def test_change_detectors_find_a_fall(rule):
    """To a third, well after it began, and nothing before."""
    (kind, second), *_ = opened(falling(waiting=3.0), rule)
    assert kind == "throughput_collapse"
    assert 1800 < second < 2700


def test_one_rule_asks_for_a_queue():
    """So that a load drop is none."""
    assert opened(falling(waiting=0.0), "5 min rate < 50 % of the hour's, with waiting > 0") == []
    assert opened(falling(waiting=0.0), "the same without waiting") != []


def test_first_tokens_that_are_late():
    """The 95th percentile of five minutes, for five minutes."""
    looks = []
    for number in range(120):
        late = Histogram(
            number * 1.0, number * 8.0, (1.0, 10.0, float("inf")), (0.0, number * 1.0, number * 1.0)
        )
        looks.append(working(10.0 * number, ttft=late))
    assert opened(looks, "p95 TTFT > 5 s for 5 min") == [("throughput_collapse", 310)]


def test_counters_that_begin_anew_are_no_negative_rate():
    """As Prometheus' rate() has it."""
    looks = [working(0.0), working(10.0), seen(20.0, replace(engine(1), generation_tokens=50.0))]
    (track,) = tracks(looks).engines.values()
    assert track.generated == [0.0, 1000.0, 1050.0]
