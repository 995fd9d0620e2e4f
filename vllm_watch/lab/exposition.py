"""The /metrics text of a simulated server, line for line as prometheus_client and its vLLM release write it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.utils import floatToGoString

from vllm_watch.lab import reading
from vllm_watch.lab.ledger import Buckets, HttpLog
from vllm_watch.lab.release import Family
from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import ServerSample

if TYPE_CHECKING:
    from vllm_watch.lab.vllm import SimulatedVllm


number: Callable[[float], str] = floatToGoString


def header(name: str, kind: str, text: str) -> list[str]:
    """Return the HELP and TYPE lines of a family."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def labels(pairs: Mapping[str, str]) -> str:
    """Return the labels, sorted by name."""
    if not pairs:
        return ""
    inside = ",".join(f'{key}="{_escaped(pairs[key])}"' for key in sorted(pairs))
    return "{" + inside + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


_REQUESTS = "Total number of requests by method, status and handler."
_SIZE = (
    "Content length of {} by handler. Only value of header is respected. Otherwise ignored. "
    "No percentile calculated. "
)
_ALL = "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. "
_BY_HANDLER = "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. "

_Series = tuple[dict[str, str], float]  # labels, Unix time of creation
# Name, type, help, lines, and the series with their times of creation.
_HttpFamily = tuple[str, str, str, list[str], list[_Series]]


def http_lines(log: HttpLog, *, created: bool) -> list[str]:
    """Return the lines. `created` adds the `*_created` families."""
    lines: list[str] = []
    for name, kind, text, values, series in _http_families(log) if log.requests else ():
        lines += [*header(name, kind, text), *values]
        if created:
            made = f"{name.removesuffix('_total')}_created"
            lines += header(made, "gauge", text)
            lines += [f"{made}{labels(pairs)} {number(when)}" for pairs, when in series]
    return lines


def _http_families(log: HttpLog) -> Iterator[_HttpFamily]:
    name = "http_requests_total"
    lines, series = [], []
    for key, (count, created) in log.requests.items():
        pairs = dict(zip(("handler", "method", "status"), key, strict=True))
        lines.append(f"{name}{labels(pairs)} {number(count)}")
        series.append((pairs, created))
    yield name, "counter", _REQUESTS, lines, series
    series = [({"handler": handler}, size[3]) for handler, size in log.sizes.items()]
    for index, name, what in (
        (1, "http_request_size_bytes", "incoming requests"),
        (2, "http_response_size_bytes", "outgoing responses"),
    ):
        lines = []
        for (pairs, _), size in zip(series, log.sizes.values(), strict=True):
            lines.append(f"{name}_count{labels(pairs)} {number(size[0])}")
            lines.append(f"{name}_sum{labels(pairs)} {number(size[index])}")
        yield name, "summary", _SIZE.format(what), lines, series
    by_handler: list[_Durations] = [
        ({"handler": handler, "method": method}, *durations)
        for (handler, method), durations in log.durations.items()
    ]
    first_t = by_handler[0][2]
    every: list[_Durations] = [({}, log.all_durations, first_t)]
    yield _durations("http_request_duration_highr_seconds", _ALL, every)
    yield _durations("http_request_duration_seconds", _BY_HANDLER, by_handler)


_Durations = tuple[dict[str, str], Buckets, float]


def _durations(name: str, text: str, series: list[_Durations]) -> _HttpFamily:
    lines = []
    for pairs, buckets, _ in series:
        histogram = buckets.snapshot()
        for bound, count in zip(histogram.bounds, histogram.cumulative, strict=True):
            lines.append(f"{name}_bucket{labels({**pairs, 'le': number(bound)})} {number(count)}")
        lines.append(f"{name}_count{labels(pairs)} {number(histogram.count)}")
        lines.append(f"{name}_sum{labels(pairs)} {number(histogram.sum or 0.0)}")
    made = [(pairs, created) for pairs, _, created in series]
    return name, "histogram", text, lines, made


