"""Extract the numbers in out-of-memory messages, and suggest settings from them."""

import math
import re

from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import DECIMAL, GROUPED, WHOLE, Facts, Told, whole

BLOCK_TOKENS = 16
"""vLLM's usual KV cache block on GPUs, in tokens."""

DEFAULT_UTILIZATION = 0.9

UTILIZATION_MAX = 0.95
"""Maximum GPU share to suggest. The driver, NCCL and CUDA graphs need memory, too."""

UTILIZATION_MARGIN = 0.01
"""Share of a GPU to leave free, because free memory varies."""

_LENGTH = re.compile(rf"max seq len\s*\(?({GROUPED})")
_GIB = re.compile(rf"\(?({DECIMAL}) Gi?B KV\s+cache is needed.{{0,80}}?memory\s*\(({DECIMAL}) Gi?B", re.DOTALL)  # fmt: skip
_ESTIMATE = re.compile(rf"estimated maximum model length is\s*({GROUPED})")
_STORED = re.compile(rf"stored in KV\s+cache\s*\(({GROUPED})")
_FREE = re.compile(rf"memory on (?:device|node)\s{{0,4}}\S{{0,40}}\s{{0,4}}\(({DECIMAL})/({DECIMAL}) GiB\).{{0,60}}?utilization \(({DECIMAL}), ({DECIMAL}) GiB", re.DOTALL)  # fmt: skip
_TRIED = re.compile(rf"[Tt]ried to allocate ({DECIMAL} [KMG]i?B)")
_CAPACITY = re.compile(rf"total capacity of ({DECIMAL}) GiB|({DECIMAL}) GiB total capacity")
_LEFT = re.compile(rf"of which ({DECIMAL} [KMG]i?B) is free|({DECIMAL} [KMG]i?B) free")
_STATE = re.compile(rf"max_num_seqs \(({WHOLE})\) exceeds available \w+ cache blocks \(({WHOLE})\)")
_OWN = re.compile(rf"this process has ({DECIMAL}) GiB memory in use|({DECIMAL}) GiB (?:already allocated|is allocated by PyTorch)")  # fmt: skip

_BUDGET = re.compile(r"cache blocks|cache memory: -|not enough GPU memory available to serve")
_NOT_OF_SHARE = re.compile(r"driver error|memory space hbm|CUBLAS_STATUS_NOT_INITIALIZED")

OWN_RATIO = 0.85
"""If one process or the weights use at least this share of a GPU, other processes are not the cause."""

ALONE_RATIO = 0.95

OVERHEAD_RATIO = 0.2
"""Maximum share of a GPU that an engine uses beyond weights and KV cache."""

NEARLY_FREE_RATIO = 0.93
"""Minimum free share of a GPU that is used only by the driver and a display."""

UNUSED_GIB = 2.0
"""If an allocation failed with this much more free than it asked for, the GPU was not full. Small differences are rounding."""

CLOSE_RATIO = 0.85
"""Minimum free share of the requested memory for which a lower utilization is suggested."""


def is_own(facts: Facts) -> bool | None:
    """Return True if the engine itself used up its share of the GPU, or None if unknown."""
    total, share = facts.get("gpu_memory_total_gib"), facts.get("gpu_memory_utilization")
    weights, left = facts.get("weights_gib"), facts.get("kv_cache_gib")
    numbers = [each for each in (total, share, weights, left) if isinstance(each, (int, float))]
    if len(numbers) < 4:  # noqa: PLR2004
        return None
    total, share, weights, left = numbers
    return total * share - weights - left <= OVERHEAD_RATIO * total


def is_much_held(text: str) -> bool:
    """Return True if far less of the GPU is free than the requested share."""
    found = _FREE.search(text)
    return found is not None and float(found[1]) < CLOSE_RATIO * float(found[4])


