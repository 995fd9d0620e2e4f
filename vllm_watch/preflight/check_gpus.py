"""Check that all ranks have a GPU with enough free memory, the same number of attention heads, and that the model fits."""

import math
from collections.abc import Iterator

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.suggestions import UTILIZATION_MAX, Suggestion, other_ways, suggestions
from vllm_watch.capacity.units import GIB
from vllm_watch.preflight import sizing
from vllm_watch.preflight.facts import OK, PROBLEM, UNKNOWN, WARNING, Facts, Finding, Fix
from vllm_watch.preflight.sizing import (
    VARIABLE,
    Visible,
    free_bytes,
    offered_bytes,
    order_unknown,
    ranks_here,
    taken,
    visible,
)
from vllm_watch.signals.holders.records import STALE, GpuHolders, Holder
from vllm_watch.signals.holders.track import DEAD_STATES
from vllm_watch.support.quantities import seconds

_RANKS = (1, 2, 4, 8, 16)


def check_gpus(facts: Facts) -> Iterator[Finding]:
    """Compare TP × PP × DP with the GPUs visible to vLLM."""
    if facts.software.device not in (None, "cuda"):
        yield Finding("gpus", UNKNOWN, f"this vLLM is built for {facts.software.device}: NVIDIA's GPUs are not checked")  # fmt: skip
        return
    if facts.gpus is None or not facts.gpus:
        yield _none(facts)
        return
    seen, needed = visible(facts), ranks_here(facts)
    lost = [each.gpu for each in seen.gpus[:needed] if each.gpu.lost]
    if seen.not_there is not None:
        yield _not_there(facts, seen)
    elif len(seen.gpus) < needed:
        yield _too_few(facts, seen, needed)
    elif lost:
        yield Finding(
            "gpus", PROBLEM, f"GPU {lost[0].index} ({lost[0].name or 'name unknown'}) fell off the bus: CUDA fails on it until it is reset",
            "gpu_lost", (Fix("reset it, or reboot the host", f"nvidia-smi --gpu-reset -i {lost[0].index}"),),
        )  # fmt: skip
    else:
        yield Finding("gpus", OK, f"{_product(facts)} wants {needed} {_gpus(needed)}, {len(seen.gpus)} visible")  # fmt: skip
    if order_unknown(facts) and len(seen.gpus) < len(facts.gpus):
        yield Finding(
            "gpus", WARNING, f"the cards differ, so CUDA counts the fastest first and {VARIABLE} may mean others than nvidia-smi shows",
            "gpu_order", (Fix("count as nvidia-smi does", "export CUDA_DEVICE_ORDER=PCI_BUS_ID"),),
        )  # fmt: skip


def check_heads(facts: Facts) -> Iterator[Finding]:
    """Check that the attention heads can be divided among the ranks."""
    model, ranks = facts.model, facts.command.whole("tensor-parallel-size", 1)
    if model is None or ranks <= 1:
        return
    heads = model.num_attention_heads
    if heads % ranks == 0:
        yield Finding("heads", OK, f"{heads} attention heads, {heads // ranks} to each of {ranks} ranks")  # fmt: skip
        return
    below = max(each for each in range(1, min(ranks, heads + 1)) if heads % each == 0)
    above = next((each for each in _RANKS if each > ranks and heads % each == 0), None)
    fixes = [Fix(f"{heads // below} heads to each", facts.command.shown(tensor_parallel_size=str(below)))]  # fmt: skip
    if above is not None:
        fixes.append(Fix(f"{heads // above} heads to each, on {above} GPUs", facts.command.shown(tensor_parallel_size=str(above))))  # fmt: skip
    yield Finding(
        "heads", PROBLEM, f"--tensor-parallel-size {ranks} does not divide the model's {heads} attention heads",
        "tp_not_dividing_heads", tuple(fixes),
    )  # fmt: skip


def _none(facts: Facts) -> Finding:
    text = facts.gpus_text or "the driver lists no GPU"
    if facts.gpus is None or facts.software.device is None:
        return Finding("gpus", UNKNOWN, f"the GPUs cannot be read: {text}")
    return Finding(
        "gpus", PROBLEM, f"vLLM {facts.software.vllm or ''} for CUDA wants {ranks_here(facts)} {_gpus(ranks_here(facts))}, none is here: {text}".replace("  ", " "),
        "no_gpu", (
            Fix("see whether the driver works", "nvidia-smi"),
            Fix("give the container its GPUs", "docker run --gpus all …, in Kubernetes resources.limits: nvidia.com/gpu"),
        ),
    )  # fmt: skip


