"""Generators give the load that they are named for."""

from random import Random

import pytest

from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import ClosedLoop, OpenLoop, Sizes


def open_loop(per_second, shape=None, seed=3):
    rng = Random(seed)
    return OpenLoop(rng, Sizes(rng), per_second, shape)


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
