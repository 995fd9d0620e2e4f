"""Count HTTP requests for the http_* metric families."""

from collections.abc import Mapping

from vllm_watch.lab.buckets import Buckets
from vllm_watch.lab.release import INF
from vllm_watch.samples.engine import Labelled

_HANDLER_BOUNDS = (0.1, 0.5, 1.0, INF)
_ALL_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5,
    10.0, 30.0, 60.0, INF,
)  # fmt: skip


class HttpLog:
    """Series appear with their first request. `*_created` are Unix times."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, str], float] = {}  # handler, method, "2xx" → count
        self.requests_created: dict[tuple[str, str, str], float] = {}
        self.sizes: dict[str, list[float]] = {}  # handler → count, bytes in, bytes out, created
        self.durations: dict[tuple[str, str], Buckets] = {}  # handler, method
        self.durations_created: dict[tuple[str, str], float] = {}
        self.all_durations = Buckets(_ALL_BOUNDS)
        self.created: float | None = None

    def record(
        self,
        handler: str,
        status: str,
        seconds: float,
        unix_t: float,
        *,
        method: str = "POST",
        request_bytes: int = 0,
        response_bytes: int = 0,
    ) -> None:
        if self.created is None:
            self.created = unix_t
        key = (handler, method, status)
        if key in self.requests:
            self.requests[key] += 1.0
        else:
            self.requests[key] = 1.0
            self.requests_created[key] = unix_t
        size = self.sizes.get(handler)
        if size is None:
            size = self.sizes[handler] = [0.0, 0.0, 0.0, unix_t]
        size[0] += 1.0
        size[1] += request_bytes
        size[2] += response_bytes
        durations = self.durations.get((handler, method))
        if durations is None:
            durations = self.durations[handler, method] = Buckets(_HANDLER_BOUNDS)
            self.durations_created[handler, method] = unix_t
        durations.observe(seconds)
        self.all_durations.observe(seconds)

    def fields(self) -> Mapping[str, Labelled] | None:
        if not self.requests:
            return None
        by_status: dict[str, float] = {}
        for (_, _, status), count in self.requests.items():
            by_status[status] = by_status.get(status, 0.0) + count
        durations = [b.snapshot() for b in self.durations.values()]
        every = self.all_durations.snapshot()
        count = sum(size[0] for size in self.sizes.values())
        return {
            "requests": by_status,
            "request_duration_seconds": {
                "count": sum(h.count for h in durations),
                "sum": sum(h.sum or 0.0 for h in durations),
            },
            "request_duration_highr_seconds": {"count": every.count, "sum": every.sum or 0.0},
            "request_size_bytes": {"count": count, "sum": sum(s[1] for s in self.sizes.values())},
            "response_size_bytes": {"count": count, "sum": sum(s[2] for s in self.sizes.values())},
        }
