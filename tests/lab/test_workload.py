"""Generators give the load that they are named for."""

from itertools import pairwise
from random import Random

import pytest

from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import ClosedLoop, OpenLoop, Sizes


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
