"""Suggest flags that make a plan fit, with the smallest drawback first, and other ways if no single flag suffices.

Each change is tested by a plan.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Any

from vllm_watch.capacity.flags import Flags, accepted_length, obstacle
from vllm_watch.capacity.gpus import CATALOGUE_SIZES, cuda_memory_bytes
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.plan import Checkpoint, Machine, Plan, make_plan, with_flags
from vllm_watch.capacity.quantization import Quantization, find_quantization
from vllm_watch.capacity.units import GIB
from vllm_watch.capacity.weights import FOUR_BITS

UTILIZATION_MAX = 0.95  # above this, CUDA graphs and fragmentation do not fit
_UTILIZATION_STEPS = 100
_SEQUENCES = (128, 64, 32, 16, 8)
_SMALL_BATCH_TOKENS = 2048  # vLLM's default on most cards
_PARALLEL = (2, 4, 8, 16)
_STAGES = (1, 2, 4, 8, 16)
_HARDLY_SHORTER = 0.75
_USEFUL_LENGTH = 1024  # tokens
_MUCH_WASTE_BYTES = GIB


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One flag, its value, and why."""

    flag: str
    value: str
    why: str


Change = tuple[Suggestion, Flags]


def suggestions(plan: Plan) -> tuple[Suggestion, ...]:
    """Return flags that make the plan fit, best first, or that save memory if it fits."""
    if plan.fits:
        return tuple(_waste(plan))
    if plan.obstacle is not None or plan.lacks_gpus:
        return tuple(_other_splits(plan))[:1]
    found = [each for ways in _WAYS for each, flags in ways(plan) if with_flags(plan, flags).fits]
    if plan.kv_bytes <= 0:  # without a cache, only flags that cost quality help
        found.sort(key=lambda each: each.flag != "--tensor-parallel-size")
    return tuple(found)


def _refusal(plan: Plan) -> str:
    wanted = f"these flags want {plan.gpus_needed} GPUs and there are {plan.machine.count}"
    return plan.obstacle or wanted


def _but(flags: Flags, name: str, value: Any) -> Flags:
    changed: dict[str, Any] = {name: value}
    return replace(flags, **changed)


def _utilization(plan: Plan) -> Iterator[Change]:
    now = plan.settings.gpu_memory_utilization
    if plan.flags.kv_cache_memory_bytes is not None:
        return
    first = int(now * _UTILIZATION_STEPS) + 1
    for step in range(first, int(UTILIZATION_MAX * _UTILIZATION_STEPS) + 1):
        value = step / _UTILIZATION_STEPS
        then = replace(plan.flags, gpu_memory_utilization=value)
        last = value == UTILIZATION_MAX
        if last or with_flags(plan, then).fits:
            more = _gib((value - now) * plan.machine.memory_bytes)
            why = f"{more} GiB more of each GPU, if nothing else uses it"
            yield Suggestion("--gpu-memory-utilization", f"{value:g}", why), then
            return


def _shorter(plan: Plan, *, hardly: bool) -> Iterator[Change]:
    flags, length = plan.flags, plan.longest
    if hardly != (length >= plan.settings.max_model_len * _HARDLY_SHORTER):
        return
    block = max(1, plan.pool.block_size)
    length = length // block * block or length
    if length < _USEFUL_LENGTH or length >= plan.settings.max_model_len:
        shorter = _longest_profiled(plan)
        if shorter is None:
            return
        length = shorter
    said = Suggestion("--max-model-len", str(length), "the longest context that fits as it is")
    yield said, replace(flags, max_model_len=length)


def _longest_profiled(plan: Plan) -> int | None:
    """Return a shorter length, which fits because vLLM then profiles a smaller batch."""
    length = plan.settings.max_model_len // 2
    while length >= _USEFUL_LENGTH:
        then = with_flags(plan, replace(plan.flags, max_model_len=length))
        if then.fits:
            return length
        length //= 2
    return None


def _kv_dtype(plan: Plan) -> Iterator[Change]:
    if plan.settings.kv_cache_dtype != "auto":
        return
    saved = 1 - 1 / dtype_bytes(plan.settings.dtype)
    why = f"each token takes {saved:.0%} less; needs a card and a kernel with fp8, and a check of the answers"
    yield Suggestion("--kv-cache-dtype", "fp8", why), replace(plan.flags, kv_cache_dtype="fp8")


def _sequences(plan: Plan) -> Iterator[Change]:
    flags, now = plan.flags, plan.settings.max_num_seqs
    counts = [each for each in _SEQUENCES if each < now]
    if plan.lacks_state_blocks and plan.num_blocks:
        counts = [plan.num_blocks, *(each for each in counts if each < plan.num_blocks)]
    for count in counts:
        then = with_flags(plan, replace(flags, max_num_seqs=count))
        if count == counts[-1] or then.fits:
            why = f"the sampler's peak shrinks by {_gib(plan.activation.peak_bytes - then.activation.peak_bytes)} GiB"
            if plan.lacks_state_blocks:
                why = f"each needs a block for its recurrent state, and there are {plan.num_blocks}"
            yield Suggestion("--max-num-seqs", str(count), why), then.flags
            return


