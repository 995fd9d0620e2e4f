"""Generators give the load that they are named for."""

from itertools import pairwise
from random import Random

import pytest

from benchmarks.lab.workloads import diurnal
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import ClosedLoop, OpenLoop, Sizes, bursty


def open_loop(per_second, shape=None, seed=3):
    rng = Random(seed)
    return OpenLoop(rng, Sizes(rng), per_second, shape)


def arrivals(workload, until_t, step_s=5.0):
    times, t = [], 0.0
    while t < until_t:
        t += step_s
        times += [request.arrival_t for request in workload.arrivals(t)]
    return times


def test_poisson_arrivals_have_the_rate_and_the_spread():
    """The count is near its mean, and the gaps vary as much as they are long."""
    times = arrivals(open_loop(2.0), 5000)
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5

    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert deviation / mean == pytest.approx(1, rel=0.05)


def test_looking_more_often_draws_the_same_load():
    """A workload does not depend on how time is cut."""
    assert arrivals(open_loop(2.0), 500, 1.0) == arrivals(open_loop(2.0), 500, 50.0)


def test_a_rate_can_change_and_be_nothing():
    """Silence gives no request, and what follows it begins after it."""
    workload = open_loop(5.0)
    workload.arrivals(10.0)
    workload.per_second = 0.0
    workload.arrivals(12.0)
    assert workload.arrivals(100.0) == []
    workload.per_second = 5.0
    later = workload.arrivals(200.0)
    assert min(request.arrival_t for request in later) > 100
    assert len(later) == pytest.approx(500, rel=0.2)


def test_a_day_has_a_peak_and_a_night():
    """The rate at the peak is that of the load, twelve hours away it is the low share of it."""
    times = arrivals(open_loop(1.0, diurnal(low=0.2, peak_t=43_200)), 86_400, 600)
    peak = sum(1 for t in times if 41_400 <= t < 45_000)
    night = sum(1 for t in times if t < 1800 or t >= 84_600)
    assert peak == pytest.approx(3600, rel=0.1)
    assert night == pytest.approx(0.2 * 3600, rel=0.2)


def test_bursts_alternate_with_calm():
    """Minutes at the full rate exist, and minutes far below it."""
    times = arrivals(open_loop(10.0, bursty(Random(1), 0.1, 60.0, 60.0)), 3600)
    per_minute = [sum(1 for t in times if m * 60 <= t < m * 60 + 60) for m in range(60)]
    assert max(per_minute) > 500
    assert min(per_minute) < 100


def test_closed_loop_never_has_more_than_its_clients():
    """Each client waits for its answer; so the server sees as many at once and no more."""
    rng = Random(1)
    vllm = SimulatedVllm("a", workload=ClosedLoop(rng, Sizes(rng), clients=7, think_seconds=0.5))
    running = []
    for second in range(1, 300):
        vllm.advance(float(second))
        running.append(vllm.outstanding)
    assert max(running) <= 7
    assert sum(vllm.engines[0].ledger.success.values()) > 300


def test_closed_loop_clients_survive_a_restart():
    """Refused, they try again; after the restart all of them are there, and no more than before."""
    rng = Random(1)
    vllm = SimulatedVllm("a", workload=ClosedLoop(rng, Sizes(rng), clients=7, think_seconds=0.1))
    vllm.advance(20.0)
    vllm.fault("crash")
    vllm.advance(60.0)
    vllm.clear("crash")
    vllm.advance(100.0)
    seen = []
    for tenth in range(1, 300):
        vllm.advance(100.0 + tenth / 10)
        seen.append(vllm.outstanding)
    assert max(seen) == 7
    latency = vllm.engines[0].ledger.histograms()["e2e_latency"]
    assert latency.sum / latency.count < 10


def test_sizes_are_those_asked_for():
    """Medians as given, never beyond the limits, and a shared part of each prompt."""
    rng = Random(2)
    sizes = Sizes(
        rng, prompt_tokens=1000, prompt_tokens_max=3000, output_tokens=100, max_tokens=256
    )
    requests = [sizes.draw(0.0) for _ in range(4000)]
    prompts = sorted(request.prompt_tokens for request in requests)
    outputs = sorted(request.output_tokens for request in requests)

    assert prompts[2000] == pytest.approx(1000, rel=0.1)
    assert outputs[2000] == pytest.approx(100, rel=0.1)
    assert (prompts[-1], outputs[-1]) == (3000, 256)
    assert {request.finish_reason for request in requests} == {"stop", "length"}
    assert all(
        request.cached_tokens == int(request.prompt_tokens * 0.4) or request.prompt_tokens == 3000
        for request in requests
    )