def _not_there(facts: Facts, seen: Visible) -> Finding:
    every = len(seen.gpus) + seen.hidden
    named = facts.command.text("device-ids") or facts.command.environment.get(VARIABLE, "")
    variable = "--device-ids" if facts.command.text("device-ids") else VARIABLE
    return Finding(
        "gpus", PROBLEM, f"{variable}={named} names '{seen.not_there}', and this host has {every} {_gpus(every)}: CUDA ignores it and all after it",
        "gpu_not_there", (Fix("see their numbers and UUIDs", "nvidia-smi -L"),),
    )  # fmt: skip


def _too_few(facts: Facts, seen: Visible, needed: int) -> Finding:
    command, count = facts.command, len(seen.gpus)
    text = f"{_product(facts)} wants {needed} GPUs, {count} {'is' if count == 1 else 'are'} visible"
    if "ray" in (command.text("distributed-executor-backend"), command.text("data-parallel-backend")):  # fmt: skip
        return Finding("gpus", UNKNOWN, f"{text} here; Ray may have others, on other hosts")
    fixes = []
    if count + seen.hidden >= needed:
        text += f": {VARIABLE}={command.environment.get(VARIABLE)} hides {seen.hidden} more"
        numbers = ",".join(map(str, range(needed)))
        fixes.append(Fix("show vLLM enough of them", command.shown({VARIABLE: numbers})))  # fmt: skip
    smaller = _smaller(facts, count)
    if smaller is not None:
        fixes.append(Fix(f"share each layer among {smaller}", command.shown(tensor_parallel_size=str(smaller))))  # fmt: skip
    if not fixes:
        fixes.append(Fix("give the container more GPUs, or lower the parallel sizes", None))
    return Finding("gpus", PROBLEM, text, "tp_exceeds_gpus", tuple(fixes))


def _smaller(facts: Facts, count: int) -> int | None:
    ranks = facts.command.whole("tensor-parallel-size", 1)
    others = ranks_here(facts) // max(1, ranks)
    heads = facts.model.num_attention_heads if facts.model else None
    for each in reversed(_RANKS):
        if each < ranks and each * others <= count and (heads is None or heads % each == 0):
            return each
    return None


def _product(facts: Facts) -> str:
    parts = (("TP", "tensor-parallel-size"), ("PP", "pipeline-parallel-size"), ("DP", "data-parallel-size"))  # fmt: skip
    said = [(word, facts.command.whole(name, 1)) for word, name in parts]
    return " × ".join(f"{word} {size}" for word, size in said if size > 1 or word == "TP")


def _gpus(count: int) -> str:
    return "GPU" if count == 1 else "GPUs"


CONTEXT_BYTES = GIB // 2
"""Bytes of the CUDA context, which vLLM creates before it reads free memory. The context takes 0.3 to 0.6 GiB."""

UNSURE_RATIO = 0.02
"""Error of the plan, as a share of the GPU's memory. If less than this is missing, the launch is not stopped. Source: public start-up logs."""

_HOLDERS_NAMED = 3
_UTILIZATION_LEAST = 0.05  # with less, no model fits
_STEPS = 100


def wanted_bytes(facts: Facts, judged: GpuHolders) -> int | None:
    """Return the free memory that vLLM requires to start, or None if unknown."""
    share, offered = sizing.utilization(facts), offered_bytes(judged.gpu)
    return None if share is None or offered is None else math.ceil(offered * share)


def memory_missing(facts: Facts) -> str:
    """Describe the GPUs with too little free memory, or return ""."""
    if not facts.gpus or len(taken(facts)) < ranks_here(facts):
        return ""
    short = []
    for judged in taken(facts):
        wanted, free = wanted_bytes(facts, judged), free_bytes(judged.gpu)
        if wanted is None or free is None or sizing.is_unified(judged.gpu):
            continue
        tight = free - wanted < CONTEXT_BYTES and bool(judged.holders)
        if free < wanted or tight:
            short.append(f"GPU {judged.gpu.index}: {_gib(free)} GiB are free, {_gib(wanted)} wanted{_held_by(facts, judged)}")  # fmt: skip
    return "; ".join(short)


