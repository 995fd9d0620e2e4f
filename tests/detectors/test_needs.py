"""What is missing is said, per detector and version of vLLM, and is never taken for health."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.detectors.looks import OK, engine, gpu, seen
from vllm_watch.detectors.needs import INPUTS, needs_of_all
from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import CanaryCall, Observation
from vllm_watch.settings.detectors import DetectorsSettings
from vllm_watch.signals.scales import FIVE_MINUTES_SECONDS, HOUR_SECONDS, MANY
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.watch import Watch, all_detectors

CAPTURES = Path(__file__).parents[1] / "sources" / "captures"
SEES, PARTLY, BLIND, UNKNOWN = "sees", "partly", "blind", "unknown"
ANSWERED = CanaryCall(ok=True, latency_s=0.1)
SLUGS = ("engine_down", "engine_stalled", "throughput_collapse", "overload", "host_memory_growth")


def sights(observations):
    watch = Watch("x")
    for observation in observations:
        watch.observe(observation)
    assert watch.failures == {}
    return watch.signals.detectors


def captured(name, looks=MANY + 1):
    """Looks at a vLLM of which this capture is what it always says, with all else there is to see."""
    body = (CAPTURES / name).read_text()
    reading = Reader().read(body, openmetrics=body.endswith("# EOF\n"))
    return [
        Observation(
            t=1e9 + 5 * n, target="x", scrape=OK, health=OK, reading=reading, gpus=(gpu(),),
            canary=ANSWERED,
        )
        for n in range(looks)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("capture", "down", "stalled", "collapse", "overload", "memory"),
    [
        ("0.33.0-v1.txt", SEES, SEES, SEES, SEES, SEES),
        ("0.33.0-v1-dp2.txt", SEES, SEES, SEES, SEES, SEES),
        ("0.32.0-v1-cpu-idle.txt", SEES, SEES, SEES, SEES, SEES),
        ("0.32.0-v1-cpu-hung.txt", SEES, SEES, SEES, SEES, SEES),
        ("0.33.0-v1-disable-log-stats.txt", PARTLY, BLIND, BLIND, BLIND, PARTLY),
        ("0.11.2-v1-hidden.txt", SEES, SEES, SEES, SEES, SEES),
        ("0.9.2-v1-api2.txt", SEES, PARTLY, SEES, SEES, BLIND),
        ("0.8.2-v1-openmetrics.txt", SEES, SEES, SEES, SEES, PARTLY),
        ("0.7.3-v1.txt", SEES, SEES, PARTLY, SEES, PARTLY),
        ("0.10.2-v0-multiproc.txt", SEES, PARTLY, PARTLY, SEES, BLIND),
        ("0.6.6.post1-v0-single.txt", SEES, SEES, PARTLY, SEES, PARTLY),
        ("0.6.4.post1-v0-multiproc.txt", SEES, PARTLY, PARTLY, SEES, BLIND),
        ("0.6.1.post2-v0-multiproc.txt", SEES, PARTLY, PARTLY, SEES, BLIND),
        ("0.5.4-v0-default-no-vllm-metrics.txt", PARTLY, BLIND, BLIND, BLIND, PARTLY),
        ("0.4.3-v0.txt", SEES, PARTLY, PARTLY, SEES, PARTLY),
        ("0.3.3-v0.txt", PARTLY, PARTLY, PARTLY, BLIND, PARTLY),
        ("0.2.7-v0-aioprometheus.txt", PARTLY, BLIND, BLIND, BLIND, BLIND),
    ],
)
def test_each_version_of_vllm(capture, down, stalled, collapse, overload, memory):
    """Old engines lack counters, several processes hide the process' series, statistics may be off."""
    found = sights(captured(capture))
    expected = dict(zip(SLUGS, (down, stalled, collapse, overload, memory), strict=True))
    assert {slug: found[slug].state for slug in SLUGS} == expected
    assert all(bool(sight.text) == (sight.state != SEES) for sight in found.values())


def test_every_detector_says_what_it_needs():
    """A detector that says nothing would be taken to see everything; the names are those of inputs."""
    every = needs_of_all()
    assert (
        every.keys()
        == all_detectors(DetectorsSettings()).keys()
        | all_detectors(DetectorsSettings(), "HostDetector").keys()
    )
    assert sights(captured("0.33.0-v1.txt")).keys() == every.keys()
    named = [
        name
        for needs in every.values()
        for need in (*needs.must, *needs.sharpens)
        for name in need.any_of
    ]
    assert set(named) == INPUTS.keys()


def looks(count, **fields):
    """Looks at an engine at work that is seen in every way, but for what `fields` take away."""
    view = {"gpus": (gpu(),), "canary": ANSWERED, "process_resident_memory_bytes": 1e9}
    others = ("fds", "health", "process_start_time", *view)
    named = {name: value for name, value in fields.items() if name in others}
    of_engine = {name: value for name, value in fields.items() if name not in named}
    return [
        seen(5.0 * n, whole(1000 + n, **of_engine), **(view | named)) for n in range(count)
    ]  # fmt: skip


