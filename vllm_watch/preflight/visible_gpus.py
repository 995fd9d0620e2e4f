"""Find the GPUs that vLLM would use. Rank n takes the nth visible GPU. Source: CUDA's rules for CUDA_VISIBLE_DEVICES."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.preflight.command import is_whole
from vllm_watch.preflight.facts import Facts
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
        match = [each for each in gpus if _is(each, word, gpus)]
        if len(match) != 1:
            return found, word if word not in ("-1", "NoDevFiles") else None
        found += match
    return found, None


def _is(judged: GpuHolders, word: str, gpus: list[GpuHolders]) -> bool:
    if is_whole(word):
        return gpus.index(judged) == int(word)
    return bool(word) and judged.gpu.uuid.lower().startswith(word.lower())


def _by_position(gpus: list[GpuHolders], ids: str) -> tuple[list[GpuHolders], str | None]:
    found: list[GpuHolders] = []
    for raw in ids.replace(" ", ",").split(","):
        word = raw.strip()
        if not is_whole(word) or int(word) >= len(gpus):
            return found, word
        found.append(gpus[int(word)])
    return found, None
