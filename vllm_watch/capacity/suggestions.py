"""Suggest single flags that make a plan fit, with the smallest drawback first.

Each flag is tested by a plan.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from vllm_watch.capacity.flags import Flags, accepted_length
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.plan import Plan, with_flags
from vllm_watch.capacity.quantization import find_quantization
from vllm_watch.capacity.units import GIB

UTILIZATION_MAX = 0.95  # above this, CUDA graphs and fragmentation do not fit
_UTILIZATION_STEPS = 100
_SEQUENCES = (128, 64, 32, 16, 8)
_SMALL_BATCH_TOKENS = 2048  # vLLM's default on most cards
PARALLEL = (2, 4, 8, 16)
STAGES = (1, 2, 4, 8, 16)
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
    if _is_refused(plan):
        return tuple(_other_splits(plan))[:1]
    found = [each for ways in WAYS for each, flags in ways(plan) if with_flags(plan, flags).fits]
    if plan.kv_bytes <= 0:  # without a cache, only flags that cost quality help
        found.sort(key=lambda each: each.flag != "--tensor-parallel-size")
    return tuple(found)


def _is_refused(plan: Plan) -> bool:
    return plan.obstacle is not None or plan.lacks_gpus


def refusal(plan: Plan) -> str:
    """Return why vLLM would not start with this split."""
    wanted = f"these flags want {plan.gpus_needed} GPUs and there are {plan.machine.count}"
    return plan.obstacle or wanted


def but(flags: Flags, name: str, value: Any) -> Flags:
    """Return the flags with one changed."""
    changed: dict[str, Any] = {name: value}
    return replace(flags, **changed)


def _utilization(plan: Plan) -> Iterator[Change]:
    now = plan.settings.gpu_memory_utilization
    flags = plan.settings.flags
    if flags.kv_cache_memory_bytes is not None:
        return
    first = int(now * _UTILIZATION_STEPS) + 1
    for step in range(first, int(UTILIZATION_MAX * _UTILIZATION_STEPS) + 1):
        value = step / _UTILIZATION_STEPS
        then = replace(flags, gpu_memory_utilization=value)
        last = value == UTILIZATION_MAX
        if last or with_flags(plan, then).fits:
            more = gib((value - now) * plan.machine.memory_bytes)
            why = f"{more} GiB more of each GPU, if nothing else uses it"
            yield Suggestion("--gpu-memory-utilization", f"{value:g}", why), then
            return


def length_little(plan: Plan) -> Iterator[Change]:
    """Suggest a slightly shorter context."""
    if plan.longest >= plan.settings.max_model_len * _HARDLY_SHORTER:
        yield from _shorter(plan)


def length(plan: Plan) -> Iterator[Change]:
    """Suggest a much shorter context."""
    if plan.longest < plan.settings.max_model_len * _HARDLY_SHORTER:
        yield from _shorter(plan)


def _shorter(plan: Plan) -> Iterator[Change]:
    flags, length = plan.settings.flags, plan.longest
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
        then = with_flags(plan, replace(plan.settings.flags, max_model_len=length))
        if then.fits:
            return length
        length //= 2
    return None


def _kv_dtype(plan: Plan) -> Iterator[Change]:
    flags = plan.settings.flags
    if plan.settings.kv_cache_dtype != "auto":
        return
    saved = 1 - 1 / dtype_bytes(plan.settings.dtype)
    why = f"each token takes {saved:.0%} less; needs a card and a kernel with fp8, and a check of the answers"
    yield Suggestion("--kv-cache-dtype", "fp8", why), replace(flags, kv_cache_dtype="fp8")


def _sequences(plan: Plan) -> Iterator[Change]:
    flags, now = plan.settings.flags, plan.settings.max_num_seqs
    counts = [each for each in _SEQUENCES if each < now]
    if plan.lacks_state_blocks and plan.num_blocks:
        counts = [plan.num_blocks, *(each for each in counts if each < plan.num_blocks)]
    for count in counts:
        then = with_flags(plan, replace(flags, max_num_seqs=count))
        if count == counts[-1] or then.fits:
            why = f"the sampler's peak shrinks by {gib(plan.activation.peak_bytes - then.activation.peak_bytes)} GiB"
            if plan.lacks_state_blocks:
                why = f"each needs a block for its recurrent state, and there are {plan.num_blocks}"
            yield Suggestion("--max-num-seqs", str(count), why), then.settings.flags
            return


def _batch(plan: Plan) -> Iterator[Change]:
    flags = plan.settings.flags
    tokens = max(_SMALL_BATCH_TOKENS, flags.max_num_seqs or 0)
    if plan.settings.max_num_batched_tokens <= tokens or plan.settings.engine == "V0":
        return
    then = replace(flags, max_num_batched_tokens=tokens)
    freed = plan.activation.peak_bytes - with_flags(plan, then).activation.peak_bytes
    if freed > 0:
        why = f"the profiled batch shrinks by {gib(freed)} GiB; long prompts take longer"
        yield Suggestion("--max-num-batched-tokens", str(tokens), why), then


def _eager(plan: Plan) -> Iterator[Change]:
    flags = plan.settings.flags
    if plan.graph_bytes:
        why = f"no CUDA graphs: {gib(plan.graph_bytes)} GiB, for slower decoding"
        yield Suggestion("--enforce-eager", "", why), replace(flags, enforce_eager=True)


def _tensor_parallel(plan: Plan) -> Iterator[Change]:
    flags = plan.settings.flags
    if plan.checkpoint.given_gib is not None:
        return
    ranks = [each for each in PARALLEL if each > flags.tensor_parallel_size]
    for each in ranks:
        then = with_flags(plan, replace(flags, tensor_parallel_size=each))
        if shares_heads(plan, each) and then.fits:
            why = f"weights and cache are split over {then.gpus_needed} GPUs"
            yield Suggestion("--tensor-parallel-size", str(each), why), then.settings.flags
            return


def shares_heads(plan: Plan, ranks: int) -> bool:
    """Return True if this many ranks can split the heads."""
    heads, shared = plan.model.num_attention_heads, plan.model.num_key_value_heads
    return not heads % ranks and not max(ranks, shared) % min(ranks, shared)


def _weights(plan: Plan) -> Iterator[Change]:
    flags = plan.settings.flags
    if find_quantization(flags.quantization, plan.model.quantization).smallest:
        return
    then = with_flags(plan, replace(flags, quantization="fp8"))
    before, after = plan.weights.bytes_per_gpu, then.weights.bytes_per_gpu
    if after < before:
        why = f"weights of about {gib(after)} instead of {gib(before)} GiB per GPU: quantized while loading"
        yield Suggestion("--quantization", "fp8", why), then.settings.flags


def cache_bytes(plan: Plan) -> Iterator[Change]:
    """Suggest a cache size that holds one request."""
    flags = plan.settings.flags
    if flags.kv_cache_memory_bytes is None:
        return
    blocks, why = plan.pool.blocks_per_request(plan.settings.max_model_len) + 1, "one request"
    if plan.lacks_state_blocks and plan.settings.max_num_seqs > blocks:
        blocks, why = plan.settings.max_num_seqs, "each sequence's recurrent state"
    size = blocks * plan.pool.bytes_per_block
    if size > flags.kv_cache_memory_bytes:
        said = Suggestion("--kv-cache-memory-bytes", str(size), f"the need of {why}")
        yield said, replace(flags, kv_cache_memory_bytes=size)


def _other_splits(plan: Plan) -> Iterator[Suggestion]:
    flags, why = plan.settings.flags, refusal(plan)
    options: list[tuple[str, tuple[int, ...]]] = [
        ("tensor_parallel_size", tuple(sorted((1, *PARALLEL), key=lambda each: abs(each - flags.tensor_parallel_size)))),
        ("pipeline_parallel_size", (plan.model.num_layers, *reversed(STAGES))),
        ("data_parallel_size", tuple(range(min(flags.data_parallel_size, 64) - 1, 0, -1))),
        ("decode_context_parallel_size", (1,)),
        ("max_model_len", _accepted_lengths(plan)),
        ("max_num_seqs", (plan.settings.max_num_batched_tokens,)),
        ("max_num_batched_tokens", (flags.max_num_seqs or plan.settings.max_num_seqs,)),
    ]  # fmt: skip
    options.sort(key=lambda each: not why.startswith(f"--{each[0].replace('_', '-')} "))
    for name, values in options:
        for value in values:
            if name == "tensor_parallel_size" and (
                not shares_heads(plan, value) or plan.checkpoint.given_gib is not None
            ):
                continue
            if with_flags(plan, but(flags, name, value)).fits:
                yield Suggestion(f"--{name.replace('_', '-')}", str(value), why)


def _accepted_lengths(plan: Plan) -> tuple[int, ...]:
    accepted = accepted_length(plan.settings.flags, plan.model, plan.settings.max_model_len)
    return tuple(each for each in (accepted, plan.longest) if each >= _USEFUL_LENGTH)


def _waste(plan: Plan) -> Iterator[Suggestion]:
    settings, flags = plan.settings, plan.settings.flags
    blocks = plan.pool.blocks_per_request(settings.max_model_len) * settings.max_num_seqs
    spare = (plan.num_blocks - blocks) * plan.pool.bytes_per_block
    if flags.kv_cache_memory_bytes is not None or spare < _MUCH_WASTE_BYTES:
        return
    unused = f"{gib(spare)} GiB per GPU of KV cache can never be used by {settings.max_num_seqs} requests of {settings.max_model_len} tokens"
    lower = settings.gpu_memory_utilization - spare / plan.machine.memory_bytes
    rounded = -(-lower * _UTILIZATION_STEPS // 1) / _UTILIZATION_STEPS
    limit = min(plan.model.length_limit or 0, plan.longest)
    more = (
        ("gpu_memory_utilization", rounded, rounded < settings.gpu_memory_utilization, "leave it to others"),
        ("max_model_len", limit, limit > settings.max_model_len, "the model can read more"),
        ("max_num_seqs", int(plan.concurrency), True, "or serve more at once"),
    )  # fmt: skip
    for name, value, useful, said in more:
        if useful and value > 0 and with_flags(plan, but(flags, name, value)).fits:
            yield Suggestion(f"--{name.replace('_', '-')}", f"{value}", f"{unused}: {said}")


WAYS: tuple[Callable[[Plan], Iterator[Change]], ...] = (
    _utilization, cache_bytes, length_little, _batch, _sequences, _kv_dtype, _eager, length, _tensor_parallel, _weights,
)  # fmt: skip


def gib(size: float) -> str:
    """Return the size in GiB, with two decimals."""
    return f"{size / GIB:.2f}"


def as_json(found: tuple[Suggestion, ...]) -> list[dict[str, Any]]:
    """Return the published JSON."""
    return [{"flag": each.flag, "value": each.value, "why": each.why} for each in found]
