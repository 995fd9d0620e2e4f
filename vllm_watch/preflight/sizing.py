"""Find the GPUs that vLLM would use, and plan their memory. Rank n takes the nth visible GPU.

Source: CUDA's rules for CUDA_VISIBLE_DEVICES.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import ALLOW_LONG, Flags, accepted_length, default_utilization
from vllm_watch.capacity.gpus import find_gpu
from vllm_watch.capacity.plan import Checkpoint, Machine, Plan, make_plan
from vllm_watch.capacity.release import NEWEST, Release
from vllm_watch.capacity.units import GIB
from vllm_watch.errors import WatchError
from vllm_watch.preflight.command import is_whole
from vllm_watch.preflight.facts import REMOTE, Facts
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.signals.holders.records import GpuHolders

VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Visible:
    """GPUs visible to vLLM, in CUDA's order."""

    gpus: tuple[GpuHolders, ...]
    hidden: int  # GPUs hidden by the variable
    not_there: str | None = None  # the first entry that is not a GPU


def visible(facts: Facts) -> Visible:
    """Return the GPUs in CUDA's order. Requires `facts.gpus`."""
    every = _countable(facts.gpus or ())
    named = facts.command.environment.get(VARIABLE)
    found, wrong = (every, None) if named is None else _chosen(every, named)
    ids = facts.command.text("device-ids")
    if ids:
        found, wrong = _by_position(found, ids)
    return Visible(tuple(found), len(every) - len(found), wrong)


def ranks_here(facts: Facts) -> int:
    """Return the number of GPUs that vLLM takes on this host."""
    command = facts.command
    world = math.prod(
        max(1, command.whole(name, 1))
        for name in (
            "tensor-parallel-size", "pipeline-parallel-size", "prefill-context-parallel-size",
        )
    )  # fmt: skip
    nodes = max(1, command.whole("nnodes", 1))
    replicas = max(1, command.whole("data-parallel-size", 1))
    if command.text("data-parallel-rank") is not None:
        replicas = 1  # a single rank, started separately
    replicas = command.whole("data-parallel-size-local", replicas)
    return math.ceil(world / nodes) * max(1, replicas)


def taken(facts: Facts) -> tuple[GpuHolders, ...]:
    """Return the visible GPUs that vLLM takes, at most one for each rank."""
    if facts.software.device not in (None, "cuda"):
        return ()
    return visible(facts).gpus[: ranks_here(facts)]


def order_unknown(facts: Facts) -> bool:
    """Return True if CUDA may number the GPUs differently from the driver."""
    names = {each.gpu.name for each in _countable(facts.gpus or ())}
    return len(names) > 1 and facts.command.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _countable(gpus: Sequence[GpuHolders]) -> list[GpuHolders]:
    # CUDA offers the slices of a MIG GPU, but not the GPU itself.
    sliced = {each.gpu.mig_parent_uuid for each in gpus}
    return [each for each in gpus if each.gpu.uuid not in sliced]


def _chosen(gpus: list[GpuHolders], named: str) -> tuple[list[GpuHolders], str | None]:
    found: list[GpuHolders] = []
    for raw in named.split(","):
        word = raw.strip()
        if not word and not found:
            return [], None  # set but empty: no GPU
        if is_whole(word):
            match = gpus[int(word) :][:1]
        else:
            match = [
                each for each in gpus if word and each.gpu.uuid.lower().startswith(word.lower())
            ]
        if len(match) != 1:
            return found, word if word not in ("-1", "NoDevFiles") else None
        found += match
    return found, None


def _by_position(gpus: list[GpuHolders], ids: str) -> tuple[list[GpuHolders], str | None]:
    found: list[GpuHolders] = []
    for raw in ids.replace(" ", ",").split(","):
        word = raw.strip()
        if not is_whole(word) or int(word) >= len(gpus):
            return found, word
        found.append(gpus[int(word)])
    return found, None


CHECKS_FREE_MEMORY = Release(0, 9, 1)
"""Since this release, V1 refuses to start with too little free memory. Other engines start with a smaller KV cache. Source: vLLM's request_memory."""

_UNIFIED = ("gb10", "orin", "thor", "jetson")
"""GPUs that share the host's memory. CUDA does not count reclaimable memory as free."""


def release(facts: Facts) -> Release:
    """Return the installed release, or the newest known one."""
    return facts.release or NEWEST


def refuses(facts: Facts) -> bool:
    """Return True if vLLM refuses to start without enough free memory."""
    old = (
        facts.command.environment.get("VLLM_USE_V1") == "0" and release(facts) < releases.V0_IS_GONE
    )
    return release(facts) >= CHECKS_FREE_MEMORY and not old


def offered_bytes(gpu: GpuSample) -> int | None:
    """Return the memory that the driver leaves to CUDA."""
    if gpu.memory_total_bytes is None:
        return None
    return gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0)


def free_bytes(gpu: GpuSample) -> int | None:
    """Return the unused part of `offered_bytes`."""
    offered = offered_bytes(gpu)
    if offered is None or gpu.memory_used_bytes is None:
        return None
    return max(0, offered - gpu.memory_used_bytes)


def is_unified(gpu: GpuSample) -> bool:
    """Return True if the GPU shares the host's memory."""
    return any(word in (gpu.name or "").lower() for word in _UNIFIED)


def utilization(facts: Facts) -> float | None:
    """Return --gpu-memory-utilization, or None if invalid."""
    given = facts.command.number("gpu-memory-utilization")
    if given is not None or facts.command.text("gpu-memory-utilization") is not None:
        return given if given is not None and 0 < given <= 1 else None
    return default_utilization(release(facts))


def plan(facts: Facts, *, share: float | None = None) -> Plan | None:
    """Return the plan for the smallest used GPU, or None if an input is unknown."""
    gpus = taken(facts)
    sized = [(size, each.gpu) for each in gpus if (size := offered_bytes(each.gpu))]
    if facts.model is None or facts.flags is None or not sized or len(sized) < len(gpus):
        return None
    if facts.files is not None and facts.files.kind == REMOTE:
        return None
    total, gpu = min(sized, key=lambda each: each[0])
    flags = facts.flags
    share = utilization(facts) if share is None else share
    if share is None:
        return None
    if not refuses(facts):
        share -= max(each.gpu.memory_used_bytes or 0 for each in gpus) / total
    flags = _with_accepted_length(facts, replace(flags, gpu_memory_utilization=max(share, 1e-6)))
    # Assume a GPU for each rank. Another check counts them.
    ranks = flags.tensor_parallel_size * flags.pipeline_parallel_size * flags.data_parallel_size
    count = max(ranks, len(visible(facts).gpus))
    source = f"{gpu.name or 'this GPU'}: {total / GIB:.2f} GiB as NVML reports it"
    machine = Machine(total, source, find_gpu(gpu.name, total / GIB), gpu.name, count)
    checkpoint = Checkpoint(bytes_total=facts.checkpoint.bytes_total)
    try:
        return make_plan(facts.model, flags, machine, checkpoint)
    except WatchError:
        return None  # another check reports it


def _with_accepted_length(facts: Facts, flags: Flags) -> Flags:
    # another check refuses the length
    given, asked = facts.command.flags, facts.command.environment.get(ALLOW_LONG)
    if asked in ("1", "true") or "hf-overrides" in given or "rope-scaling" in given:
        return replace(flags, allow_long=True)
    if facts.model is None or flags.max_model_len is None:
        return flags
    return replace(flags, max_model_len=accepted_length(flags, facts.model, flags.max_model_len))
