"""The last minutes of one engine's charted signals, small enough to keep for a thousand engines.

It exists so that the page has charts at once, without a Prometheus. Seven signals of 120 points as
32-bit floats and their times take 4.3 KB; anything longer belongs in a Prometheus.
"""

import math
from array import array
from collections.abc import Callable, Mapping

from vllm_watch.signals.records import EngineSignals

CHARTED: Mapping[str, Callable[[EngineSignals], float | None]] = {
    "generation_tokens_per_second": lambda e: e.generation_tokens_per_second,
    "requests_running": lambda e: e.requests_running,
    "requests_waiting": lambda e: e.requests_waiting,
    "kv_cache_usage_ratio": lambda e: e.kv_cache_usage_ratio,
    "time_to_first_token_p95_seconds": lambda e: e.time_to_first_token_seconds.p95,
    "inter_token_latency_p95_seconds": lambda e: e.inter_token_latency_seconds.p95,
    "step_time_seconds": lambda e: e.step_time_seconds,
}
POINTS = 120  # a chart of 10 minutes has a point per 5 s: finer than its pixels on a phone
_UNKNOWN = math.nan


class History:
    """A ring of at most POINTS points over `seconds`; of those within one step the newest stays."""

    __slots__ = ("_next", "_seconds", "_times", "_values")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._clear()

    def _clear(self) -> None:
        self._times = array("d")
        self._values = array("f")
        self._next = 0  # where the next point goes, once the ring is full

    def push(self, t: float, signals: EngineSignals) -> None:
        """Keep the charted signals of Unix time `t`. A clock that stepped back begins the ring anew."""
        width = len(CHARTED)
        values = array("f", [_finite(read(signals)) for read in CHARTED.values()])
        last = (self._next or len(self._times)) - 1
        if last >= 0 and t < self._times[last]:
            self._clear()
            last = -1
        step = self._seconds / POINTS
        if last >= 0 and t // step == self._times[last] // step:
            self._times[last] = t
            self._values[last * width : (last + 1) * width] = values
        elif len(self._times) < POINTS:
            self._times.append(t)
            self._values.extend(values)
        else:
            self._times[self._next] = t
            self._values[self._next * width : (self._next + 1) * width] = values
            self._next = (self._next + 1) % POINTS

    def series(self, now: float) -> tuple[list[float], dict[str, list[float | None]]]:
        """Times (Unix seconds, oldest first) and each signal's values; None is unknown."""
        size, width = len(self._times), len(CHARTED)
        order = [(self._next + i) % size for i in range(size)]
        order = [i for i in order if now - self._times[i] <= self._seconds]
        times = [self._times[i] for i in order]
        columns: dict[str, list[float | None]] = {}
        for column, name in enumerate(CHARTED):
            found = (self._values[i * width + column] for i in order)
            columns[name] = [None if math.isnan(value) else value for value in found]
        return times, columns


def _finite(value: float | None) -> float:
    """The ring's mark for unknown is NaN; an infinite value cannot be drawn either."""
    return value if value is not None and math.isfinite(value) else _UNKNOWN
