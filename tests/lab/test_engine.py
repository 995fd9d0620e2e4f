"""The engine does many steps at once; nothing that can be seen from outside may show it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.reference_engine import Job, ReferenceEngine
from vllm_watch.lab.batch import EngineConfig, KvCache
from vllm_watch.lab.engine import Engine
from vllm_watch.lab.release import V1
from vllm_watch.lab.workload import Request

SMALL = EngineConfig(
    num_gpu_blocks=64, block_size=8, max_num_seqs=6, max_num_batched_tokens=64,
    step_base_seconds=0.01, step_seconds_per_token=1e-4, step_seconds_per_kv_token=1e-6,
)  # fmt: skip

# arrival, prompt and output: alone each fits into the 512 tokens of SMALL's cache, together they do not.
LOADS = st.lists(
    st.tuples(st.floats(0, 5, width=32), st.integers(1, 250), st.integers(1, 200)), max_size=20
)


def engine_of(config=SMALL):
    return Engine(config, V1)


def requests_of(load):
    return [Request(prompt, output, arrival_t=t) for t, prompt, output in sorted(load)]


def submit(engine, requests):
    for request in requests:
        engine.submit(request)


@examples(150)
@given(LOADS)
def test_every_request_ends_when_the_step_by_step_reference_says(load):
    """Times, order and preemptions equal those of a loop over single steps."""
    engine, requests = engine_of(), requests_of(load)
    jobs = [Job(t, prompt, output) for t, prompt, output in sorted(load)]
    submit(engine, requests)

    engine.advance(1e6)
    ReferenceEngine(SMALL, jobs).run()

    assert [r.finish_t for r in requests] == pytest.approx([j.finish_t for j in jobs], rel=1e-9)
    assert [r.scheduled_t for r in requests] == pytest.approx([j.scheduled_t for j in jobs])
    assert [r.preemptions for r in requests] == [j.preemptions for j in jobs]


@examples(60)
@given(LOADS, st.sampled_from([1, 2, 4]))
def test_tokens_are_conserved(load, step_tokens):
    """When all is done every counter and histogram says exactly what was asked for."""
    config = EngineConfig(num_gpu_blocks=64, block_size=8, max_num_seqs=6, step_tokens=step_tokens)
    engine = engine_of(config)
    submit(engine, requests_of(load))

    engine.advance(1e6)
    ledger, histograms = engine.ledger, engine.ledger.histograms()

    prompts, outputs = sum(p for _, p, _ in load), sum(o for _, _, o in load)
    assert ledger.prompt_tokens == prompts
    assert ledger.generation_tokens == outputs
    assert histograms["iteration_tokens"].sum == prompts + outputs
    assert histograms["request_prompt_tokens"].sum == prompts
    assert histograms["request_generation_tokens"].sum == outputs
    assert sum(ledger.success.values()) == histograms["e2e_latency"].count == len(load)
    assert histograms["ttft"].count == len(load)
    if step_tokens == 1:
        assert histograms["inter_token_latency"].count == outputs - len(load)


@examples(60)
@given(LOADS, st.data())
def test_an_aborted_request_gives_everything_back(load, data):
    """A client may go away at any moment; the others end, and no page stays behind."""
    engine, requests = engine_of(), requests_of(load)
    submit(engine, requests)
    for request in requests:
        if data.draw(st.booleans()):
            engine.advance(max(engine.now, request.arrival_t + data.draw(st.floats(0, 3))))
            if request.finish_t < 0:
                engine.abort(request)

    engine.advance(1e6)

    assert engine.kv.used_blocks == engine.kv.num_decoding == engine.kv.decode_kv_tokens == 0
    assert sum(engine.ledger.success.values()) == len(load)
    assert engine.ledger.generation_tokens == sum(r.generated_tokens for r in requests)


def test_a_hang_holds_up_the_step_in_progress():
    """Frozen for a minute: the request ends a minute later, and one token took that long."""
    engine, request = engine_of(), Request(16, 100)
    engine.submit(request)
    engine.advance(1e6)
    usual = request.finish_t
    engine, request = engine_of(), Request(16, 100)
    engine.submit(request)

    engine.advance(0.5)
    engine.freeze(0.5)
    engine.advance(60.5)
    assert engine.num_running == 1
    engine.thaw(60.5)
    engine.advance(1e6)

    assert request.finish_t == pytest.approx(usual + 60)
    latencies = engine.ledger.histograms()["inter_token_latency"]
    slow = latencies.count - latencies.cumulative[latencies.bounds.index(40.0)]
    assert slow == 1


def test_a_step_must_divide_a_block():
    """Otherwise the phase of a request would drift."""
    with pytest.raises(ValueError, match="3 tokens a step do not divide a block of 16"):
        KvCache(10, 16, 3)
