"""The last minute of one engine, and by how much each counter grew within it.

Counters begin at zero again when an engine restarts. What had been counted until then is carried in
`offsets`, so that growth across a restart is what was counted before it plus what was counted after,
as PromQL's increase() has it (without its extrapolation to the window's edges).
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from vllm_watch.samples.engine import EngineSample, Histogram

COUNTERS = (
    "prompt_tokens", "generation_tokens", "preemptions", "prefix_cache_queries", "prefix_cache_hits",
    "spec_num_accepted_tokens", "spec_num_draft_tokens",
)  # fmt: skip
HISTOGRAMS = ("iteration_tokens", "ttft", "inter_token_latency", "queue_time", "e2e_latency")
LABELLED = ("request_success",)

ENTRIES_MAX = 4096
"""Bound of a window: an hour at one look a second."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """What counters had reached before they began anew, added up over every restart in the window."""

    counters: Mapping[str, float] = field(default_factory=dict)
    labelled: Mapping[tuple[str, str], float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One look at one engine."""

    at_s: float  # on the timeline
    sample: EngineSample
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a histogram grew, and in how many seconds."""

    seconds: float
    count: float
    sum: float | None
    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]


class Window:
    """The entries of one engine within the last `seconds`, oldest first."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        # The newest look with what it lacks from those before: a counter may be absent for a few
        # looks (a server that has just restarted writes none) and come back lower.
        self._known: EngineSample | None = None

    def add(self, at_s: float, sample: EngineSample, *, began_anew: bool) -> None:
        """Add the newest look. `began_anew`: every counter certainly started from zero since the last."""
        offsets = Offsets()
        if self._entries and self._known is not None:
            last = self._entries[-1]
            offsets = _carried(last.offsets, self._known, sample, began_anew=began_anew)
        self._known = _filled(sample, self._known if self._entries else None)
        self._entries.append(Entry(at_s, sample, offsets))
        while self._entries[0].at_s < at_s - self.seconds:
            self._entries.popleft()

    def clear(self) -> None:
        """Forget everything: what came before says nothing about what comes now."""
        self._entries.clear()

    @property
    def last(self) -> Entry | None:
        return self._entries[-1] if self._entries else None

    @property
    def first(self) -> Entry | None:
        return self._entries[0] if self._entries else None

    def counter(self, name: str) -> tuple[float, float] | None:
        """(growth, seconds) of a counter within the window; None where it was not seen twice."""
        pair = self._pair(lambda entry: getattr(entry.sample, name))
        if pair is None:
            return None
        a, b = pair
        grown = getattr(b.sample, name) - getattr(a.sample, name)
        grown += b.offsets.counters.get(name, 0.0) - a.offsets.counters.get(name, 0.0)
        return grown, b.at_s - a.at_s

    def labelled(self, name: str) -> tuple[dict[str, float], float] | None:
        """(growth by label, seconds); a label that appeared within the window counts from zero."""
        pair = self._pair(lambda entry: getattr(entry.sample, name))
        if pair is None:
            return None
        a, b = pair
        before, now = getattr(a.sample, name), getattr(b.sample, name)
        grown = {}
        for label, value in now.items():
            key = (name, label)
            carried = b.offsets.labelled.get(key, 0.0) - a.offsets.labelled.get(key, 0.0)
            grown[label] = value - before.get(label, 0.0) + carried
        return grown, b.at_s - a.at_s

    def histogram(self, name: str) -> Growth | None:
        """Growth of a histogram, over the entries that have the newest one's buckets."""
        last = self.last
        newest: Histogram | None = getattr(last.sample, name) if last is not None else None
        if newest is None:
            return None

        def same(entry: Entry) -> bool | None:
            h: Histogram | None = getattr(entry.sample, name)
            return True if h is not None and h.bounds == newest.bounds else None

        pair = self._pair(same)
        if pair is None:
            return None
        a, b = pair
        then, now = _total(a, name), _total(b, name)
        return Growth(
            seconds=b.at_s - a.at_s,
            count=now.count - then.count,
            sum=None if now.sum is None or then.sum is None else now.sum - then.sum,
            bounds=now.bounds,
            cumulative=tuple([x - y for x, y in zip(now.cumulative, then.cumulative, strict=True)]),
        )

    def _pair(self, known: Callable[[Entry], object]) -> tuple[Entry, Entry] | None:
        if len(self._entries) < 2:  # noqa: PLR2004
            return None
        last = self._entries[-1]
        if known(last) is None:
            return None
        for entry in self._entries:
            if entry is last:
                return None
            if known(entry) is not None:
                return entry, last
        return None


def _filled(sample: EngineSample, known: EngineSample | None) -> EngineSample:
    """The sample, with counters that it lacks as they were last known."""
    if known is None:
        return sample
    lacking = {
        name: value
        for name in (*COUNTERS, *HISTOGRAMS, *LABELLED)
        if getattr(sample, name) is None and (value := getattr(known, name)) is not None
    }
    return replace(sample, **lacking) if lacking else sample


def _total(entry: Entry, name: str) -> Histogram:
    h: Histogram = getattr(entry.sample, name)
    carried = entry.offsets.histograms.get(name)
    if carried is None or carried.bounds != h.bounds:
        return h
    return _added(h, carried)


def _added(a: Histogram, b: Histogram) -> Histogram:
    total = None if a.sum is None or b.sum is None else a.sum + b.sum
    cumulative = tuple([x + y for x, y in zip(a.cumulative, b.cumulative, strict=True)])
    return Histogram(a.count + b.count, total, a.bounds, cumulative)


def _carried(old: Offsets, before: EngineSample, now: EngineSample, *, began_anew: bool) -> Offsets:
    counters = {
        name: value
        for name in COUNTERS
        if (value := getattr(before, name)) is not None
        and _fell(value, getattr(now, name), began_anew)
    }
    labelled = {}
    for name in LABELLED:
        then, new = getattr(before, name) or {}, getattr(now, name)
        for label, value in then.items():
            if new is not None and _fell(value, new.get(label, 0.0), began_anew):
                labelled[(name, label)] = value
    histograms = {
        name: h
        for name in HISTOGRAMS
        if (h := getattr(before, name)) is not None
        and (new := getattr(now, name)) is not None
        and _fell(h.count, new.count, began_anew)
    }
    if not (counters or labelled or histograms):
        return old
    return Offsets(
        {**old.counters, **{k: v + old.counters.get(k, 0.0) for k, v in counters.items()}},
        {**old.labelled, **{k: v + old.labelled.get(k, 0.0) for k, v in labelled.items()}},
        {**old.histograms, **{k: _joined(h, old.histograms.get(k)) for k, h in histograms.items()}},
    )


def _fell(before: float, now: float | None, began_anew: bool) -> bool:
    return now is not None and (began_anew or now < before)


def _joined(h: Histogram, carried: Histogram | None) -> Histogram:
    return h if carried is None or carried.bounds != h.bounds else _added(h, carried)