def check_memory(facts: Facts) -> Iterator[Finding]:
    """Check each GPU's free memory as vLLM does at start."""
    gpus = taken(facts) if facts.gpus else ()
    refuses = sizing.refuses(facts)
    fine: list[GpuHolders] = []
    for judged in gpus:
        gpu, wanted, free = judged.gpu, wanted_bytes(facts, judged), free_bytes(judged.gpu)
        if gpu.lost:
            continue
        if wanted is None or free is None:
            yield Finding("memory", UNKNOWN, f"GPU {gpu.index}: the driver does not report its free memory")  # fmt: skip
        elif sizing.is_unified(gpu) and free < wanted:
            yield Finding("memory", UNKNOWN, f"GPU {gpu.index} shares the host's memory: of {_gib(free)} GiB free for {_gib(wanted)} wanted, the kernel may give back more")  # fmt: skip
        elif free < wanted and refuses:
            yield _short(facts, judged, wanted, free)
        elif free < wanted:
            yield Finding(
                "memory", WARNING, f"GPU {gpu.index}: {_gib(free)} of {_gib(offered_bytes(gpu))} GiB are free, the rest is taken from vLLM {sizing.release(facts)}'s KV cache{_held_by(facts, judged)}",
                "gpu_occupied", _freeing(judged, wanted),
            )  # fmt: skip
        elif free - wanted < CONTEXT_BYTES and refuses:
            yield Finding(
                "memory", WARNING, f"GPU {gpu.index}: {_gib(free)} GiB are free, only {(free - wanted) / 2**20:.0f} MiB more than vLLM asks for, and its own CUDA context takes 300 to 600 MiB before it checks{_held_by(facts, judged)}",
                "memory_tight", tuple(_lower(facts, free)),
            )  # fmt: skip
        else:
            fine.append(judged)
    if fine:
        yield _enough(facts, fine)


def check_fits(facts: Facts) -> Iterator[Finding]:
    """Compare weights, activations and one request of max_model_len with vLLM's budget."""
    if facts.flags_error is not None or not facts.gpus or not taken(facts):
        return
    plan = sizing.plan(facts)
    if plan is None:
        yield Finding("fits", UNKNOWN, f"whether it fits is unknown: {_why_no_plan(facts)}")
        return
    length, on = plan.settings.max_model_len, _on(facts)
    if plan.fits:
        yield Finding("fits", OK, f"about {_gib(plan.weights.bytes_per_gpu)} GiB of weights per GPU, {plan.tokens:,} tokens of KV cache, {plan.concurrency:.1f} requests of {length:,} tokens at once")  # fmt: skip
        return
    if plan.obstacle is not None:
        text = plan.obstacle
    elif plan.lacks_state_blocks and plan.kv_bytes > 0:
        text = f"{plan.settings.max_num_seqs} sequences (--max-num-seqs) each need a block for their recurrent state, and {plan.num_blocks} blocks fit {on}"
    elif plan.kv_bytes <= 0:
        text = f"{_gib(plan.weights.bytes_per_gpu)} GiB of weights and {_gib(plan.activation.peak_bytes + plan.graph_bytes + plan.non_torch_bytes)} beside them do not fit into the {_gib(plan.budget_bytes)} GiB that vLLM may take {on}"
    else:
        need = plan.pool.blocks_per_request(length) * plan.pool.bytes_per_block
        text = f"one request of {length:,} tokens needs {_gib(need)} GiB of KV cache, {_gib(plan.kv_bytes)} GiB are left {on}; {plan.longest:,} tokens would fit"
    found = suggestions(plan)
    fixes = [_suggested(facts, each) for each in found]
    fixes += [Fix(f"{each.change} ({each.why})") for each in other_ways(plan, found)]
    cause = "oom_loading_weights" if plan.kv_bytes <= 0 else "kv_cache_too_small"
    status = PROBLEM
    near = sizing.plan(facts, share=plan.settings.gpu_memory_utilization + UNSURE_RATIO)
    if near is not None and near.fits:
        status, text = WARNING, f"{text}. That is within the error of the estimate"
    yield Finding("fits", status, text, cause, tuple(fixes) or (Fix("take a larger GPU, or a quantized checkpoint"),))  # fmt: skip


def _suggested(facts: Facts, suggestion: Suggestion) -> Fix:
    name = suggestion.flag.removeprefix("--").replace("-", "_")
    return Fix(suggestion.why, facts.command.shown(**{name: suggestion.value}))


def _short(facts: Facts, judged: GpuHolders, wanted: int, free: int) -> Finding:
    gpu, share = judged.gpu, sizing.utilization(facts)
    text = f"GPU {gpu.index}: {_gib(free)} of {_gib(offered_bytes(gpu))} GiB are free, --gpu-memory-utilization {share:g} asks for {_gib(wanted)}{_held_by(facts, judged)}"
    fixes = (*_freeing(judged, wanted), *_lower(facts, free), *_elsewhere(facts))
    waits = Fix("wait for ending processes", f"vllm-watch preflight --exec --wait-for-vram 120 -- {facts.command.shown()}")  # fmt: skip
    return Finding("memory", PROBLEM, text, "gpu_occupied", (*fixes, waits))


def _held_by(facts: Facts, judged: GpuHolders) -> str:
    named = [
        _who(each, facts.commands.get(each.process.pid))
        for each in (judged.holders or ())[:_HOLDERS_NAMED]
    ]
    more = len(judged.holders or ()) - len(named)
    if more > 0:
        named.append(f"{more} more")
    if not named and judged.gpu.memory_used_bytes:
        return f"; who holds {_gib(judged.gpu.memory_used_bytes)} GiB is not seen from here"
    return f"; held by {', '.join(named)}" if named else ""


