"""An engine's signals from its samples: rates, shares, latencies, progress, and what is unknown."""

from dataclasses import replace
from math import inf

import pytest

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import ServerSample
from vllm_watch.settings.stages import SloSettings
from vllm_watch.signals.capacity import kv_cache_tokens
from vllm_watch.signals.engine import EngineTracker

SLO = SloSettings(time_to_first_token_seconds=0.5, inter_token_latency_seconds=0.1)


def follow(*samples, window_seconds=60.0, slo=SLO, every_s=5.0, server=None, engines=1):
    """The signals after the last of the samples, one every `every_s`."""
    tracker = EngineTracker(window_seconds, slo)
    for number, sample in enumerate(samples):
        at_s = number * every_s
        signals = tracker.update(at_s, 1000.0 + at_s, sample, server or ServerSample(), engines)
    return signals


def sample(**fields):
    return EngineSample(engine="0", **fields)


def histogram(*cumulative, total=None, bounds=(0.1, 0.5, inf)):
    return Histogram(cumulative[-1], total, bounds, cumulative)


def steps(count, total):
    return Histogram(count, total, (inf,), (count,))


def test_rates_are_growth_over_time():
    """Tokens, requests by reason, preemptions, steps."""
    signals = follow(
        sample(generation_tokens=0.0, prompt_tokens=10.0, preemptions=1.0, request_success={"stop": 1.0}, iteration_tokens=steps(0, 0)),
        sample(generation_tokens=500.0, prompt_tokens=60.0, preemptions=2.0, request_success={"stop": 6.0, "abort": 5.0}, iteration_tokens=steps(50, 550)),
    )  # fmt: skip
    assert signals.generation_tokens_per_second == 100.0
    assert signals.current_generation_tokens_per_second == 100.0
    assert signals.prompt_tokens_per_second == 10.0
    assert signals.preemptions_per_second == 0.2
    assert signals.requests_finished_per_second == 2.0
    assert signals.requests_finished_by_reason_per_second == {"stop": 1.0, "abort": 1.0}
    assert signals.steps_per_second == 10.0
    assert signals.tokens_per_step == 11.0
    assert signals.step_time_seconds == 0.1


def test_an_engine_that_hangs_generates_nothing_now():
    """The mean over the window still has the tokens from before; a restart's first tokens count from zero."""
    before, same = sample(generation_tokens=0.0), sample(generation_tokens=500.0)
    hung = follow(before, same, same)
    assert hung.generation_tokens_per_second == 50.0
    assert hung.current_generation_tokens_per_second == 0.0
    again = follow(before, same, sample(generation_tokens=50.0))
    assert again.current_generation_tokens_per_second == 10.0
    assert follow(same, sample(), same).current_generation_tokens_per_second == 0.0
    assert follow(same, sample()).current_generation_tokens_per_second is None


@pytest.mark.parametrize(
    ("then", "now", "ratio"),
    [
        (
            {"prefix_cache_hits": 0.0, "prefix_cache_queries": 0.0},
            {"prefix_cache_hits": 30.0, "prefix_cache_queries": 40.0},
            0.75,
        ),
        ({"prefix_cache_hit_rate": 0.2}, {"prefix_cache_hit_rate": 0.4}, 0.4),  # V0's gauge
        (
            {"prefix_cache_hit_rate": -1.0},
            {"prefix_cache_hit_rate": -1.0},
            None,
        ),  # -1: caching is off
        ({}, {}, None),
    ],
)
def test_prefix_cache_hit_ratio(then, now, ratio):
    """From the counters over the window, else from V0's gauge; unknown where there is neither."""
    assert follow(sample(**then), sample(**now)).prefix_cache_hit_ratio == ratio


@pytest.mark.parametrize(
    ("usages", "seconds"),
    [
        ((0.2, 0.4), 15.0),  # 0.2 in 5 s, 0.6 to go
        ((0.4, 0.2), None),  # it empties
        ((0.4, 0.405), None),  # it hovers
        ((None, 0.4), None),
        ((0.5, 1.0), 0.0),
    ],
)
def test_time_until_the_cache_is_full(usages, seconds):
    """At the window's slope; unknown where it does not fill."""
    signals = follow(*(sample(kv_cache_usage=usage) for usage in usages))
    assert signals.kv_cache_time_to_full_seconds == (
        None if seconds is None else pytest.approx(seconds)
    )