def _batch(plan: Plan) -> Iterator[Change]:
    tokens = max(_SMALL_BATCH_TOKENS, plan.flags.max_num_seqs or 0)
    if plan.settings.max_num_batched_tokens <= tokens or plan.settings.engine == "V0":
        return
    then = replace(plan.flags, max_num_batched_tokens=tokens)
    freed = plan.activation.peak_bytes - with_flags(plan, then).activation.peak_bytes
    if freed > 0:
        why = f"the profiled batch shrinks by {_gib(freed)} GiB; long prompts take longer"
        yield Suggestion("--max-num-batched-tokens", str(tokens), why), then


def _eager(plan: Plan) -> Iterator[Change]:
    if plan.graph_bytes:
        why = f"no CUDA graphs: {_gib(plan.graph_bytes)} GiB, for slower decoding"
        yield Suggestion("--enforce-eager", "", why), replace(plan.flags, enforce_eager=True)


def _tensor_parallel(plan: Plan) -> Iterator[Change]:
    if plan.checkpoint.given_gib is not None:
        return
    ranks = [each for each in _PARALLEL if each > plan.flags.tensor_parallel_size]
    for each in ranks:
        then = with_flags(plan, replace(plan.flags, tensor_parallel_size=each))
        if _shares_heads(plan, each) and then.fits:
            why = f"weights and cache are split over {then.gpus_needed} GPUs"
            yield Suggestion("--tensor-parallel-size", str(each), why), then.flags
            return


def _shares_heads(plan: Plan, ranks: int) -> bool:
    heads, shared = plan.model.num_attention_heads, plan.model.num_key_value_heads
    return not heads % ranks and not max(ranks, shared) % min(ranks, shared)


def _weights(plan: Plan) -> Iterator[Change]:
    if find_quantization(plan.flags.quantization, plan.model.quantization).smallest:
        return
    then = with_flags(plan, replace(plan.flags, quantization="fp8"))
    before, after = plan.weights.bytes_per_gpu, then.weights.bytes_per_gpu
    if after < before:
        why = f"weights of about {_gib(after)} instead of {_gib(before)} GiB per GPU: quantized while loading"
        yield Suggestion("--quantization", "fp8", why), then.flags


def _cache_bytes(plan: Plan) -> Iterator[Change]:
    if plan.flags.kv_cache_memory_bytes is None:
        return
    blocks, why = plan.pool.blocks_per_request(plan.settings.max_model_len) + 1, "one request"
    if plan.lacks_state_blocks and plan.settings.max_num_seqs > blocks:
        blocks, why = plan.settings.max_num_seqs, "each sequence's recurrent state"
    size = blocks * plan.pool.bytes_per_block
    if size > plan.flags.kv_cache_memory_bytes:
        said = Suggestion("--kv-cache-memory-bytes", str(size), f"the need of {why}")
        yield said, replace(plan.flags, kv_cache_memory_bytes=size)


def _other_splits(plan: Plan) -> Iterator[Suggestion]:
    flags, why = plan.flags, _refusal(plan)
    accepted = accepted_length(flags, plan.model, plan.settings.max_model_len)
    options: list[tuple[str, tuple[int, ...]]] = [
        ("tensor_parallel_size", tuple(sorted((1, *_PARALLEL), key=lambda each: abs(each - flags.tensor_parallel_size)))),
        ("pipeline_parallel_size", (plan.model.num_layers, *reversed(_STAGES))),
        ("data_parallel_size", tuple(range(min(flags.data_parallel_size, 64) - 1, 0, -1))),
        ("decode_context_parallel_size", (1,)),
        ("max_model_len", tuple(each for each in (accepted, plan.longest) if each >= _USEFUL_LENGTH)),
        ("max_num_seqs", (plan.settings.max_num_batched_tokens,)),
        ("max_num_batched_tokens", (flags.max_num_seqs or plan.settings.max_num_seqs,)),
    ]  # fmt: skip
    options.sort(key=lambda each: not why.startswith(f"--{each[0].replace('_', '-')} "))
    for name, values in options:
        for value in values:
            if name == "tensor_parallel_size" and (
                not _shares_heads(plan, value) or plan.checkpoint.given_gib is not None
            ):
                continue
            if with_flags(plan, _but(flags, name, value)).fits:
                yield Suggestion(f"--{name.replace('_', '-')}", str(value), why)