def is_nearly_free(text: str) -> bool:
    """Return True if nearly all memory of the GPU was free."""
    found = _FREE.search(text)
    return found is not None and float(found[1]) >= NEARLY_FREE_RATIO * float(found[2])


def is_more_free_than_asked(text: str) -> bool:
    """Return True if an allocation failed although more memory was free."""
    tried, left = _TRIED.search(text), _LEFT.search(text)
    return bool(tried and left) and gib(tried[1]) + UNUSED_GIB <= gib(left[1] or left[2])  # type: ignore[index]


def is_more_than_the_gpu(text: str) -> bool:
    """Return True if one allocation was larger than the GPU."""
    tried, capacity = _TRIED.search(text), _CAPACITY.search(text)
    return bool(tried and capacity) and gib(tried[1]) > float(capacity[1] or capacity[2])  # type: ignore[index]


GRAPHS_GIB = 32.0
"""CUDA graphs take a few GiB. A larger estimate is wrong (vLLM #53013: 118 GiB)."""


def is_overestimated(facts: Facts) -> bool:
    """Return True if vLLM's estimate for CUDA graphs cannot be right."""
    return float(facts.get("graph_estimate_gib", 0)) >= GRAPHS_GIB


def gib(amount: str) -> float:
    """Convert an amount such as "3.2 MiB"."""
    number, unit = amount.split()
    return float(number) * {"K": 2**-20, "M": 2**-10, "G": 1}[unit[0]]


def is_own_alone(text: str) -> bool:
    """Return True if this process holds nearly all memory of the GPU."""
    own, total = _OWN.search(text), _CAPACITY.search(text)
    return bool(own and total) and float(own[1] or own[2]) >= ALONE_RATIO * float(total[1] or total[2])  # type: ignore[index]  # fmt: skip


def kv_too_small(text: str, facts: Facts) -> Told:
    """Suggest a context length that fits, or a larger GPU share."""
    if found := _STATE.search(text):
        fix = Fix("limit concurrent requests to the number of blocks", f"--max-num-seqs {found[2]}")  # fmt: skip
        told = f"{found[1]} concurrent requests were configured, and {found[2]} blocks fit."
        return Told(told, (fix,) if whole(found[2]) else ())
    length = _LENGTH.search(text)
    wanted = whole(length[1]) if length else None
    gib = _GIB.search(text)
    fits = None
    if found := _ESTIMATE.search(text) or _STORED.search(text):
        fits = whole(found[1])
    elif gib and wanted and float(gib[1]) > 0:
        fits = int(wanted * float(gib[2]) / float(gib[1]))
    own = is_own(facts)
    said, fixes = [], []
    if gib:
        context = f"{wanted:,} tokens need" if wanted else "The full context needs"
        said.append(f"{context} {gib[1]} GiB of KV cache; {gib[2]} GiB were left.")
    if fits and fits >= BLOCK_TOKENS:
        fits -= fits % BLOCK_TOKENS
        said.append(f"About {fits:,} tokens would have fit.")
        if own:
            fixes.append(Fix("limit requests to the length that fits", f"--max-model-len {fits}"))
    if own and gib and (share := _share(float(gib[1]) - float(gib[2]), facts)):
        flag = f"--gpu-memory-utilization {share}"
        fixes.append(Fix("or raise vLLM's share of the GPU by the missing amount", flag))
    if own:
        said.append("By the numbers in this log, the engine itself used the rest of its share.")
    elif own is False:
        said.append("The weights and the KV cache in this log do not explain the missing memory.")
    return Told(" ".join(said), fixes, own or False)


