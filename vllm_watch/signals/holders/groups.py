"""Compares the workers of one server across GPUs.

Tensor-parallel ranks hold equal memory and compute the same steps.
"""

from collections.abc import Sequence

from vllm_watch.signals.holders import roles
from vllm_watch.signals.holders.records import VLLM, GpuHolders, Holder
from vllm_watch.signals.holders.words import size

UNEVEN_BYTES_MIN = 2 * 2**30
UNEVEN_SHARE_MIN = 0.1
"""Ranks are uneven if their memory differs by at least this many bytes and at least this share.
Rank 0 gathers the logits, so differences of some hundred MiB are usual."""

BUSY_RATIO_MIN = 0.5
"""If all other ranks have at least this GPU load, a rank with load 0 takes no part in the steps."""

Member = tuple[GpuHolders, Holder]


def remarks(gpus: Sequence[GpuHolders]) -> tuple[str, ...]:
    """Return a sentence for each difference between ranks."""
    found: list[str] = []
    for members in _groups(gpus):
        found += _uneven(members)
        found += _idle(members)
    return tuple(found)


def _groups(gpus: Sequence[GpuHolders]) -> list[list[Member]]:
    """Data-parallel cores are not grouped, because they do not compute the same steps."""
    groups: dict[tuple[int, str | None], list[Member]] = {}
    for gpu in gpus:
        for holder in gpu.holders or ():
            process = holder.process
            alike = holder.role == roles.WORKER and holder.judged.verdict == VLLM
            if alike and process.ppid is not None and gpu.gpu.mig_parent_uuid is None:
                groups.setdefault((process.ppid, process.cgroup), []).append((gpu, holder))
    return [
        members
        for members in groups.values()
        if len(members) > 1 and len({gpu.gpu.uuid for gpu, _ in members}) == len(members)
    ]


def _uneven(members: Sequence[Member]) -> list[str]:
    held = [(holder.process.used_bytes, gpu.gpu.index) for gpu, holder in members]
    known = [(used, index) for used, index in held if used is not None]
    if len(known) < len(members):
        return []
    (least, where), (most, _) = min(known), max(known)
    if most - least < max(UNEVEN_BYTES_MIN, UNEVEN_SHARE_MIN * most):
        return []
    return [
        f"GPU {where} holds {size(least)} of its group, another {size(most)}: "
        "the ranks load at different speeds, or got unequal shares"
    ]


def _idle(members: Sequence[Member]) -> list[str]:
    loads = [(gpu.gpu.utilization_ratio, gpu.gpu.index) for gpu, _ in members]
    known = sorted((ratio, index) for ratio, index in loads if ratio is not None)
    if len(known) < len(members) or known[0][0] > 0 or known[1][0] < BUSY_RATIO_MIN:
        return []
    return [
        f"GPU {known[0][1]} is at 0 % while the {len(known) - 1} others of its group compute: "
        "its rank does not take part"
    ]
