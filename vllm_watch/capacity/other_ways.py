"""Find ways to fit a model if no single flag suffices.

Each way is tested by a plan.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from vllm_watch.capacity.flags import Flags, accepted_length, obstacle
from vllm_watch.capacity.gpus import CATALOGUE_SIZES, cuda_memory_bytes
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.plan import Checkpoint, Machine, Plan, make_plan, with_flags
from vllm_watch.capacity.quantization import Quantization, find_quantization
from vllm_watch.capacity.suggestions import (
    PARALLEL,
    STAGES,
    WAYS,
    Suggestion,
    but,
    cache_bytes,
    gib,
    length,
    length_little,
    refusal,
    shares_heads,
)
from vllm_watch.capacity.units import GIB

_DEAR = {"--max-model-len", "--tensor-parallel-size", "--quantization"}
"""These flags cost context length, hardware or quality."""
_LARGER_STEP, _LARGER_STEPS = 1.02, 200
_CHECKPOINTS = (
    ("an 8-bit", Quantization("8 bits", 1.0, 1.0, 1.0)),
    ("a 4-bit", Quantization("4 bits", 0.53125, 0.53125, 0.53125)),
)


@dataclass(frozen=True, slots=True)
class Way:
    """A change that makes the plan fit, and its reason."""

    change: str
    why: str


def other_ways(plan: Plan, found: tuple[Suggestion, ...]) -> tuple[Way, ...]:
    """Return the other ways. Empty if `found` has a flag that is not in `_DEAR`."""
    alone = {each.flag for each in found}
    if plan.fits or alone - _DEAR:
        return ()
    start = _startable(plan)
    if _split(plan, start).fits:
        return () if alone else (Way(_typed(plan, start), refusal(plan)),)
    ways: list[Way] = []
    if alone <= {"--max-model-len"}:
        ways += _together(plan, start, may_shorten=not alone)
    if "--tensor-parallel-size" not in alone:
        ways += _more_gpus(plan, start)
    return (*ways, *_larger_gpus(plan, start), *_smaller_checkpoint(plan, start))


def _startable(plan: Plan) -> Flags:
    flags, tokens = plan.settings.flags, plan.settings.max_num_batched_tokens
    if flags.max_model_len is not None:
        accepted = accepted_length(flags, plan.model, flags.max_model_len)
        flags = replace(flags, max_model_len=accepted)
    if flags.max_num_seqs is not None:
        flags = replace(flags, max_num_seqs=min(flags.max_num_seqs, tokens))
    splits = (
        replace(
            flags, tensor_parallel_size=ranks, pipeline_parallel_size=stages,
            data_parallel_size=replicas, decode_context_parallel_size=wide,
        )
        for ranks, stages, replicas, wide in product(
            (flags.tensor_parallel_size, 1, *PARALLEL),
            (flags.pipeline_parallel_size, *STAGES),
            (flags.data_parallel_size, 1),
            (flags.decode_context_parallel_size, 1),
        )
    )  # fmt: skip
    count = plan.machine.count
    possible = [
        each
        for each in splits
        if obstacle(each, plan.model, tokens) is None
        and (count is None or _ranks_of(each) * each.data_parallel_size <= count)
    ]
    start = min(possible, key=lambda each: (len(_changed(flags, each)), -_ranks_of(each)))
    return _with_cache(plan, start, plan.machine)


def _with_cache(plan: Plan, flags: Flags, machine: Machine) -> Flags:
    return next((then for _, then in cache_bytes(_split(plan, flags, machine))), flags)


def _ranks_of(flags: Flags) -> int:
    return flags.tensor_parallel_size * flags.pipeline_parallel_size


def _changed(before: Flags, after: Flags) -> dict[str, Any]:
    return {
        each.name: getattr(after, each.name)
        for each in fields(Flags)
        if getattr(after, each.name) != getattr(before, each.name)
    }


def _typed(plan: Plan, after: Flags) -> str:
    changed = _changed(plan.settings.flags, after)
    given = _share(plan, after).given_gib
    if given != plan.checkpoint.given_gib:
        changed["weights_gib"] = f"{given:g}"
    words = (
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in changed.items()
    )
    return " ".join(words)


def _share(plan: Plan, flags: Flags) -> Checkpoint:
    given, ratio = plan.checkpoint.given_gib, _ranks_of(plan.settings.flags) / _ranks_of(flags)
    if given is None or ratio == 1:
        return plan.checkpoint
    return replace(plan.checkpoint, given_gib=float(f"{given * ratio:.4g}"))


def _split(plan: Plan, flags: Flags, machine: Machine | None = None) -> Plan:
    return make_plan(plan.model, flags, machine or plan.machine, _share(plan, flags))


def _with(plan: Plan, start: Flags) -> str:
    typed = _typed(plan, start)
    return f", with {typed}" if typed else ""


def _together(plan: Plan, start: Flags, *, may_shorten: bool) -> Iterator[Way]:
    now = _split(plan, start)
    for ways in WAYS:
        if now.fits or (ways in (length, length_little) and not may_shorten):
            continue
        options = list(ways(now))
        if not options:
            continue
        then = with_flags(now, options[-1][1])  # frees the most
        if then.fits or _roomier(then, now):
            now = then
    if not now.fits:
        return
    flags, given = now.settings.flags, plan.settings.flags
    for name in _changed(given, flags):
        fewer = but(flags, name, getattr(given, name))
        if _split(plan, fewer).fits:
            flags = fewer
    yield Way(_typed(plan, flags), "no one of these flags is enough, together they are")


def _roomier(then: Plan, now: Plan) -> bool:
    return then.kv_bytes > now.kv_bytes or then.pool.bytes_per_block < now.pool.bytes_per_block


def _more_gpus(plan: Plan, start: Flags) -> Iterator[Way]:
    machine = replace(plan.machine, count=None)
    splits = [(ranks, stages) for ranks in (1, *PARALLEL) for stages in STAGES]
    for ranks, stages in sorted(splits, key=lambda each: (each[0] * each[1], each[1])):
        flags = replace(start, tensor_parallel_size=ranks, pipeline_parallel_size=stages)
        if _ranks_of(flags) <= _ranks_of(start) or not shares_heads(plan, ranks):
            continue
        then = _split(plan, flags, machine)
        if then.fits:
            count = plan.machine.count or plan.gpus_needed
            yield Way(
                f"{then.gpus_needed} such GPUs: {_typed(plan, flags)}",
                f"weights and cache are split over them (planned for {count})",
            )
            return


def _larger_gpus(plan: Plan, start: Flags) -> Iterator[Way]:
    now = _split(plan, start)
    blocks = now.pool.blocks_per_request(now.settings.max_model_len) + 1
    missing = max(0, blocks * now.pool.bytes_per_block - now.kv_bytes, now.over_bytes)
    size = now.machine.memory_bytes + missing / now.settings.gpu_memory_utilization
    for _ in range(_LARGER_STEPS):
        gib = math.ceil(size / GIB * 10) / 10
        gib += 0.1 if gib in CATALOGUE_SIZES else 0.0  # nominal sizes have another meaning
        memory, source = cuda_memory_bytes(gib, None)
        machine = Machine(memory, source, count=plan.machine.count)
        flags = _with_cache(plan, start, machine)
        if _split(plan, flags, machine).fits:
            yield Way(
                f"GPUs of {gib:.1f} GiB{_with(plan, flags)}",
                f"as CUDA counts it, instead of {plan.machine.memory_bytes / GIB:.1f}",
            )
            return
        size *= _LARGER_STEP  # larger cards take larger batches by default


def _smaller_checkpoint(plan: Plan, start: Flags) -> Iterator[Way]:
    now = find_quantization(plan.settings.flags.quantization, plan.model.quantization).smallest
    flags = replace(start, quantization=None)
    for name, quantization in _CHECKPOINTS if plan.model.sized else ():
        smallest = quantization.smallest
        if smallest is None or smallest >= (now or dtype_bytes(plan.settings.dtype)):
            continue
        model = replace(plan.model, quantization=quantization)
        then = make_plan(model, flags, plan.machine, Checkpoint())
        if then.fits:
            before, after = plan.weights.bytes_per_gpu, then.weights.bytes_per_gpu
            yield Way(
                f"{name} checkpoint of it{_with(replace(plan, checkpoint=Checkpoint()), start)}",
                f"about {gib(after)} instead of {gib(before)} GiB of weights per GPU",
            )
            return
