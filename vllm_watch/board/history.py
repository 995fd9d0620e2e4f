"""Keep one engine's charted signals of the last hours."""

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter

from vllm_watch.samples.record import short_record
from vllm_watch.signals.records import EngineSignals

CHARTED: Mapping[str, str] = {
    "current_generation_tokens_per_second": "current_generation_tokens_per_second",
    "generation_tokens_per_second": "generation_tokens_per_second",
    "requests_running": "requests_running",
    "requests_waiting": "requests_waiting",
    "kv_cache_usage_ratio": "kv_cache_usage_ratio",
    "time_to_first_token_p95_seconds": "time_to_first_token_seconds.p95",
    "inter_token_latency_p95_seconds": "inter_token_latency_seconds.p95",
    "step_time_seconds": "step_time_seconds",
}
"""The attribute of EngineSignals for each charted name."""

_charted_of = attrgetter(*CHARTED.values())
SPANS = (600.0, 3600.0, 21600.0)
POINTS = 120  # one point every 5 s for 10 minutes
_UNKNOWN = math.nan

FORM = f"1 {sys.byteorder} {POINTS} {SPANS} {' '.join(CHARTED)}"

Series = tuple[list[float], dict[str, list[float | None]]]


@short_record
class Charts:
    """Frozen charts of the `seconds` before Unix time `t`."""

    t: float
    seconds: float
    engines: Mapping[str, "Ring"]


def ring_seconds(seconds: float) -> float:
    """Return the shortest of SPANS that covers `seconds`. If none does, return the longest."""
    return next((span for span in SPANS if span >= seconds), SPANS[-1])


class History:
    """One engine's rings, one for each of SPANS."""

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        finest, *others = SPANS
        self._rings = (Ring(finest, mean=False), *(Ring(span, mean=True) for span in others))

    def push(self, t: float, signals: EngineSignals) -> None:
        """Add the signals' values. If the clock was set back, all earlier values are dropped."""
        values = [
            value if value is not None and math.isfinite(value) else _UNKNOWN
            for value in _charted_of(signals)
        ]
        for ring in self._rings:
            ring.push(t, values)

    def ring(self, seconds: float) -> "Ring":
        return self._rings[SPANS.index(ring_seconds(seconds))]

    def export(self) -> bytes:
        return b"".join(ring.export() for ring in self._rings)

    @classmethod
    def restored(cls, data: bytes) -> "History":
        """Raises ValueError if `data` is malformed."""
        history = cls()
        for ring in history._rings:
            data = ring.restore(data)
        if data:
            raise ValueError("it has bytes after its last point")
        return history


class Ring:
    """Up to POINTS points. Each holds the newest values or the mean values of one time step."""

    __slots__ = ("_known", "_mean", "_next", "_step", "_times", "_values", "seconds")

    def __init__(self, seconds: float, *, mean: bool) -> None:
        self.seconds = seconds
        self._step = seconds / POINTS
        self._mean = mean
        self._clear()

    def _clear(self) -> None:
        self._times = array("d")
        self._values = array("f")
        self._known = [0] * len(CHARTED)  # number of values averaged in the newest point
        self._next = 0

    def export(self) -> bytes:
        width, first = len(CHARTED), self._next
        times = self._times[first:] + self._times[:first]
        values = self._values[first * width :] + self._values[: first * width]
        return bytes((len(times),)) + times.tobytes() + values.tobytes()

    def restore(self, data: bytes) -> bytes:
        """Read this ring from `data` and return the rest. Raises ValueError."""
        size, width = data[0] if data else 0, len(CHARTED)
        ends = 1, 1 + 8 * size, 1 + (8 + 4 * width) * size
        times, values = array("d", data[ends[0] : ends[1]]), array("f", data[ends[1] : ends[2]])
        if not data or size > POINTS or len(values) != size * width:
            raise ValueError("it is not a ring")
        if not all(map(math.isfinite, times)) or list(times) != sorted(times):
            raise ValueError("its times are not sorted")
        self._clear()
        self._times, self._values = times, values
        if size:
            self._known = [int(not math.isnan(value)) for value in values[-width:]]
        return data[ends[2] :]

    def push(self, t: float, values: Sequence[float]) -> None:
        """NaN means unknown."""
        width = len(CHARTED)
        last = (self._next or len(self._times)) - 1
        if last >= 0 and t < self._times[last]:
            self._clear()
            last = -1
        if last >= 0 and t // self._step == self._times[last] // self._step:
            self._times[last] = t
            if self._mean:
                self._join(last * width, values)
            else:
                self._values[last * width : (last + 1) * width] = array("f", values)
            return
        self._known = [int(not math.isnan(value)) for value in values]
        if len(self._times) < POINTS:
            self._times.append(t)
            self._values.extend(values)
        else:
            self._times[self._next] = t
            self._values[self._next * width : (self._next + 1) * width] = array("f", values)
            self._next = (self._next + 1) % POINTS

    def _join(self, at: int, values: Sequence[float]) -> None:
        means, known = self._values, self._known
        for column, value in enumerate(values):
            if value == value:  # noqa: PLR0124 - no NaN
                count = known[column] = known[column] + 1
                mean = means[at + column]
                means[at + column] = value if count == 1 else mean + (value - mean) / count

    def series(self, now: float) -> Series:
        size, width = len(self._times), len(CHARTED)
        order = [(self._next + i) % size for i in range(size)]
        order = [i for i in order if now - self._times[i] <= self.seconds]
        times = [self._times[i] for i in order]
        columns: dict[str, list[float | None]] = {}
        for column, name in enumerate(CHARTED):
            found = (self._values[i * width + column] for i in order)
            columns[name] = [None if math.isnan(value) else value for value in found]
        return times, columns