def no_blocks(text: str, facts: Facts) -> Told:
    """Compare the weights with the GPU share, and suggest a fix."""
    told = out_of_memory(text, facts)
    total, share = facts.get("gpu_memory_total_gib"), facts.get("gpu_memory_utilization")
    weights = facts.get("weights_gib")
    if not all(isinstance(each, (int, float)) for each in (total, share, weights)):
        low = isinstance(share, float) and share <= DEFAULT_UTILIZATION - 0.05
        if not low or "unified_memory" in facts or "No available memory" not in text:
            return told
        fix = Fix("raise vLLM's share of the GPU, if no other process uses it", f"--gpu-memory-utilization {DEFAULT_UTILIZATION}")  # fmt: skip
        return Told(f"vLLM's share is only {share:g} of the GPU.", (fix,))
    total, share, weights = float(total), float(share), float(weights)  # type: ignore[arg-type]
    said = f"{told.explanation} The share of {share:g} is {total * share:.1f} of {total:g} GiB, and the weights take {weights:g}.".strip()
    of_budget = _BUDGET.search(text) is not None  # else the GPU itself was full
    room = of_budget and share < UTILIZATION_MAX - 0.03
    if "unified_memory" in facts:
        return Told(said)
    if weights > total * (UTILIZATION_MAX if room or not of_budget else share) * OWN_RATIO:
        fix = Fix("if there are more GPUs, spread the model over them, or serve a quantized version", "--tensor-parallel-size N")  # fmt: skip
        return Told(said, (fix,), deterministic=True)
    if room:
        return Told(said, (Fix("raise vLLM's share of the GPU, if no other process uses it", f"--gpu-memory-utilization {UTILIZATION_MAX}"),))  # fmt: skip
    return Told(said)


def capture(text: str, facts: Facts) -> Told:
    """Suggest a smaller GPU share to leave room for CUDA graphs."""
    told = out_of_memory(text, facts)
    share = facts.get("gpu_memory_utilization")
    if not isinstance(share, float) or share <= 0.5 or "unified_memory" in facts:  # noqa: PLR2004
        return told
    if (
        "graphs_measured" in facts
        or is_more_free_than_asked(text)
        or (told == Told() and _NOT_OF_SHARE.search(text))
    ):
        return told
    fix = Fix("leave more memory free for it", f"--gpu-memory-utilization {share - 0.05:.2f}")
    return Told(told.explanation, (fix,))


def _share(missing_gib: float, facts: Facts) -> float | None:
    total, share = facts.get("gpu_memory_total_gib"), facts.get("gpu_memory_utilization")
    if not isinstance(total, (int, float)) or not isinstance(share, (int, float)) or total < 1:
        return None
    # The inner rounding removes floating-point error.
    needed = math.ceil(round((share + missing_gib / total) * 100, 6)) / 100
    return needed if share < needed <= UTILIZATION_MAX else None


def occupied(text: str, facts: Facts) -> Told:
    """Return the free and the requested memory."""
    found = _FREE.search(text)
    if not found:
        return Told()
    free, total, share, wanted = (float(each) for each in found.groups())
    said = f"{free:g} of {total:g} GiB were free; a share of {share:g} is {wanted:g} GiB."
    possible = (free / total - UTILIZATION_MARGIN) * 100 // 1 / 100 if total else 0.0
    if 0 < possible < share and free >= CLOSE_RATIO * wanted and "unified_memory" not in facts:
        flag = f"--gpu-memory-utilization {possible:g}"
        return Told(said, (Fix("use only the free memory, which is slightly less", flag),))
    return Told(said)


def out_of_memory(text: str, facts: Facts) -> Told:
    """Return the requested and the free memory."""
    tried, capacity, left = _TRIED.search(text), _CAPACITY.search(text), _LEFT.search(text)
    own, total = _OWN.search(text), capacity and (capacity[1] or capacity[2])
    must = bool(own and total and float(own[1] or own[2]) >= OWN_RATIO * float(total))
    if not tried:
        return Told()
    said = f"It tried to allocate {tried[1]}"
    if left:
        said += f" with {left[1] or left[2]} free"
    if capacity:
        said += f" of {capacity[1] or capacity[2]} GiB"
    if "unified_memory" in facts:
        must = False
    return Told(said + ".", deterministic=must or None)