def test_goodput_counts_what_met_the_objectives():
    """Requests finished, times the least share that met an objective."""
    signals = follow(
        sample(
            request_success={"stop": 0.0},
            ttft=histogram(0, 0, 0),
            inter_token_latency=histogram(0, 0, 0),
        ),
        sample(
            request_success={"stop": 50.0},
            ttft=histogram(10, 40, 50),
            inter_token_latency=histogram(90, 95, 100),
        ),
    )
    assert signals.slo_attainment_ratio == {"time_to_first_token": 0.8, "inter_token_latency": 0.9}
    assert signals.goodput_requests_per_second == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("before", "after", "restarts"),
    [
        ({"created_time": 900.0, "generation_tokens": 5.0}, {"created_time": 1002.0, "generation_tokens": 9.0}, 1),
        (
            {"process_start_time": 900.0, "generation_tokens": 5.0},
            {"process_start_time": 1002.0, "generation_tokens": 0.0},
            1,
        ),
        (
            {"generation_tokens": 5.0},
            {"generation_tokens": 4.0},
            1,
        ),  # several API servers: no times at all
        ({"prompt_tokens": 5.0}, {"prompt_tokens": 4.0}, 1),
        ({"iteration_tokens": steps(5, 5)}, {"iteration_tokens": steps(4, 4)}, 1),
        ({"generation_tokens": 5.0, "kv_cache_usage": 0.5}, {"generation_tokens": 5.0, "kv_cache_usage": 0.1}, 0),
        ({"created_time": 900.0, "generation_tokens": 5.0}, {"created_time": 900.0, "generation_tokens": 9.0}, 0),
    ],
)  # fmt: skip
def test_a_restart_is_seen_by_whatever_witness_there_is(before, after, restarts):
    """The time the counters were made, the process's start, or a counter that fell."""
    assert follow(sample(**before), sample(**after)).restarts == restarts


@pytest.mark.parametrize(
    ("moved", "progress"),
    [
        ({"generation_tokens": 6.0}, True),
        ({"ttft": histogram(1, 2, 6)}, True),
        ({"request_success": {"stop": 6.0}}, True),
        ({"request_success": {"stop": 5.0, "abort": 1.0}}, False),
        ({"iteration_tokens": steps(6, 60)}, False),
        ({"prompt_tokens": 6.0}, False),
        ({"preemptions": 6.0}, False),
        ({"kv_cache_usage": 0.6}, False),
    ],
)
def test_what_users_get_is_progress(moved, progress):
    """A token, a first token, a finished request; all else that moves only shows that it lives."""
    still = {
        "iteration_tokens": steps(5, 50), "generation_tokens": 5.0, "prompt_tokens": 5.0,
        "request_success": {"stop": 5.0}, "preemptions": 5.0, "requests_running": 1.0,
        "ttft": histogram(1, 2, 5), "kv_cache_usage": 0.5,
    }  # fmt: skip
    began = still | {"generation_tokens": 4.0}
    signals = follow(sample(**began), sample(**still), sample(**(still | moved)))
    assert (signals.last_progress_timestamp_seconds == 1010.0) is progress
    assert signals.state == ("serving" if progress else "prefilling")


def state(*samples, met=False, **options):
    """The state after these samples, of an engine that has generated a token before them, if met."""
    first = samples[0]
    before = [replace(first, generation_tokens=(first.generation_tokens or 1.0) - 1.0)] * met
    return follow(*before, *samples, **options).state


BUSY = {"requests_running": 2.0, "requests_waiting": 1.0}
IDLE = {"requests_running": 0.0, "requests_waiting": 0.0}


