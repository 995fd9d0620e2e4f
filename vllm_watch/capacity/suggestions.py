"""What to change: the smallest flags that make it fit, best first; or what is wasted where it fits.

Every suggestion is tried: it is made only when the same plan with that flag fits. The order is by what
it costs who uses the engine: nothing, then a little quality or speed, then length, then hardware.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from vllm_watch.capacity.flags import Flags
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.plan import Checkpoint, Plan, make_plan, with_flags
from vllm_watch.capacity.quantization import find_quantization
from vllm_watch.capacity.units import GIB

UTILIZATION_MAX = (
    0.95  # above, CUDA graphs and fragmentation find no room: the usual OOM while serving
)
_UTILIZATION_STEPS = 100
_SEQUENCES = (128, 64, 32, 16, 8)
_SMALL_BATCH_TOKENS = 2048  # vLLM's own default on most cards
_PARALLEL = (2, 4, 8, 16)
_HARDLY_SHORTER = 0.75  # of the length that was asked for
_USEFUL_LENGTH = 1024  # tokens: a shorter context is no answer
_MUCH_WASTE_BYTES = GIB
_FOUR_BIT = ("--model", "(a 4-bit checkpoint of it)")
_FP8_WEIGHT_BYTES, _INT4_WEIGHT_BYTES = 1.0, 0.53


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One flag, its value, and why."""

    flag: str
    value: str
    why: str
    together: bool = False
    """Is it enough only with the others of which this is said?"""


_Change = tuple[Suggestion, Flags, Checkpoint | None]


def suggestions(plan: Plan) -> tuple[Suggestion, ...]:
    """Changes, best first."""
    if plan.fits:
        return tuple(_waste(plan))
    if plan.obstacle is not None or plan.gpus_needed > plan.machine.count:
        return (_other_split(plan),)
    found = [made for ways in _WAYS for made in ways(plan)]
    single = tuple(
        suggestion
        for suggestion, flags, checkpoint in found
        if with_flags(plan, flags, checkpoint).fits
    )
    if all(each.flag == "--max-model-len" for each in single):
        # Nothing else is enough alone; who needs the length wants to know what is, together.
        single += _together(plan, may_shorten=not single)
    more = tuple(_more_gpus(plan))
    if plan.kv_bytes <= 0 and more:  # the weights do not fit: whatever else is done costs quality
        return more + tuple(each for each in single if each.flag != more[0].flag)
    return single or more or (_larger(plan),)


def _together(plan: Plan, *, may_shorten: bool) -> tuple[Suggestion, ...]:
    """The cheap ones first and on until it fits; then what turned out to be needless is dropped."""
    taken: list[_Change] = []
    now = plan
    for ways in _WAYS:
        if ways in (_length, _length_little) and not may_shorten:
            continue
        options = list(ways(now))
        if not options:
            continue
        then = with_flags(now, options[-1][1], options[-1][2])  # the one that frees most
        if not (then.fits or _roomier(then, now)):
            continue
        taken.append(options[-1])
        now = then
        if now.fits:
            return _told_together(_needed_of(plan, taken))
    return ()


def _roomier(then: Plan, now: Plan) -> bool:
    return then.kv_bytes > now.kv_bytes or then.pool.bytes_per_block < now.pool.bytes_per_block


def _needed_of(plan: Plan, taken: list[_Change]) -> list[Suggestion]:
    """Those without which it does not fit. What changes the weights stays: the rest was made for it."""
    kept = list(taken)
    for change in taken:
        if change[2] is not None:
            continue
        fewer = [each for each in kept if each is not change]
        if fewer and _applied(plan, taken, fewer).fits:
            kept = fewer
    return [suggestion for suggestion, _, _ in kept]


def _applied(plan: Plan, taken: list[_Change], chosen: list[_Change]) -> Plan:
    """The plan with the changes of these only; in `taken` each builds on those before it."""
    flags, before, checkpoint = plan.settings.flags, plan.settings.flags, None
    for change in taken:
        changed = {
            each.name: getattr(change[1], each.name)
            for each in fields(Flags)
            if getattr(change[1], each.name) != getattr(before, each.name)
        }
        before = change[1]
        if change in chosen:
            flags, checkpoint = replace(flags, **changed), change[2] or checkpoint
    return with_flags(plan, flags, checkpoint)


def _told_together(found: list[Suggestion]) -> tuple[Suggestion, ...]:
    if len(found) == 1:
        return tuple(found)
    told = []
    for each in found:
        others = ", ".join(
            f"{other.flag} {other.value}".rstrip() for other in found if other is not each
        )
        told.append(replace(each, why=f"{each.why}; together with {others}", together=True))
    return tuple(told)


def _larger(plan: Plan) -> Suggestion:
    why = "no flag makes it fit: this much memory per GPU would"
    return Suggestion("--gpu-memory-gib", _gib(_needed(plan)), why)


def _needed(plan: Plan) -> int:
    """Memory per GPU with which it would fit under the same flags."""
    blocks = plan.pool.blocks_per_request(plan.settings.max_model_len) + 1
    missing = blocks * plan.pool.bytes_per_block - plan.kv_bytes
    return int(plan.machine.memory_bytes + missing / plan.settings.gpu_memory_utilization)


