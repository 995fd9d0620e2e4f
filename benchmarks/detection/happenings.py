"""What happens to an engine that its lab does not play: its looks are changed on their way.

Failing requests, a drafter that misses, a stopped process, ranks that wait for it, weights under update.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.detection.runs import Stage
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import EngineCpu, Observation

Changed = Callable[[Observation], Observation]
_UPDATE = {"rl_weight_update_operations_in_flight": 1.0}
_FAILED_A_LOOK = 10.0


def _each(change: Callable[[EngineSample], EngineSample]) -> Changed:
    def changed(seen: Observation) -> Observation:
        if seen.reading is None:
            return seen
        engines = tuple(change(each) for each in seen.reading.engines)
        return replace(seen, reading=replace(seen.reading, engines=engines))

    return changed


def all_fail(stage: Stage, fault_at_s: float, seconds: float) -> Iterator[float]:
    """It answers at once, and each answer is an error."""
    failed = 0.0

    def fails(sample: EngineSample) -> EngineSample:
        nonlocal failed
        failed += _FAILED_A_LOOK
        ends = {**(sample.request_success or {}), "error": failed}
        return replace(
            sample,
            requests_running=0.0,
            requests_waiting=0.0,
            kv_cache_usage=0.0,
            request_success=ends,
        )

    yield fault_at_s
    usual, stage.traffic.per_second = stage.traffic.per_second, 0.0
    stage.vllm.fault("hang")
    stage.change = _each(fails)
    yield seconds
    stage.vllm.clear()
    stage.change, stage.traffic.per_second = None, usual


def drafts_miss(
    stage: Stage, slower: dict[int, float], fault_at_s: float, seconds: float
) -> Iterator[float]:
    """A drafter of which seven tokens in ten were accepted hits one in twenty, and steps make so many fewer tokens."""
    drafted, accepted, before, share = 0.0, 0.0, 0.0, 0.7

    def with_drafts(seen: Observation) -> Observation:
        nonlocal drafted, accepted, before
        made = sum(float(each.ledger.generation_tokens) for each in stage.vllm.engines)
        drafted, accepted = drafted + made - before, accepted + share * (made - before)
        before = made
        if seen.reading is None:
            return seen
        return _each(lambda sample: replace(
            sample, spec_num_drafts=drafted / 3.0, spec_num_draft_tokens=drafted, spec_num_accepted_tokens=accepted,
        ))(seen)  # fmt: skip

    stage.change = with_drafts
    yield fault_at_s
    share, slower[-1] = 0.05, 2.5
    yield seconds
    share = 0.7
    slower.clear()


def stopped(engine: str) -> Callable[[Stage, float, float], Iterator[float]]:
    """Its process is in state T; every other engine of the server steps with it."""

    def happen(stage: Stage, fault_at_s: float, seconds: float) -> Iterator[float]:
        halted = EngineCpu(engine=engine, waited_seconds=1.0, stopped="VLLM::EngineCore (PID 7)")

        def seen_stopped(seen: Observation) -> Observation:
            return replace(seen, cpu=(halted,))

        yield fault_at_s
        stage.vllm.fault("hang")
        stage.change = seen_stopped
        yield seconds
        stage.vllm.clear()
        stage.change = None

    return happen


def update_without_end(stage: Stage, fault_at_s: float, seconds: float) -> Iterator[float]:
    """An update of the weights has begun, and nothing is done meanwhile."""
    yield fault_at_s
    stage.vllm.fault("hang")
    stage.change = _each(lambda sample: replace(sample, operations_in_flight=_UPDATE))
    yield seconds
    stage.vllm.clear()
    stage.change = None


def updates(stage: Stage) -> Iterator[float]:
    """Every quarter of an hour new weights, for a minute."""
    while True:
        yield 840.0
        stage.vllm.fault("hang")
        stage.change = _each(lambda sample: replace(sample, operations_in_flight=_UPDATE))
        yield 60.0
        stage.vllm.clear()
        stage.change = None