def engine(step, **fields):
    """A sample of an engine with a step counter."""
    return sample(iteration_tokens=steps(step, step), generation_tokens=float(step), **fields)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([engine(5, **IDLE)], "idle"),
        ([engine(5, **BUSY)], "serving"),  # at first sight
        ([engine(5, **BUSY), engine(6, **BUSY)], "serving"),
        ([engine(5, **BUSY), engine(6, **IDLE)], "serving"),  # the last request just ended
        ([engine(5, **IDLE), engine(5, **IDLE)], "idle"),
        (
            [engine(5, **BUSY), engine(5, **BUSY)],
            "prefilling",
        ),  # a long step; that it is a stall is judged
        ([engine(5, **IDLE), engine(5, **BUSY)], "serving"),  # work came this very moment
        ([engine(5, **IDLE), engine(5, **BUSY), engine(5, **BUSY)], "prefilling"),
        ([engine(5, **BUSY), engine(5, **BUSY), engine(6, **BUSY)], "serving"),  # it came back
        (
            [engine(5, requests_running=0.0, requests_waiting=4.0)] * 3,
            "prefilling",
        ),  # admits nobody
        ([engine(5, **IDLE, requests_swapped=1.0)] * 3, "prefilling"),
        ([sample(generation_tokens=5.0, **BUSY)] * 3, "prefilling"),  # no step counter: be patient
        ([sample(generation_tokens=5.0, **BUSY)] * 8, "prefilling"),
        ([engine(5, **BUSY, engine_sleep_state={"awake": 0.0, "discard_all": 1.0})] * 3, "sleeping"),
        ([engine(5, **BUSY, engine_sleep_state={"awake": 1.0, "discard_all": 0.0})] * 3, "prefilling"),
    ],
)  # fmt: skip
def test_the_state_of_an_engine(samples, expected):
    """In one word, at a scrape every five seconds; what never moved before a first watcher may be left over."""
    still = expected == "prefilling" and all(each == samples[0] for each in samples)
    assert state(*samples) == ("unknown" if still else expected)
    if expected == "prefilling":
        assert state(*samples, met=True) == expected


def test_a_prefill_in_steps_is_prefilling():
    """Steps go on, prompt tokens go in, nothing is generated yet."""
    looks = [
        sample(iteration_tokens=steps(n, n * 2048), generation_tokens=5.0, **BUSY)
        for n in (1, 2, 3)
    ]
    assert state(*looks) == "prefilling"


def test_a_server_that_waits_to_be_recovered_is_not_stalled():
    """vLLM's fault tolerance waits two minutes for an orchestrator, and ends itself if none comes."""
    faulty = ServerSample(recovering="TimeoutError of engine 0")
    assert state(*[engine(5, **BUSY)] * 3, server=faulty) == "sleeping"


def test_replicas_behind_one_address_are_not_restarts():
    """Two servers that answer in turn have other counters, made long ago: nothing is known across them."""
    a = [sample(generation_tokens=1000.0 + n, created_time=100.0) for n in range(3)]
    b = [sample(generation_tokens=9000.0 + n, created_time=200.0) for n in range(3)]
    signals = follow(a[0], b[0], a[1], b[1], a[2], b[2])
    assert (signals.generation_tokens_per_second, signals.restarts) == (None, 0)


def test_a_clock_that_is_a_little_behind_does_not_hide_a_restart():
    """The engine's host may be some seconds behind ours."""
    before = sample(generation_tokens=50.0, created_time=100.0)
    assert follow(before, sample(generation_tokens=1.0, created_time=990.0)).restarts == 1


@pytest.mark.parametrize(
    ("config", "engines", "tokens"),
    [
        (None, 1, None),
        ({}, 1, None),
        ({"num_gpu_blocks": "512", "block_size": "32"}, 1, 16384),
        (
            {"num_gpu_blocks": "None", "block_size": "16"},
            1,
            None,
        ),  # V1 up to 0.8.5: not counted yet
        ({"num_gpu_blocks": "1000", "block_size": "16"}, 2, 8000),  # data parallel: the sum of both
        ({"num_gpu_blocks": "1000", "block_size": "16", "kv_cache_size_tokens": "9000"}, 2, 9000),
        ({"num_gpu_blocks": "1000", "block_size": "16", "kv_cache_size_tokens": "None"}, 1, 16000),
        (
            {"num_gpu_blocks": "0", "block_size": "16"},
            1,
            None,
        ),  # an attention-free model has no cache
    ],
)
def test_tokens_of_a_configuration(config, engines, tokens):
    """What vLLM says per engine is preferred; else blocks times block size, shared by its engines."""
    assert kv_cache_tokens(config, engines) == tokens


def test_totals_begin_again_with_another_model_and_can_be_left_out():
    """Its series are others; where nobody wants them nothing is counted."""

    def told(**settings):
        tracker = EngineTracker(60.0, SLO, **settings)
        looks = (("a", 10.0), ("a", 30.0), ("b", 50.0), ("b", 51.0))
        return [
            tracker.update(float(at_s), 1000.0 + at_s, sample(model_name=name, generation_tokens=count), ServerSample(), 1).totals.generation_tokens
            for at_s, (name, count) in enumerate(looks)
        ]  # fmt: skip

    assert told() == [0, 20, 0, 1]
    assert told(totals=False) == [None] * 4


def test_a_paused_server_is_not_stalled():
    """After POST /pause work may wait for as long as somebody wants."""
    assert state(*[engine(5, **BUSY)] * 3, server=ServerSample(paused=True)) == "sleeping"
