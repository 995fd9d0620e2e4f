"""Which GPUs vLLM would see, and which of them it would take.

Source: CUDA's rules for CUDA_VISIBLE_DEVICES (indexes, UUIDs or their beginnings; what follows the first
that is not valid does not count), and vLLM's: rank n takes the nth visible GPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.preflight.command import is_whole
from vllm_watch.preflight.facts import Facts
from vllm_watch.signals.holders.records import GpuHolders

VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Visible:
    """What vLLM would see, in its order."""

    gpus: tuple[GpuHolders, ...]
    hidden: int  # GPUs of this host that the variable hides
    not_there: str | None = None  # the first word of the variable that names no GPU


def visible(facts: Facts) -> Visible:
    """The GPUs in CUDA's order. Call with `facts.gpus` known."""
    every = _countable(facts.gpus or ())
    named = facts.command.environment.get(VARIABLE)
    found, wrong = (every, None) if named is None else _chosen(every, named)
    ids = facts.command.text("device-ids")
    if ids:
        found, wrong = _by_position(found, ids)
    return Visible(tuple(found), len(every) - len(found), wrong)


def ranks_here(facts: Facts) -> int:
    """GPUs that vLLM takes on this host."""
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
        replicas = 1  # one of them, started by itself
    replicas = command.whole("data-parallel-size-local", replicas)
    return math.ceil(world / nodes) * max(1, replicas)


def taken(facts: Facts) -> tuple[GpuHolders, ...]:
    """The GPUs that would be used; fewer than wanted where there are fewer, none by a vLLM for something else."""
    if facts.software.device not in (None, "cuda"):
        return ()
    return visible(facts).gpus[: ranks_here(facts)]


def order_unknown(facts: Facts) -> bool:
    """Where cards differ, CUDA puts the fastest first unless it is told otherwise; the driver does not."""
    names = {each.gpu.name for each in _countable(facts.gpus or ())}
    return len(names) > 1 and facts.command.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _countable(gpus: Sequence[GpuHolders]) -> list[GpuHolders]:
    """Without the cards whose slices are listed: CUDA offers the slices."""
    sliced = {each.gpu.mig_parent_uuid for each in gpus}
    return [each for each in gpus if each.gpu.uuid not in sliced]


def _chosen(gpus: list[GpuHolders], named: str) -> tuple[list[GpuHolders], str | None]:
    found: list[GpuHolders] = []
    for raw in named.split(","):
        word = raw.strip()
        if not word and not found:
            return [], None  # set and empty: no GPU at all
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
