"""The http_* families of the API server."""

from collections.abc import Iterable, Sequence

from vllm_watch.lab.buckets import Buckets
from vllm_watch.lab.http_log import HttpLog
from vllm_watch.lab.wire import header, labels, number

_REQUESTS = "Total number of requests by method, status and handler."
_SIZE = (
    "Content length of {} by handler. Only value of header is respected. Otherwise ignored. "
    "No percentile calculated. "
)
_ALL = "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. "
_BY_HANDLER = "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. "

_Series = tuple[dict[str, str], float]  # labels, Unix time of creation


def http_lines(log: HttpLog, *, created: bool) -> list[str]:
    """Return the lines. `created` adds the `*_created` families."""
    if log.created is None:
        return []
    lines = _requests(log, created=created)
    for index, direction in enumerate(("request", "response"), start=1):
        lines += _sizes(log, index, direction, created=created)
    highr: list[tuple[dict[str, str], float, Buckets]] = [({}, log.created, log.all_durations)]
    lines += _durations("http_request_duration_highr_seconds", _ALL, highr, created=created)
    by_handler = [
        ({"handler": key[0], "method": key[1]}, log.durations_created[key], buckets)
        for key, buckets in log.durations.items()
    ]
    lines += _durations("http_request_duration_seconds", _BY_HANDLER, by_handler, created=created)
    return lines


def _requests(log: HttpLog, *, created: bool) -> list[str]:
    name = "http_requests_total"
    made: list[_Series] = []
    lines = header(name, "counter", _REQUESTS)
    for key, count in log.requests.items():
        pairs = dict(zip(("handler", "method", "status"), key, strict=True))
        lines.append(f"{name}{labels(pairs)} {number(count)}")
        made.append((pairs, log.requests_created[key]))
    return lines + (_created("http_requests_created", _REQUESTS, made) if created else [])


def _sizes(log: HttpLog, index: int, direction: str, *, created: bool) -> list[str]:
    name = f"http_{direction}_size_bytes"
    text = _SIZE.format("incoming requests" if direction == "request" else "outgoing responses")
    lines = header(name, "summary", text)
    made: list[_Series] = []
    for handler, size in log.sizes.items():
        pairs = {"handler": handler}
        lines.append(f"{name}_count{labels(pairs)} {number(size[0])}")
        lines.append(f"{name}_sum{labels(pairs)} {number(size[index])}")
        made.append((pairs, size[3]))
    return lines + (_created(f"{name}_created", text, made) if created else [])


def _durations(
    name: str, text: str, series: Sequence[tuple[dict[str, str], float, Buckets]], *, created: bool
) -> list[str]:
    lines = header(name, "histogram", text)
    for pairs, _, buckets in series:
        histogram = buckets.snapshot()
        for bound, count in zip(histogram.bounds, histogram.cumulative, strict=True):
            le = "+Inf" if bound == float("inf") else repr(bound)
            lines.append(f"{name}_bucket{labels({**pairs, 'le': le})} {number(count)}")
        lines.append(f"{name}_count{labels(pairs)} {number(histogram.count)}")
        lines.append(f"{name}_sum{labels(pairs)} {number(histogram.sum or 0.0)}")
    made = [(pairs, when) for pairs, when, _ in series]
    return lines + (_created(f"{name}_created", text, made) if created else [])


def _created(name: str, text: str, series: Iterable[_Series]) -> list[str]:
    lines = header(name, "gauge", text)
    return lines + [f"{name}{labels(pairs)} {number(when)}" for pairs, when in series]