def _waste(plan: Plan) -> Iterator[Suggestion]:
    settings, flags = plan.settings, plan.flags
    blocks = plan.pool.blocks_per_request(settings.max_model_len) * settings.max_num_seqs
    spare = (plan.num_blocks - blocks) * plan.pool.bytes_per_block
    if flags.kv_cache_memory_bytes is not None or spare < _MUCH_WASTE_BYTES:
        return
    unused = f"{_gib(spare)} GiB per GPU of KV cache can never be used by {settings.max_num_seqs} requests of {settings.max_model_len} tokens"
    lower = settings.gpu_memory_utilization - spare / plan.machine.memory_bytes
    rounded = -(-lower * _UTILIZATION_STEPS // 1) / _UTILIZATION_STEPS
    limit = min(plan.model.length_limit or 0, plan.longest)
    more = (
        ("gpu_memory_utilization", rounded, rounded < settings.gpu_memory_utilization, "leave it to others"),
        ("max_model_len", limit, limit > settings.max_model_len, "the model can read more"),
        ("max_num_seqs", int(plan.concurrency), True, "or serve more at once"),
    )  # fmt: skip
    for name, value, useful, said in more:
        if useful and value > 0 and with_flags(plan, _but(flags, name, value)).fits:
            yield Suggestion(f"--{name.replace('_', '-')}", f"{value}", f"{unused}: {said}")


_SHORTER = tuple(partial(_shorter, hardly=hardly) for hardly in (True, False))
_WAYS: tuple[Callable[[Plan], Iterator[Change]], ...] = (
    _utilization, _cache_bytes, _SHORTER[0], _batch, _sequences, _kv_dtype, _eager, _SHORTER[1], _tensor_parallel, _weights,
)  # fmt: skip


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


_DEAR = {"--max-model-len", "--tensor-parallel-size", "--quantization"}
"""These flags cost context length, hardware or quality."""
_LARGER_STEP, _LARGER_STEPS = 1.02, 200
_CHECKPOINTS = (
    ("an 8-bit", Quantization("8 bits", 1.0, 1.0, 1.0)),
    ("a 4-bit", FOUR_BITS),
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
        return () if alone else (Way(_typed(plan, start), _refusal(plan)),)
    ways: list[Way] = []
    if alone <= {"--max-model-len"}:
        ways += _together(plan, start, may_shorten=not alone)
    if "--tensor-parallel-size" not in alone:
        ways += _more_gpus(plan, start)
    return (*ways, *_larger_gpus(plan, start), *_smaller_checkpoint(plan, start))


def _startable(plan: Plan) -> Flags:
    flags, tokens = plan.flags, plan.settings.max_num_batched_tokens
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
            (flags.tensor_parallel_size, 1, *_PARALLEL),
            (flags.pipeline_parallel_size, *_STAGES),
            (flags.data_parallel_size, 1),
            (flags.decode_context_parallel_size, 1),
        )
    )  # fmt: skip
    count = plan.machine.count
    possible = [
        each
        for each in splits
        if obstacle(each, plan.model, tokens) is None
        and (count is None or each.ranks * each.data_parallel_size <= count)
    ]
    start = min(possible, key=lambda each: (len(_changed(flags, each)), -each.ranks))
    return _with_cache(plan, start, plan.machine)


def _with_cache(plan: Plan, flags: Flags, machine: Machine) -> Flags:
    return next((then for _, then in _cache_bytes(_split(plan, flags, machine))), flags)


def _changed(before: Flags, after: Flags) -> dict[str, Any]:
    return {
        each.name: getattr(after, each.name)
        for each in fields(Flags)
        if getattr(after, each.name) != getattr(before, each.name)
    }


def _typed(plan: Plan, after: Flags) -> str:
    changed = _changed(plan.flags, after)
    given = _share(plan, after).given_gib
    if given != plan.checkpoint.given_gib:
        changed["weights_gib"] = f"{given:g}"
    words = (
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in changed.items()
    )
    return " ".join(words)


def _share(plan: Plan, flags: Flags) -> Checkpoint:
    given, ratio = plan.checkpoint.given_gib, plan.flags.ranks / flags.ranks
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
    for ways in _WAYS:
        if now.fits or (ways in _SHORTER and not may_shorten):
            continue
        options = list(ways(now))
        if not options:
            continue
        then = with_flags(now, options[-1][1])  # frees the most
        smaller = then.pool.bytes_per_block < now.pool.bytes_per_block
        if then.fits or then.kv_bytes > now.kv_bytes or smaller:
            now = then
    if not now.fits:
        return
    flags, given = now.flags, plan.flags
    for name in _changed(given, flags):
        fewer = _but(flags, name, getattr(given, name))
        if _split(plan, fewer).fits:
            flags = fewer
    yield Way(_typed(plan, flags), "no one of these flags is enough, together they are")


def _more_gpus(plan: Plan, start: Flags) -> Iterator[Way]:
    machine = replace(plan.machine, count=None)
    splits = [(ranks, stages) for ranks in (1, *_PARALLEL) for stages in _STAGES]
    for ranks, stages in sorted(splits, key=lambda each: (each[0] * each[1], each[1])):
        flags = replace(start, tensor_parallel_size=ranks, pipeline_parallel_size=stages)
        if flags.ranks <= start.ranks or not _shares_heads(plan, ranks):
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
    now = find_quantization(plan.flags.quantization, plan.model.quantization).smallest
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
                f"about {_gib(after)} instead of {_gib(before)} GiB of weights per GPU",
            )
            return
