"""Which share of a scrape's CPU each stage takes, and the whole beside Prometheus at the same time: half a minute.

The timers stand around the stages of the watcher that is measured here, and nowhere else.
"""

import time
from collections import defaultdict
from functools import wraps
from typing import Any

from benchmarks.performance import processes
from benchmarks.performance.row import Row

WARM_SECONDS, SECONDS = 8.0, 16.0
TARGETS, INTERVAL_SECONDS = 50, 1.0

REST = "fetching and the event loop"


def stages() -> dict[str, tuple[type, str]]:
    """By name, the method that is all of a stage. Imported where the watcher runs."""
    from vllm_watch.sources.flight_recorder import FlightRecorder
    from vllm_watch.sources.vllm import VllmSource
    from vllm_watch.watch.publishing import Publisher
    from vllm_watch.watch.watch import Watch

    return {
        "judgement": (Watch, "observe"),
        "reading the body": (VllmSource, "_read"),
        "recording": (FlightRecorder, "observe"),
        "publishing": (Publisher, "look"),
    }


class Timers:
    """CPU seconds by stage since `reset`; a stage within another counts for itself only."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []
        self._began_s = 0.0
        for name, (cls, method) in stages().items():
            setattr(cls, method, self._timed(name, getattr(cls, method)))

    def _timed(self, name: str, method: Any) -> Any:
        @wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began_s = time.thread_time()
            self._inner.append(0.0)
            try:
                return method(*args, **kwargs)
            finally:
                took_s = time.thread_time() - began_s
                self._spent[name] += took_s - self._inner.pop()
                if self._inner:
                    self._inner[-1] += took_s

        return timed

    def reset(self) -> None:
        """Begin anew."""
        self._spent.clear()
        self._began_s = time.process_time()

    def lines(self) -> str:
        """A stage's share of all CPU since then, and its name, line by line."""
        whole_s = time.process_time() - self._began_s
        shares = {name: spent_s / whole_s for name, spent_s in self._spent.items()}
        shares[REST] = 1.0 - sum(shares.values())
        return "\n".join(f"{share} {name}" for name, share in shares.items())


def rows() -> list[Row]:
    """All of this subject."""
    with (
        processes.engines() as ours_url,
        processes.engines() as theirs_url,
        processes.watcher(ours_url, TARGETS, INTERVAL_SECONDS, timed=True) as watcher,
        processes.prometheus(theirs_url, TARGETS, INTERVAL_SECONDS) as prometheus,
    ):
        time.sleep(WARM_SECONDS)
        watcher.begin_anew()
        pids = watcher.pid, prometheus
        before = [processes.cpu_seconds(pid) for pid in pids]
        time.sleep(SECONDS)
        ours, theirs = (
            1000 * (processes.cpu_seconds(pid) - began) / (TARGETS / INTERVAL_SECONDS * SECONDS)
            for pid, began in zip(pids, before, strict=True)
        )
        shares = watcher.shares()
    beside = f"{ours:.2f} ms and {theirs:.2f} ms of the same {SECONDS:g} s, with timers in ours"
    return [
        Row("CPU per scrape ÷ Prometheus', both at once", ours / theirs, "", None, beside),
        *(Row(f"of ours: {name}", 100 * share, "%") for name, share in shares.items()),
    ]
