"""The engine does many steps at once; nothing that can be seen from outside may show it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.reference_engine import Job, ReferenceEngine
from vllm_watch.lab.batch import EngineConfig, KvCache
from vllm_watch.lab.engine import Engine
from vllm_watch.lab.ledger import Buckets
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
    return Engine(config, V1.bounds, V1.finished_reasons)


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
@given(LOADS, st.lists(st.floats(0, 30, width=32), max_size=20))
def test_looking_changes_nothing(load, looks):
    """An engine that is advanced in many small pieces ends its requests at the same times."""
    whole, pieces = engine_of(), engine_of()
    first, second = requests_of(load), requests_of(load)
    submit(whole, first)
    submit(pieces, second)

    for t in sorted(looks):
        pieces.advance(t)
        pieces.ledger.histograms()
    whole.advance(1e6)
    pieces.advance(1e6)

    assert [r.finish_t for r in second] == pytest.approx([r.finish_t for r in first], rel=1e-9)


@examples(60)
@given(LOADS)
def test_pages_are_never_lost_nor_invented(load):
    """At every look the used blocks are those that the running requests hold, within the capacity."""
    engine = engine_of()
    submit(engine, requests_of(load))

    for tenth in range(300):
        engine.advance(tenth / 10)
        held = sum(blocks_of(engine, request) for request in engine.batch.running)
        assert engine.kv.used_blocks == held
        assert 0 <= engine.kv.free_blocks <= SMALL.num_gpu_blocks
        assert len(engine.batch.running) <= SMALL.max_num_seqs
    engine.advance(1e6)
    assert engine.kv.used_blocks == 0


def blocks_of(engine, request):
    if request.decode_start_step < 0:
        return request.blocks
    tokens = request.kv_start_tokens + engine.kv.step - request.decode_start_step
    return -(-tokens // SMALL.block_size)


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


def test_requests_that_come_during_a_hang_are_seen_by_no_gauge():
    """They wait outside the core; when it goes on it has them all at once, freshly queued."""
    engine = engine_of()
    engine.submit(Request(16, 1000))
    engine.advance(1.0)
    engine.freeze(1.0)
    late = [Request(16, 1, arrival_t=2.0) for _ in range(3)]
    submit(engine, late)

    engine.advance(50.0)
    assert (engine.num_running, engine.num_waiting, engine.num_unseen) == (1, 0, 3)
    engine.thaw(50.0)
    engine.advance(60.0)

    assert all(request.scheduled_t - request.queued_t < 1 for request in late)
    assert all(request.first_token_t - request.arrival_t > 48 for request in late)


def test_a_prefix_hits_only_once_it_was_computed():
    """The first request of an engine computes all of its prompt, the next ones its own part only."""
    engine = engine_of()
    requests = [Request(80, 5, cached_tokens=60, arrival_t=t) for t in (0.0, 10.0)]
    submit(engine, requests)

    engine.advance(1e6)

    # 60 tokens are 7 whole blocks of 8.
    assert [request.started_cached_tokens for request in requests] == [0, 56]
    assert (engine.ledger.prefix_queries, engine.ledger.prefix_hits) == (160, 56)


def test_a_pooling_request_ends_with_its_prompt():
    """No token is generated, and the prompt is counted."""
    engine = engine_of()
    engine.submit(Request(40, 0))

    engine.advance(1.0)

    assert engine.ledger.generation_tokens == 0
    assert engine.ledger.prompt_tokens == 40
    assert engine.ledger.histograms()["e2e_latency"].count == 1


def test_a_long_prompt_is_computed_in_chunks_beside_the_decoding_ones():
    """While 250 tokens are computed 64 at a time, another request goes on generating."""
    engine = engine_of()
    short, long = Request(8, 100), Request(250, 1, arrival_t=0.1)
    submit(engine, [short, long])

    engine.advance(long.arrival_t + 0.025)
    before = engine.ledger.generation_tokens
    engine.advance(1e6)

    assert before > 1
    # 63 tokens fit beside one decoding request: four steps.
    assert long.first_token_t - long.scheduled_t == pytest.approx(4 * 0.0164, rel=0.05)


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=10),
    st.integers(0, 100),
    st.integers(0, 100),
    st.sampled_from([1, 2, 4, 8]),
)
def test_blocks_due_equal_the_sum_over_requests(prompts, before, steps, step_tokens):
    """Whatever the requests hold and however many steps were done, the blocks to come are exact."""
    kv = KvCache(10_000, 8, step_tokens)
    for prompt in prompts:
        kv.used_blocks += kv.blocks_of(prompt)
        kv.begin_decoding(prompt)
    kv.take_steps(before)
    assert kv.used_blocks == sum(kv.blocks_of(p + before * step_tokens) for p in prompts)

    due = kv.blocks_due(steps)

    then = sum(kv.blocks_of(p + (before + steps) * step_tokens) for p in prompts)
    assert due == then - kv.used_blocks


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(0, 300), st.integers(0, 40)
)
def test_steps_that_fit_is_the_most_that_fits(prompts, steps, spare):
    """One step more would need a block that is not there."""
    kv = KvCache(sum(-(-p // 8) for p in prompts) + spare, 8)
    for prompt in prompts:
        kv.used_blocks += kv.blocks_of(prompt)
        kv.begin_decoding(prompt)

    fit = kv.steps_that_fit(steps)

    assert kv.blocks_due(fit) <= kv.free_blocks
    assert fit == steps or kv.blocks_due(fit + 1) > kv.free_blocks


BOUNDS = (0.1, 0.25, 0.5, 1.0, float("inf"))


@given(st.floats(0.001, 2), st.floats(0, 0.3), st.integers(1, 50), st.integers(1, 5))
def test_a_ramp_is_its_values(first, slope, steps, times):
    """A ramp of step times lands in the buckets of its single values, to within a rounding at a bound."""
    ramp, single = Buckets(BOUNDS), Buckets(BOUNDS)
    ramp.observe_ramp(first, slope, steps, times)
    for step in range(steps):
        single.observe(first + slope * step, times)

    assert ramp.snapshot().count == single.snapshot().count == steps * times
    assert ramp.snapshot().sum == pytest.approx(single.snapshot().sum)
    for got, expected in zip(ramp.counts, single.counts, strict=True):
        assert abs(got - expected) <= times


def test_a_bound_belongs_to_its_bucket():
    """`le` is less or equal."""
    buckets = Buckets(BOUNDS)
    buckets.observe_all([0.1, 0.10001, 5.0])
    assert buckets.snapshot().cumulative == (1.0, 2.0, 2.0, 2.0, 3.0)
