"""Faults begin and end at any moment, together too, and leave no trace once undone."""

from random import Random

import pytest

from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.stories import L40S
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Request, Sizes

BEGUN_AGAIN = {"crash", "engine_dead"}  # whose end is a restart


def busy(**options):
    rng = Random(7)
    workload = OpenLoop(rng, Sizes(rng, prompt_tokens=2500, output_tokens=200), 1.2)
    return SimulatedVllm("a", workload=workload, config=L40S, **options)


@pytest.mark.parametrize("slug", FAULTS)
def test_a_fault_costs_tokens_and_its_end_brings_them_back(slug):
    """While it lasts the engine generates less; afterwards it serves as before."""
    vllm = busy()

    def tokens_in(until_t):
        ledgers = [engine.ledger for engine in vllm.engines]
        before = sum(ledger.generation_tokens for ledger in ledgers)
        vllm.advance(until_t)
        return sum(ledger.generation_tokens for ledger in ledgers) - before

    vllm.advance(100.0)
    healthy = tokens_in(200.0)
    vllm.fault(slug)
    vllm.advance(300.0)
    faulty = tokens_in(400.0)
    vllm.clear(slug)
    vllm.advance(700.0)
    cured = tokens_in(800.0)

    assert faulty < 0.7 * healthy
    assert cured == pytest.approx(healthy, rel=0.4)
    assert vllm.faults == {}


@pytest.mark.parametrize("slug", FAULTS)
def test_an_undone_fault_leaves_nothing_behind(slug):
    """When all requests are done, no page, no request and no file descriptor is held."""
    vllm = busy()
    vllm.advance(60.0)
    vllm.fault(slug)
    vllm.advance(120.0)
    vllm.clear()
    vllm.workload.per_second = 0.0
    vllm.advance(2000.0)

    assert vllm.serving
    assert vllm.outstanding == 0
    for engine in vllm.engines:
        assert engine.kv.free_blocks == L40S.num_gpu_blocks
    assert vllm.incarnation == (2 if slug in BEGUN_AGAIN else 1)


def test_every_pair_of_faults_can_be_undone():
    """Whatever is laid over what: after `clear` the server serves."""
    for first in FAULTS:
        for second in FAULTS:
            vllm = busy()
            vllm.advance(30.0)
            vllm.fault(first)
            vllm.advance(40.0)
            vllm.fault(second)
            vllm.advance(70.0)
            vllm.clear()
            vllm.advance(400.0)
            done = sum(sum(engine.ledger.success.values()) for engine in vllm.engines)
            vllm.advance(500.0)
            more = sum(sum(engine.ledger.success.values()) for engine in vllm.engines)
            assert more > done, (first, second)


def test_one_of_two_engines_can_hang():
    """The other goes on; only their own series tell them apart."""
    vllm = busy(num_engines=2)
    vllm.advance(60.0)
    vllm.fault("hang", engine=1)
    before = [engine.ledger.generation_tokens for engine in vllm.engines]
    vllm.advance(120.0)
    after = [engine.ledger.generation_tokens for engine in vllm.engines]
    assert after[0] > before[0]
    assert after[1] == before[1]


def test_a_leak_takes_only_what_is_free():
    """Pages in use cannot get lost before they are given back."""
    vllm = SimulatedVllm("a", config=L40S)
    blocks = L40S.num_gpu_blocks
    vllm.engines[0].submit(Request(blocks * 16 // 2, 1_000_000))
    vllm.advance(30.0)
    vllm.fault("leak", share=1.0, ramp_seconds=10.0)
    vllm.advance(60.0)
    kv = vllm.engines[0].kv
    assert kv.free_blocks >= 0
    assert kv.used_blocks + kv.leaked_blocks <= blocks
    assert vllm.engines[0].num_running == 1