class Writer:
    """Writes the bodies of one server."""

    def __init__(self, vllm: "SimulatedVllm") -> None:
        self._vllm = vllm
        self._prefixes: dict[tuple[str, str, str | float], str] = {}

    def body(self) -> str:
        vllm = self._vllm
        sample = reading.read(vllm)
        release = vllm.release
        lines: list[str] = []
        if not release.multiprocess:
            lines += process_lines(sample.server)
        for family in release.families:
            lines += self._family(family, sample.engines)
        if release.http:
            lines += http_lines(vllm.http, created=not release.multiprocess)
        lines.append("")
        return "\n".join(lines)

    def _family(self, family: Family, engines: tuple[EngineSample, ...]) -> list[str]:
        shown = engines[:1] if family.server_wide else engines
        values = [(engine, getattr(engine, family.field)) for engine in shown]
        if not values or values[0][1] is None:
            return []
        lines = header(family.name, "gauge" if family.type == "info" else family.type, family.help)
        match family.type:
            case "histogram":
                for engine, histogram in values:
                    lines += self._histogram(family, engine, histogram)
            case "info":
                lines += self._info(family, values)
            case _:
                lines += self._plain(family, family.name, values, number)
        if family.type in ("counter", "histogram") and not self._vllm.release.multiprocess:
            lines += self._created(family, values)
        return lines

    def _plain(
        self,
        family: Family,
        name: str,
        values: list[tuple[EngineSample, Any]],
        write: Callable[[float], str],
    ) -> list[str]:
        if not family.label:
            return [self._prefix(family, name, engine) + write(each) for engine, each in values]
        # Series are ordered by label value first, then by engine.
        by_label: dict[str, list[str]] = {}
        for engine, labelled in values:
            for key, value in labelled.items():
                prefix = self._prefix(family, name, engine, family.label, key)
                by_label.setdefault(key, []).append(prefix + write(value))
        return [line for lines in by_label.values() for line in lines]

    def _created(self, family: Family, values: list[tuple[EngineSample, Any]]) -> list[str]:
        name = family.name if family.type == "histogram" else family.name.removesuffix("_total")
        name += "_created"
        when = number(values[0][0].created_time or 0.0)
        lines = header(name, "gauge", family.help)
        return lines + self._plain(family, name, values, lambda _: when)

    def _histogram(self, family: Family, engine: EngineSample, histogram: Histogram) -> list[str]:
        name = family.name
        lines = [
            self._prefix(family, f"{name}_bucket", engine, "le", bound) + number(count)
            for bound, count in zip(histogram.bounds, histogram.cumulative, strict=True)
        ]
        lines.append(self._prefix(family, f"{name}_count", engine) + number(histogram.count))
        total = self._prefix(family, f"{name}_sum", engine) + number(histogram.sum or 0.0)
        # With several processes, the sum comes first.
        return [total, *lines] if self._vllm.release.multiprocess else [*lines, total]

    def _info(
        self, family: Family, values: Iterable[tuple[EngineSample, Mapping[str, str]]]
    ) -> list[str]:
        vllm = self._vllm
        if family.field == "lora_requests_info":
            sets = vllm.lora_sets or {("", ""): vllm.epoch + vllm.t}
            told = ((reading.lora_labels(vllm, *names), t) for names, t in sets.items())
            return [f"{family.name}{labels(pairs)} {number(t)}" for pairs, t in told]
        lines = []
        for engine, pairs in values:
            own = {"engine": engine.engine} if vllm.release.engine_label else {}
            lines.append(f"{family.name}{labels({**pairs, **own})} 1.0")
        return lines

    def _prefix(
        self,
        family: Family,
        name: str,
        engine: EngineSample,
        label: str = "",
        value: str | float = "",
    ) -> str:
        found = self._prefixes.get((name, engine.engine, value))
        if found is None:
            own = {label: value if isinstance(value, str) else number(value)} if label else {}
            if self._vllm.release.engine_label and not family.server_wide:
                own["engine"] = engine.engine
            text = f"{name}{labels({**own, 'model_name': engine.model_name or ''})} "
            found = self._prefixes[name, engine.engine, value] = text
        return found


_GENERATIONS = 3
_GC_OBJECTS = (22_842.0, 3132.0, 81.0)  # by generation
_GC_RUNS = (1365.0, 123.0, 9.0)
_GC_RUNS_PER_CPU_SECOND = (20.0, 1.8, 0.15)
_GC_OBJECTS_PER_RUN = (40.0, 300.0, 900.0)
_VIRTUAL_BYTES = 2_287_620_096.0
_MAX_FDS = 65_536.0
_PYTHON = {
    "implementation": "CPython",
    "major": "3",
    "minor": "11",
    "patchlevel": "7",
    "version": "3.11.7",
}


def process_lines(server: ServerSample) -> list[str]:
    """Return the process_* and python_* series of the API server."""
    cpu_seconds = server.process_cpu_seconds or 0.0
    runs = [
        n + cpu_seconds * more for n, more in zip(_GC_RUNS, _GC_RUNS_PER_CPU_SECOND, strict=True)
    ]
    objects = [
        first + (now - then) * each
        for first, now, then, each in zip(
            _GC_OBJECTS, runs, _GC_RUNS, _GC_OBJECTS_PER_RUN, strict=True
        )
    ]
    lines = []
    for kind, text, values in (
        ("objects_collected", "Objects collected during gc", objects),
        ("objects_uncollectable", "Uncollectable objects found during GC", [0.0] * _GENERATIONS),
        ("collections", "Number of times this generation was collected", runs),
    ):
        name = f"python_gc_{kind}_total"
        lines += header(name, "counter", text)
        lines += [
            f'{name}{{generation="{g}"}} {number(float(int(v)))}' for g, v in enumerate(values)
        ]
    lines += [*header("python_info", "gauge", "Python platform information")]
    lines.append(f"python_info{labels(_PYTHON)} 1.0")
    for name, kind, text, value in (
        ("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", _VIRTUAL_BYTES),
        ("resident_memory_bytes", "gauge", "Resident memory size in bytes.", server.process_resident_memory_bytes),
        ("start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", server.process_start_time),
        ("cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", cpu_seconds),
        ("open_fds", "gauge", "Number of open file descriptors.", server.process_open_fds),
        ("max_fds", "gauge", "Maximum number of open file descriptors.", _MAX_FDS),
    ):  # fmt: skip
        full = f"process_{name}"
        lines += [*header(full, kind, text), f"{full} {number(value or 0.0)}"]
    return lines
