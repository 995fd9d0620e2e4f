"""Advice on KV cache memory."""

import math
from collections.abc import Iterator

from vllm_watch.advice.records import Evidence
from vllm_watch.signals.holders.words import seconds, size
from vllm_watch.signals.records import Advice

MINUTES_SECONDS = 600.0
"""Minimum seconds of observation. A one-minute burst does not justify a restart with other flags."""

SHORT_RATIO = 0.1
"""Advice is given if the cache is full and requests wait in at least this share of scrapes."""

UTILIZATION_MAX = 0.92
"""Maximum --gpu-memory-utilization to advise, vLLM's default since 0.20. CUDA graphs need memory, too."""

GAIN_RATIO = 0.05
"""Minimum gain as a share of the GPU's memory. A smaller gain is not worth a restart."""

PREEMPTIONS_MIN, PREEMPTED_RATIO = 20.0, 0.02
"""At least this many preemptions are needed, in total and per finished request. Users notice if one request in fifty starts over."""

HEADROOM_RATIO = 0.9
"""The suggested limit is at least this share of the requests that ran with a full cache. The share is below 1, because requests still grow."""

FEW_RATIO = 0.5
"""If the running requests are fewer than this share of those that would fit, a few long requests fill the cache."""

_STEPS = 100
_RUNNING_MIN = 2.0


def kv_starved(evidence: Evidence) -> Iterator[Advice]:
    """Advise if the cache is full and requests wait, but the GPU has unused memory."""
    share, gpus = _number(evidence.setting("gpu_memory_utilization")), evidence.gpus
    if share is None or gpus is None or evidence.setting("kv_cache_memory_bytes") is not None:
        return
    if evidence.setting("num_gpu_blocks_override") is not None or evidence.engines > 1:
        return
    if not _is_short(evidence):
        return
    spare = gpus.free_bytes / gpus.total_bytes - (1 - UTILIZATION_MAX)
    better = math.floor(min(UTILIZATION_MAX, share + spare) * _STEPS) / _STEPS
    if better - share < GAIN_RATIO:
        return
    yield Advice(
        "kv_starved", evidence.engine, "--gpu-memory-utilization", f"{better:g}",
        f"the KV cache was full with requests waiting at {evidence.short_ratio or 0:.0%} of {evidence.scrapes} scrapes in {seconds(evidence.seconds)}, while {size(gpus.free_bytes)} of {size(gpus.total_bytes)} were free on the GPU at all times (--gpu-memory-utilization {share:g})",
        f"gives the KV cache about {size((better - share) * gpus.total_bytes)} more per GPU",
        evidence.seconds,
    )  # fmt: skip


def preemptions(evidence: Evidence) -> Iterator[Advice]:
    """Advise if the running requests outgrow the cache."""
    thrown, finished = evidence.preemptions, evidence.finished
    if thrown is None or finished is None or evidence.seconds < MINUTES_SECONDS:
        return
    if thrown < PREEMPTIONS_MIN or thrown < PREEMPTED_RATIO * max(1.0, finished):
        return
    if next(kv_starved(evidence), None) is not None:
        return  # more memory is the better cure
    fitting = _fitting(evidence)
    if fitting is None or evidence.running_max is None or fitting >= evidence.running_max:
        return  # a lower limit does not help against few long requests
    doubled = "" if evidence.setting("cache_dtype") not in ("auto", None) else "; or --kv-cache-dtype fp8, which holds twice the tokens at a little less precision"  # fmt: skip
    yield Advice(
        "preemptions", evidence.engine, "--max-num-seqs", str(fitting),
        f"{thrown:.0f} preemptions while {finished:.0f} requests finished in {seconds(evidence.seconds)}; up to {evidence.running_max:.0f} ran at once and the KV cache of {evidence.capacity_tokens or 0:,.0f} tokens is full with {evidence.running_full or 0:.0f}",
        f"requests wait a little instead of being thrown out half done{doubled}",
        evidence.seconds,
    )  # fmt: skip


def _is_short(evidence: Evidence) -> bool:
    return evidence.seconds >= MINUTES_SECONDS and (evidence.short_ratio or 0.0) >= SHORT_RATIO


def _fitting(evidence: Evidence) -> int | None:
    prompts, generations = evidence.prompts, evidence.generations
    if prompts is None or generations is None or evidence.capacity_tokens is None:
        return None
    if prompts.mean is None or generations.mean is None or not evidence.running_full:
        return None
    by_length = evidence.capacity_tokens / max(1.0, prompts.mean + generations.mean)
    if evidence.running_full < FEW_RATIO * by_length:
        return None
    found = math.floor(max(by_length, HEADROOM_RATIO * evidence.running_full))
    return found if found >= _RUNNING_MIN else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