def _who(holder: Holder, command: str | None) -> str:
    process, judged = holder.process, holder.judged
    held = "" if process.used_bytes is None else f" with {_gib(process.used_bytes)} GiB"
    reason = f": {judged.reason}" if judged.verdict == STALE and judged.reason else ""
    age = "" if holder.age_seconds is None else f", {seconds(holder.age_seconds)} old"
    name = command or process.name or "name unknown"
    return f"process {process.pid} '{name}'{held} ({judged.verdict}{reason}{age})"


def _freeing(judged: GpuHolders, wanted: int) -> tuple[Fix, ...]:
    stale = judged.stale
    free = free_bytes(judged.gpu) or 0
    if not stale or free + sum(each.process.used_bytes or 0 for each in stale) < wanted:
        return ()
    return tuple(_ended(each) for each in stale)


def _ended(holder: Holder) -> Fix:
    pid, reason = holder.process.pid, holder.judged.reason
    if holder.process.state is None or holder.process.state in DEAD_STATES:
        return Fix(f"process {pid} has ended already ({reason}): {holder.judged.remedy}")
    return Fix(f"end process {pid}, which is stale ({reason})", f"vllm-watch gpus --reclaim {pid}")


def _lower(facts: Facts, free: int) -> Iterator[Fix]:
    offered = [size for each in taken(facts) if (size := offered_bytes(each.gpu))]
    least = min((left for each in taken(facts) if (left := free_bytes(each.gpu)) is not None), default=free)  # fmt: skip
    share = math.floor((least - CONTEXT_BYTES) / max(offered) * _STEPS) / _STEPS if offered else 0.0
    if not _UTILIZATION_LEAST <= share <= UTILIZATION_MAX:
        return
    plan = sizing.plan(facts, share=share)
    if plan is not None and plan.fits:
        yield Fix(
            f"leave the rest to its holder: {plan.tokens:,} tokens of KV cache fit", facts.command.shown(gpu_memory_utilization=f"{share:g}"),
        )  # fmt: skip
    elif plan is not None and plan.longest >= _USEFUL_TOKENS and plan.kv_bytes > 0:
        yield Fix(
            f"leave the rest to its holder, with requests of {plan.longest:,} tokens at most",
            facts.command.shown(gpu_memory_utilization=f"{share:g}", max_model_len=str(plan.longest)),
        )  # fmt: skip


_USEFUL_TOKENS = 1024


def _elsewhere(facts: Facts) -> Iterator[Fix]:
    every = [each for each in facts.gpus or () if not each.gpu.lost]
    good = [
        each
        for each in every
        if (free := free_bytes(each.gpu)) and free >= (wanted_bytes(facts, each) or 0)
    ]
    needed = ranks_here(facts)
    if len(good) >= needed and len(every) > len(taken(facts)):
        numbers = ",".join(str(each.gpu.index) for each in good[:needed])
        if not any(each.gpu.mig_parent_uuid for each in good):
            yield Fix("use GPUs that are free", facts.command.shown({VARIABLE: numbers}))  # fmt: skip


def _enough(facts: Facts, gpus: list[GpuHolders]) -> Finding:
    least = min(gpus, key=lambda each: free_bytes(each.gpu) or 0)
    numbers = ", ".join(str(each.gpu.index) for each in gpus)
    wanted = wanted_bytes(facts, least)
    which = f"GPU {numbers}" if len(gpus) == 1 else f"GPUs {numbers}: at least"
    return Finding("memory", OK, f"{which}{':' if len(gpus) == 1 else ''} {_gib(free_bytes(least.gpu))} GiB free, {_gib(wanted)} wanted")  # fmt: skip


def _why_no_plan(facts: Facts) -> str:
    if facts.model is None:
        return facts.model_error or "the model's config is not here"
    if facts.files is not None and facts.files.kind == "remote":
        return "the model's files cannot be read here"
    if facts.model.unread_cache is not None:
        return f"the model keeps its tokens compressed ({facts.model.unread_cache}), and its size in vLLM is not known here"
    if sizing.release(facts) < releases.OLDEST:
        return f"vLLM {sizing.release(facts)} is older than the planner knows ({releases.OLDEST})"
    if any(offered_bytes(each.gpu) is None for each in visible(facts).gpus):
        return "the driver does not report a GPU's size"
    return "the flags do not go together"


def _on(facts: Facts) -> str:
    names = {each.gpu.name or "this GPU" for each in taken(facts)}
    return f"of {' and '.join(sorted(names))} at --gpu-memory-utilization {sizing.utilization(facts):g}"


def _gib(size: float | None) -> str:
    return "?" if size is None else f"{size / GIB:.2f}"