def _utilization(plan: Plan) -> Iterator[_Change]:
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
            more = _gib((value - now) * plan.machine.memory_bytes)
            yield (
                Suggestion("--gpu-memory-utilization", f"{value:g}", f"{more} GiB more of each GPU, if nothing else uses it"),
                then,
                None,
            )  # fmt: skip
            return


def _length_little(plan: Plan) -> Iterator[_Change]:
    """A context that is hardly shorter costs nobody much."""
    if plan.longest >= plan.settings.max_model_len * _HARDLY_SHORTER:
        yield from _shorter(plan)


def _length(plan: Plan) -> Iterator[_Change]:
    if plan.longest < plan.settings.max_model_len * _HARDLY_SHORTER:
        yield from _shorter(plan)


def _shorter(plan: Plan) -> Iterator[_Change]:
    """The longest that fits; found again, since a shorter limit may shrink the profiling batch."""
    flags, length = plan.settings.flags, plan.longest
    block = max(1, plan.pool.block_size)
    length = length // block * block or length
    if length < _USEFUL_LENGTH or length >= plan.settings.max_model_len:
        shorter = _longest_profiled(plan)
        if shorter is None:
            return
        length = shorter
    yield (
        Suggestion("--max-model-len", str(length), "the longest context that fits as it is"),
        replace(flags, max_model_len=length),
        None,
    )


def _longest_profiled(plan: Plan) -> int | None:
    """By halving, where the batch that is profiled grows with the length and leaves nothing."""
    length = plan.settings.max_model_len // 2
    while length >= _USEFUL_LENGTH:
        then = with_flags(plan, replace(plan.settings.flags, max_model_len=length))
        if then.fits:
            return length
        length //= 2
    return None


def _kv_dtype(plan: Plan) -> Iterator[_Change]:
    flags = plan.settings.flags
    if flags.kv_cache_dtype != "auto":
        return
    saved = 1 - 1 / dtype_bytes(plan.settings.dtype)
    why = f"each token takes {saved:.0%} less; needs a card and a kernel with fp8, and a check of the answers"
    yield Suggestion("--kv-cache-dtype", "fp8", why), replace(flags, kv_cache_dtype="fp8"), None


def _sequences(plan: Plan) -> Iterator[_Change]:
    flags, now = plan.settings.flags, plan.settings.max_num_seqs
    for count in _SEQUENCES:
        then = replace(flags, max_num_seqs=count)
        if count < now and (count == _SEQUENCES[-1] or with_flags(plan, then).fits):
            freed = plan.activation.peak_bytes - with_flags(plan, then).activation.peak_bytes
            yield (
                Suggestion(
                    "--max-num-seqs", str(count), f"the sampler's peak shrinks by {_gib(freed)} GiB"
                ),
                then,
                None,
            )
            return


def _batch(plan: Plan) -> Iterator[_Change]:
    flags = plan.settings.flags
    if plan.settings.max_num_batched_tokens <= _SMALL_BATCH_TOKENS or plan.settings.engine == "V0":
        return
    then = replace(flags, max_num_batched_tokens=_SMALL_BATCH_TOKENS)
    freed = plan.activation.peak_bytes - with_flags(plan, then).activation.peak_bytes
    if freed > 0:
        yield Suggestion("--max-num-batched-tokens", str(_SMALL_BATCH_TOKENS), f"the profiled batch shrinks by {_gib(freed)} GiB; long prompts take longer"), then, None  # fmt: skip


def _eager(plan: Plan) -> Iterator[_Change]:
    if plan.graph_bytes:
        why = f"no CUDA graphs: {_gib(plan.graph_bytes)} GiB, for slower decoding"
        yield (
            Suggestion("--enforce-eager", "", why),
            replace(plan.settings.flags, enforce_eager=True),
            None,
        )


def _tensor_parallel(plan: Plan) -> Iterator[_Change]:
    flags = plan.settings.flags
    for ranks in _ranks(plan):
        if ranks * flags.pipeline_parallel_size * flags.data_parallel_size > plan.machine.count:
            return
        then, checkpoint = _split(plan, ranks)
        if ranks == plan.machine.count or with_flags(plan, then, checkpoint).fits:
            why = f"weights and cache are split over {ranks} of the {plan.machine.count} GPUs"
            yield Suggestion("--tensor-parallel-size", str(ranks), why), then, checkpoint
            return


def _more_gpus(plan: Plan) -> Iterator[Suggestion]:
    """The least split over GPUs of this kind with which it fits, whether so many were named or not."""
    for ranks in _ranks(plan):
        flags, checkpoint = _split(plan, ranks)
        total = ranks * flags.pipeline_parallel_size * flags.data_parallel_size
        machine = replace(plan.machine, count=max(total, plan.machine.count))
        if make_plan(plan.model, flags, machine, checkpoint).fits:
            there = "" if total <= plan.machine.count else f" (planned for {plan.machine.count})"
            why = f"weights and cache are split over {total} such GPUs{there}"
            yield Suggestion("--tensor-parallel-size", str(ranks), why)
            return


