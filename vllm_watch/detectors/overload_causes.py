"""Finds the cause of a lasting queue."""

from dataclasses import dataclass

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.collapse_causes import UNREAD_SHARE, Cause, waits_for_peer
from vllm_watch.signals.baseline import STARVED_RUNNING, STARVED_USAGE_MIN
from vllm_watch.support.counts import requests

DEMAND, PEER_WAIT, DEFERRED, SMALL_CACHE, PAUSED, UNKNOWN = (
    "demand", "peer_wait", "deferred", "small_cache", "paused", "unknown",
)  # fmt: skip

SMALL_SHARE = 0.75
"""A KV cache is small if it has less than this share of the previous process's cache. Two starts
usually differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Facts about a lasting queue. Unknown facts are None."""

    waiting: float
    running: float
    running_peak: float
    usage: float
    step_tokens: float | None
    step_tokens_peak: float
    deferred: float | None
    awaiting: float = 0.0
    awaited: float = 0.0  # cache share that requests waiting for KV may hold
    cache_ratio: float | None = None  # cache size, relative to the previous process
    length_ratio: float | None = None  # mean length of finished requests, relative to the usual one


def of_queue(queue: Queue) -> Cause:
    """Return the cause of a lasting queue."""
    most = 0.5 * queue.waiting
    if queue.awaiting and (queue.awaiting >= most or queue.awaited >= UNREAD_SHARE * queue.usage):
        return waits_for_peer(queue.awaiting, queue.usage)
    if queue.deferred is not None and queue.deferred >= most:
        return deferred(queue.deferred)
    if queue.cache_ratio is not None and queue.cache_ratio < SMALL_SHARE and _is_full(queue):
        text = f"the KV cache has {queue.cache_ratio:.0%} of the tokens that it had before the last restart"
        small = Evidence(name="kv_cache_ratio", value=queue.cache_ratio, unit="ratio", expected=1.0, text=text)  # fmt: skip
        return Cause(SMALL_CACHE, (small, _used(queue)))
    if not (_is_full(queue) or _has_no_slot(queue) or _prefills(queue)):
        return Cause(UNKNOWN, (_used(queue),))
    return Cause(DEMAND, (_used(queue), *_longer(queue)), _not_excluded(queue))


def deferred(count: float) -> Cause:
    """Return the cause of deferred requests. They do not wait for capacity."""
    text = f"{requests(count)} deferred: they wait for a grammar to compile or a LoRA slot, and not for capacity"
    return Cause(DEFERRED, (Evidence(name="requests_deferred", value=count, text=text),))


def paused(seconds: float, count: float) -> Cause:
    """Return the cause of a pause that does not end."""
    text = f"paused through /pause for {seconds / 60:.0f} min with {requests(count)} in hand"
    return Cause(PAUSED, (Evidence(name="seconds_paused", value=round(seconds), unit="s", text=text),))  # fmt: skip


def _is_full(queue: Queue) -> bool:
    return queue.usage >= STARVED_USAGE_MIN


def _has_no_slot(queue: Queue) -> bool:
    return queue.running >= STARVED_RUNNING * queue.running_peak


def _prefills(queue: Queue) -> bool:
    return (
        queue.step_tokens is None or queue.step_tokens >= STARVED_RUNNING * queue.step_tokens_peak
    )


def _used(queue: Queue) -> Evidence:
    text = (
        f"{requests(queue.running)} running (the most so far: {queue.running_peak:.0f}), the KV cache is {queue.usage:.0%} full, "
        f"a step holds {queue.step_tokens or 0.0:.0f} tokens (the most so far: {queue.step_tokens_peak:.0f})"
    )
    return Evidence(name="kv_usage_ratio", value=queue.usage, unit="ratio", text=text)


def _longer(queue: Queue) -> tuple[Evidence, ...]:
    ratio = queue.length_ratio
    if ratio is None or ratio < 1.0 / STARVED_RUNNING:
        return ()
    text = f"requests that finish are {ratio:.1f} times as long as usual"
    return (Evidence(name="request_length_ratio", value=ratio, expected=1.0, text=text),)


def _not_excluded(queue: Queue) -> tuple[Evidence, ...]:
    unknown = {
        "requests wait for something other than capacity (this vLLM does not report it)": queue.deferred,
        "the KV cache was larger before the last restart": queue.cache_ratio,
        "requests are longer than usual": queue.length_ratio,
    }
    names = [name for name, value in unknown.items() if value is None]
    if not names:
        return ()
    text = f"it is unknown whether {' and whether '.join(names)}, so that may be the cause"
    return (Evidence(name="not_excluded", value=None, text=text),)
