"""Computes the growth of one engine's counters in the window.

After a restart, earlier counts are added as `offsets`, as in PromQL's increase().
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import add, attrgetter, sub
from typing import Any, NamedTuple

from vllm_watch.samples.engine import EngineSample, Histogram, Labelled
from vllm_watch.samples.record import short_record

ENTRIES_MAX = 4096
"""At most this many polls are kept: an hour of one poll per second."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """For each counter, the sum of its last counts before resets in the window."""

    counters: Mapping[str, float] = field(default_factory=dict)
    finished: Mapping[str, float] = field(default_factory=dict)  # by reason
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


class Counts(NamedTuple):
    """The part of a poll that is kept, a sixth of an engine's metrics."""

    prompt_tokens: float | None
    generation_tokens: float | None
    preemptions: float | None
    prefix_cache_queries: float | None
    prefix_cache_hits: float | None
    spec_num_accepted_tokens: float | None
    spec_num_draft_tokens: float | None
    iteration_tokens: Histogram | None
    ttft: Histogram | None
    inter_token_latency: Histogram | None
    queue_time: Histogram | None
    e2e_latency: Histogram | None
    request_success: Labelled | None
    kv_cache_usage: float | None


COUNTERS, HISTOGRAMS = Counts._fields[:7], Counts._fields[7:12]
_counts_of = attrgetter(*Counts._fields)
_counters_of, _histograms_of = attrgetter(*COUNTERS), attrgetter(*HISTOGRAMS)


@short_record
class Entry:
    """One poll of one engine."""

    at_s: float
    counts: Counts
    offsets: Offsets


_NO_OFFSETS = Offsets()


@short_record
class Growth:
    """Growth of a histogram, and the seconds it took."""

    seconds: float
    count: float
    sum: float | None
    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]


class Window:
    """Keeps the polls of the last `seconds`, oldest first."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        self.newest: EngineSample | None = None
        # Fill gaps, because a restarted server may omit a counter for some polls and then export a
        # lower value.
        self._known: Counts | None = None

    def add(self, at_s: float, sample: EngineSample, *, began_anew: bool) -> None:
        counts, offsets = Counts._make(_counts_of(sample)), _NO_OFFSETS
        if self._known is not None:
            offsets = self._entries[-1].offsets
            if began_anew or _any_fell(self._known, counts):
                offsets = _carried(offsets, self._known, counts, began_anew=began_anew)
        self._known = _filled(counts, self._known)
        self.newest = sample
        self._entries.append(Entry(at_s, counts, offsets))
        while self._entries[0].at_s < at_s - self.seconds:
            self._entries.popleft()

    def clear(self) -> None:
        self._entries.clear()
        self.newest = self._known = None

    @property
    def last(self) -> Entry | None:
        return self._entries[-1] if self._entries else None

    @property
    def first(self) -> Entry | None:
        return self._entries[0] if self._entries else None

    def counter(self, name: str, *, latest: bool = False) -> tuple[float, float] | None:
        pair = self._pair(name, latest=latest)
        if pair is None:
            return None
        a, b = pair
        grown: float = getattr(b.counts, name) - getattr(a.counts, name)
        if a.offsets is not b.offsets:
            grown += b.offsets.counters.get(name, 0.0) - a.offsets.counters.get(name, 0.0)
        return grown, b.at_s - a.at_s

    def finished(self) -> tuple[dict[str, float], float] | None:
        """Return the finished requests by reason in the window, and the seconds between its ends. A new reason counts from zero."""
        pair = self._pair("request_success")
        if pair is None:
            return None
        a, b = pair
        before, now = a.counts.request_success or {}, b.counts.request_success or {}
        grown = {reason: value - before.get(reason, 0.0) for reason, value in now.items()}
        if a.offsets is not b.offsets:
            then, since = a.offsets.finished, b.offsets.finished
            for reason in grown:
                grown[reason] += since.get(reason, 0.0) - then.get(reason, 0.0)
        return grown, b.at_s - a.at_s

    def histogram(self, name: str) -> Growth | None:
        pair = self._pair(name, _same_buckets)
        if pair is None:
            return None
        a, b = pair
        then, now = getattr(a.counts, name), getattr(b.counts, name)
        if a.offsets is not b.offsets:
            then = _joined(then, a.offsets.histograms.get(name))
            now = _joined(now, b.offsets.histograms.get(name))
        return Growth(
            b.at_s - a.at_s,
            now.count - then.count,
            None if now.sum is None or then.sum is None else now.sum - then.sum,
            now.bounds,
            tuple(map(sub, now.cumulative, then.cumulative)),
        )

    def _pair(
        self,
        name: str,
        alike: Callable[[Any, Any], bool] | None = None,
        *,
        latest: bool = False,
    ) -> tuple[Entry, Entry] | None:
        if not self._entries:
            return None
        last = self._entries[-1]
        newest = getattr(last.counts, name)
        for entry in () if newest is None else reversed(self._entries) if latest else self._entries:
            count = getattr(entry.counts, name)
            if count is not None and entry is not last and (alike is None or alike(count, newest)):
                return entry, last
        return None


def _same_buckets(a: Histogram, b: Histogram) -> bool:
    return a.bounds is b.bounds or a.bounds == b.bounds


def _filled(counts: Counts, known: Counts | None) -> Counts:
    if known is None or None not in counts:
        return counts
    pairs = zip(counts, known, strict=True)
    return Counts._make([then if now is None else now for now, then in pairs])


def _any_fell(before: Counts, now: Counts) -> bool:
    for then, new in zip(_counters_of(before), _counters_of(now), strict=True):
        if then is not None and new is not None and new < then:
            return True
    for then, new in zip(_histograms_of(before), _histograms_of(now), strict=True):
        if then is not None and new is not None and new.count < then.count:
            return True
    if before.request_success is None or now.request_success is None:
        return False
    for label, value in before.request_success.items():
        if now.request_success.get(label, 0.0) < value:
            return True
    return False


def _carried(old: Offsets, before: Counts, now: Counts, *, began_anew: bool) -> Offsets:
    counters = {
        name: value
        for name in COUNTERS
        if (value := getattr(before, name)) is not None
        and _fell(value, getattr(now, name), began_anew)
    }
    then, new_counts = before.request_success or {}, now.request_success
    finished = {
        reason: value
        for reason, value in then.items()
        if new_counts is not None and _fell(value, new_counts.get(reason, 0.0), began_anew)
    }
    histograms = {
        name: h
        for name in HISTOGRAMS
        if (h := getattr(before, name)) is not None
        and (new := getattr(now, name)) is not None
        and _fell(h.count, new.count, began_anew)
    }
    return Offsets(
        {**old.counters, **{k: v + old.counters.get(k, 0.0) for k, v in counters.items()}},
        {**old.finished, **{k: v + old.finished.get(k, 0.0) for k, v in finished.items()}},
        {**old.histograms, **{k: _joined(h, old.histograms.get(k)) for k, h in histograms.items()}},
    )


def _fell(before: float, now: float | None, began_anew: bool) -> bool:
    return now is not None and (began_anew or now < before)


def _joined(h: Histogram, carried: Histogram | None) -> Histogram:
    if carried is None or carried.bounds != h.bounds:
        return h
    total = None if h.sum is None or carried.sum is None else h.sum + carried.sum
    cumulative = tuple(map(add, h.cumulative, carried.cumulative))
    return Histogram(h.count + carried.count, total, h.bounds, cumulative)
