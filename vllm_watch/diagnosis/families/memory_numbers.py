"""What the numbers in an out-of-memory message say: what would have fitted, and who has the rest."""

import math
import re

from vllm_watch.diagnosis.numbers import DECIMAL, GROUPED, whole
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Facts, Told

BLOCK_TOKENS = 16
"""Lengths are advised in whole blocks; 16 tokens is vLLM's usual block on GPUs."""

UTILIZATION_MAX = 0.95
"""The rest is the driver's, NCCL's and the graphs'; above it starts fail with out-of-memory errors."""

UTILIZATION_MARGIN = 0.01
"""What is free at one moment is not quite free at the next."""

_LENGTH = re.compile(rf"max seq len\s*\(?({GROUPED})")
_GIB = re.compile(
    rf"\(?({DECIMAL}) Gi?B KV\s+cache is needed.{{0,80}}?memory\s*\(({DECIMAL}) Gi?B", re.DOTALL
)
_ESTIMATE = re.compile(rf"estimated maximum model length is\s*({GROUPED})")
_STORED = re.compile(rf"stored in KV\s+cache\s*\(({GROUPED})")
_FREE = re.compile(
    rf"memory on (?:device|node)\s{{0,4}}\S{{0,40}}\s{{0,4}}\(({DECIMAL})/({DECIMAL}) GiB\).{{0,60}}?utilization \(({DECIMAL}), ({DECIMAL}) GiB",
    re.DOTALL,
)
_TRIED = re.compile(rf"[Tt]ried to allocate ({DECIMAL} [KMG]i?B)")
_CAPACITY = re.compile(rf"total capacity of ({DECIMAL}) GiB|({DECIMAL}) GiB total capacity")
_LEFT = re.compile(rf"of which ({DECIMAL} [KMG]i?B) is free|({DECIMAL} [KMG]i?B) free")


def kv_too_small(text: str, facts: Facts) -> Told:
    """The largest context that would have fitted, and the share of the GPU that this one needs."""
    length = _LENGTH.search(text)
    wanted = whole(length[1]) if length else None
    gib = _GIB.search(text)
    fits = None
    if found := _ESTIMATE.search(text) or _STORED.search(text):
        fits = whole(found[1])
    elif gib and wanted and float(gib[1]) > 0:
        fits = int(wanted * float(gib[2]) / float(gib[1]))
    said, fixes = [], []
    if gib:
        context = f"{wanted:,} tokens" if wanted else "The full context"
        said.append(f"{context} need {gib[1]} GiB of KV cache; {gib[2]} GiB are left.")
    if fits and fits >= BLOCK_TOKENS:
        fits -= fits % BLOCK_TOKENS
        said.append(f"About {fits:,} tokens would have fitted.")
        fixes.append(Fix("allow no longer requests than fit", f"--max-model-len {fits}"))
    if gib and (share := _share(float(gib[1]) - float(gib[2]), facts)):
        fixes.append(
            Fix("or give vLLM the missing share of the GPU", f"--gpu-memory-utilization {share}")
        )
    return Told(" ".join(said), fixes)


def _share(missing_gib: float, facts: Facts) -> float | None:
    """The utilization that would add so much, where this log says enough to know it."""
    total, share = facts.get("gpu_memory_total_gib"), facts.get("gpu_memory_utilization")
    if not isinstance(total, (int, float)) or not isinstance(share, (int, float)) or total < 1:
        return None
    # Rounded up to a hundredth: less would not do. (The inner rounding takes binary fractions' dust away.)
    needed = math.ceil(round((share + missing_gib / total) * 100, 6)) / 100
    return needed if share < needed <= UTILIZATION_MAX else None


def occupied(text: str, facts: Facts) -> Told:
    """How much was free, how much was asked for, and the largest share that was to be had."""
    found = _FREE.search(text)
    if not found:
        return Told()
    free, total, share, wanted = (float(each) for each in found.groups())
    said = f"{free:g} of {total:g} GiB were free; a share of {share:g} is {wanted:g} GiB."
    possible = (free / total - UTILIZATION_MARGIN) * 100 // 1 / 100 if total else 0.0
    if 0 < possible < share:
        flag = f"--gpu-memory-utilization {possible:g}"
        return Told(said, (Fix("or ask for no more than was free", flag),))
    return Told(said)


def out_of_memory(text: str, facts: Facts) -> Told:
    """What was asked for, and what there was."""
    tried, capacity, left = _TRIED.search(text), _CAPACITY.search(text), _LEFT.search(text)
    if not tried:
        return Told()
    said = f"It tried to allocate {tried[1]}"
    if left:
        said += f" with {left[1] or left[2]} free"
    if capacity:
        said += f" of {capacity[1] or capacity[2]} GiB"
    return Told(said + ".")