def whole(steps, **without):
    lengths = Histogram(float(steps), steps * 100.0)
    fields = {
        "inter_token_latency": lengths, "request_success": {"stop": steps / 100},
        "request_prompt_tokens": lengths, "request_generation_tokens": lengths, "preemptions": 0.0,
        "prefix_cache_queries": 1.0, "prompt_tokens": steps * 10.0,
    }  # fmt: skip
    tokens = {name: without.pop(name) for name in ("generation_tokens",) if name in without}
    return replace(engine(steps, **(fields | without)), **tokens)


@pytest.mark.parametrize(
    ("without", "detector", "state", "says"),
    [
        ({}, "engine_stalled", SEES, ""),
        ({"fds": None, "canary": None}, "engine_stalled", PARTLY,
         "no process_open_fds and no canary so far: a hang of an engine whose gauges read idle is not detected"),
        ({"canary": None}, "engine_stalled", PARTLY, "set `canary.enabled: true`"),
        ({"gpus": None}, "engine_stalled", PARTLY, "no view of the GPUs"),
        ({"gpus": ()}, "throughput_collapse", PARTLY, "heat, a neighbour on the GPU"),
        ({"counted": False}, "throughput_collapse", PARTLY, "vLLM counts them from 0.6.4 on"),
        ({"counted": False, "inter_token_latency": None}, "throughput_collapse", BLIND, "step times are unknown"),
        ({}, "throughput_collapse", SEES, ""),
        ({"prefix_cache_queries": None}, "throughput_collapse", PARTLY, "prefix cache went cold"),
        ({"prefix_cache_queries": None, "prefix_cache_hit_rate": -1.0}, "throughput_collapse", SEES, ""),
        ({"kv": None}, "throughput_collapse", BLIND, "long contexts look like slow steps"),
        ({"prompt_tokens": None}, "throughput_collapse", BLIND, "long prompts look like slow steps"),
        ({"waiting": None}, "throughput_collapse", PARTLY, "lack KV pages"),
        ({"request_success": None}, "engine_down", PARTLY, "seems crashed"),
        ({"prompt_tokens": None}, "engine_down", PARTLY, "may look crashed"),
        ({"counted": False, "generation_tokens": None}, "engine_stalled", BLIND, "a hang and work look alike"),
        ({"running": None}, "engine_stalled", BLIND, "no number of running requests"),
        ({"waiting": None}, "overload", BLIND, "the queue is not seen"),
        ({"request_success": None}, "overload", BLIND, "no counter of finished requests"),
        ({"request_success": None}, "engine_stalled", SEES, ""),
        ({"health": None}, "engine_down", PARTLY, "no answer of /health"),
        ({"process_resident_memory_bytes": None}, "host_memory_growth", BLIND, "several API servers"),
        ({"process_start_time": None}, "host_memory_growth", PARTLY, "young server"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(without, detector, state, says):
    """With what it costs and how to mend it."""
    sight = sights(looks(MANY + 1, **without))[detector]
    assert sight.state == state
    assert says in sight.text


def test_of_several_engines_the_one_is_named():
    """The rest is seen; the target is as blind as its blindest engine."""
    both = [
        seen(5.0 * n, whole(1000 + n), whole(1000 + n, name="1", running=None))
        for n in range(MANY + 1)
    ]
    sight = sights(both)["engine_stalled"]
    assert sight.state == BLIND
    assert "no number of running requests of engine 1: " in sight.text


def test_nothing_is_called_missing_after_a_few_looks():
    """A server that has just started may answer without some of its series."""
    lacking = looks(MANY - 1, waiting=None)
    assert sights(lacking)["overload"].state == UNKNOWN
    assert sights(looks(MANY, waiting=None))["overload"].state == BLIND


def test_an_old_engine_that_was_never_asked_is_not_blind():
    """V0 makes most of its series with the first request."""
    never_asked = EngineSample(engine="0", requests_running=0.0, requests_waiting=0.0)
    idle = [seen(5.0 * n, never_asked) for n in range(50)]
    assert sights(idle)["throughput_collapse"].state == UNKNOWN
    assert sights([*idle, *looks(1)])["throughput_collapse"].state != BLIND


@pytest.mark.parametrize(
    ("name", "seconds"), [("health", FIVE_MINUTES_SECONDS), ("canary", HOUR_SECONDS)]
)
def test_what_is_asked_now_and_then_is_not_missing_in_between(name, seconds):
    """Health has an interval of its own, and a canary goes to an idle engine."""
    detector = {"health": "engine_down", "canary": "engine_stalled"}[name]
    count = int(seconds / 5.0)
    once = [*looks(1), *looks(count, **{name: None})[1:]]
    assert sights(once)[detector].state == SEES
    longer = [*looks(1), *looks(count + MANY + 2, **{name: None})[1:]]
    assert sights(longer)[detector].state == PARTLY


def test_a_server_that_falls_silent_keeps_what_is_known_of_it():
    """That nothing can be read is the business of engine_down, which sees."""
    silent = Observation(t=1.8e9, target="x", scrape=OK, reading=None)
    found = sights([*looks(MANY + 1, waiting=None), silent])
    assert (found["overload"].state, found["engine_down"].state) == (BLIND, SEES)