def _ranks(plan: Plan) -> list[int]:
    """More ranks than now, over which the heads can be split: a head of keys and values may be copied, not cut."""
    heads, shared = plan.model.num_attention_heads, plan.model.num_key_value_heads
    return [
        ranks for ranks in _PARALLEL
        if ranks > plan.settings.flags.tensor_parallel_size and not heads % ranks and not max(ranks, shared) % min(ranks, shared)
    ]  # fmt: skip


def _split(plan: Plan, ranks: int) -> tuple[Flags, Checkpoint]:
    flags, given = plan.settings.flags, plan.checkpoint.given_gib
    ratio = flags.tensor_parallel_size / ranks
    checkpoint = replace(plan.checkpoint, given_gib=None if given is None else given * ratio)
    return replace(flags, tensor_parallel_size=ranks), checkpoint


def _weights(plan: Plan) -> Iterator[_Change]:
    """A quantized checkpoint of the same model, where this one is not quantized."""
    settings = plan.settings
    if find_quantization(settings.flags.quantization, plan.model.quantization).smallest:
        return
    ranks = settings.flags.tensor_parallel_size * settings.flags.pipeline_parallel_size
    for name, size in (("fp8", _FP8_WEIGHT_BYTES), ("awq", _INT4_WEIGHT_BYTES)):
        tables = (
            (1 if plan.model.tied_embeddings else 2)
            * plan.model.vocab_size
            * plan.model.hidden_size
        )
        table_bytes = tables * dtype_bytes(settings.dtype) // ranks
        matrices = max(0, plan.weights.bytes_per_gpu - table_bytes)
        smaller = table_bytes + matrices * size / dtype_bytes(settings.dtype)
        checkpoint = Checkpoint(given_gib=smaller / GIB)
        what = (
            "quantized while loading"
            if name == "fp8"
            else "serve one that somebody has quantized (AWQ, GPTQ); no flag makes it of this one"
        )
        why = f"weights of about {_gib(smaller)} instead of {_gib(plan.weights.bytes_per_gpu)} GiB per GPU: {what}"
        flags = replace(settings.flags, quantization=name)
        if name == "awq" or with_flags(plan, flags, checkpoint).fits:
            flag, value = ("--quantization", name) if name == "fp8" else _FOUR_BIT
            yield Suggestion(flag, value, why), flags, checkpoint
            return


def _other_split(plan: Plan) -> Suggestion:
    flags, heads = plan.settings.flags, plan.model.num_attention_heads
    why = (
        plan.obstacle
        or f"these flags want {plan.gpus_needed} GPUs and there are {plan.machine.count}"
    )
    if flags.pipeline_parallel_size > plan.model.num_layers:
        return Suggestion("--pipeline-parallel-size", str(plan.model.num_layers), why)
    if heads % flags.tensor_parallel_size == 0 and plan.obstacle:
        return Suggestion("--decode-context-parallel-size", "1", why)
    room = plan.machine.count // (flags.pipeline_parallel_size * flags.data_parallel_size)
    possible = [ranks for ranks in (1, *_PARALLEL) if ranks <= room and heads % ranks == 0]
    if not possible:
        return Suggestion("--pipeline-parallel-size", "1", why)
    return Suggestion("--tensor-parallel-size", str(possible[-1]), why)


def _waste(plan: Plan) -> Iterator[Suggestion]:
    """Where it fits too well: KV cache that no allowed number of requests can fill."""
    settings = plan.settings
    blocks = plan.pool.blocks_per_request(settings.max_model_len) * settings.max_num_seqs
    spare = (plan.num_blocks - blocks) * plan.pool.bytes_per_block
    if plan.settings.flags.kv_cache_memory_bytes is not None or spare < _MUCH_WASTE_BYTES:
        return
    unused = f"{_gib(spare)} GiB per GPU of KV cache can never be used by {settings.max_num_seqs} requests of {settings.max_model_len} tokens"
    lower = settings.gpu_memory_utilization - spare / plan.machine.memory_bytes
    rounded = -(-lower * _UTILIZATION_STEPS // 1) / _UTILIZATION_STEPS
    if rounded < settings.gpu_memory_utilization:
        yield Suggestion(
            "--gpu-memory-utilization", f"{rounded:g}", f"{unused}: leave it to others"
        )
    limit = plan.model.max_position_embeddings or 0
    if limit > settings.max_model_len:
        longer = min(limit, plan.longest)
        yield Suggestion("--max-model-len", str(longer), f"{unused}: the model can read more")
    yield Suggestion(
        "--max-num-seqs", str(int(plan.concurrency)), f"{unused}: or serve more at once"
    )


_WAYS: tuple[Callable[[Plan], Iterator[_Change]], ...] = (
    _utilization, _length_little, _batch, _sequences, _kv_dtype, _eager, _length, _tensor_parallel, _weights,
)  # fmt: skip


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


def as_json(found: tuple[Suggestion, ...]) -> list[dict[str, Any]]:
    """As the published JSON."""
    return [{"flag": each.flag, "value": each.value, "why": each.why} for each in found]
