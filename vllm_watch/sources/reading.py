"""One /metrics body → one Reading: which number of the body is which field of which engine.

The binding of fields to positions is worked out once per layout (see `exposition`) and shared by
every target with that layout; after that a reading is picking numbers out of a list.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import Reading, ServerSample
from vllm_watch.sources import vllm_names
from vllm_watch.sources.body_deltas import Lines
from vllm_watch.sources.exposition import Layout, Parser, Series
from vllm_watch.sources.vllm_names import FIELDS, Field, Kind

Values = list[float]
Take = Callable[[Values], Any]

_ENGINE_IF_UNNAMED = "0"
ENGINES_MAX = 512
"""Engines read of one body; vLLM's largest data-parallel deployments have some hundreds of ranks."""

LABEL_VALUES_MAX = 64
"""Values of a label that are kept apart; vLLM's own labels (finished_reason, source) have under ten."""

OTHER_LABEL_VALUES = "other"
_HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
_INFO = frozenset(
    name for field in FIELDS.values() if field.kind is Kind.INFO for name in field.names
)
_OTHER_SERVERS = {
    "sglang:": "SGLang",
    "tgi_": "Text Generation Inference",
    "nv_inference_": "Triton",
}


class Reader:
    """Reads the bodies of one target."""

    def __init__(self) -> None:
        self._parser = Parser()
        self.lines: Lines | None = None  # the last body, where it was read line by line

    def read(self, body: str, *, openmetrics: bool = False) -> Reading:
        """Raises ExpositionError for a body that is not in the format."""
        self.lines = None
        exposition = self._parser.parse(body, openmetrics=openmetrics)
        binding = _bindings.get(exposition.layout)
        if binding is None:
            binding = _bindings[exposition.layout] = _bind(exposition.layout)
        if exposition.tails is not None:
            self.lines = Lines(exposition.layout.heads, exposition.tails, exposition.words)
        return binding.read(exposition.values)


@dataclass(frozen=True, slots=True)
class _Binding:
    """How to make a Reading of the numbers of one layout."""

    engines: tuple[tuple[dict[str, Any], tuple[tuple[str, Take], ...]], ...]
    server: tuple[tuple[str, Take], ...]
    constant: dict[str, Any]

    def read(self, values: Values) -> Reading:
        engines = []
        for fixed, takes in self.engines:
            fields = dict(fixed)
            for name, take in takes:
                fields[name] = take(values)
            engines.append(EngineSample(**fields))
        server = ServerSample(**{name: take(values) for name, take in self.server})
        return Reading(engines=tuple(engines), server=server, **self.constant)


_bindings: WeakKeyDictionary[Layout, _Binding] = WeakKeyDictionary()


class _Row:
    """One series with its position among the body's numbers and its name as vLLM spells it."""

    __slots__ = ("index", "labels", "name")

    def __init__(self, index: int, series: Series) -> None:
        self.index = index
        self.name = vllm_names.canonical(series.name)
        self.labels = series.labels


def _bind(layout: Layout) -> _Binding:
    rows = [_Row(index, series) for index, series in enumerate(layout.series)]
    by_name: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_name[row.name].append(row)
    vllm = [row for row in rows if row.name.startswith("vllm:")]
    why_not = None if vllm else _why_not_vllm(by_name)
    keys = _engine_keys(vllm)
    engines = []
    if vllm or _may_be_vllm(by_name):
        by_engine: dict[tuple[str, str | None], list[_Row]] = defaultdict(list)
        for row in rows:
            by_engine[row.name, keys.of(row)].append(row)
        http = _bind_http(by_name)
        engines = [_bind_engine(key, by_name, by_engine, http) for key in keys.all[:ENGINES_MAX]]
    process = {"process_start_time": "process_start_time_seconds", **vllm_names.PROCESS}
    server = tuple((f, _max_of(by_name[n])) for f, n in process.items() if n in by_name)
    constant = {
        "vllm": bool(vllm),
        "why_not": why_not,
        "engine_kind": _engine_kind(vllm) if vllm else None,
        "unknown_families": _unknown_families(vllm),
    }
    return _Binding(tuple(engines), server, constant)


class _engine_keys:  # noqa: N801 - a function with two results
    """Which engines a body speaks of, and which of them a row belongs to (None: to all)."""

    def __init__(self, rows: Iterable[_Row]) -> None:
        replicas = {row.labels["ReplicaId"] for row in rows if "ReplicaId" in row.labels}
        # Ray's agent answers for every replica on its node; alone, a replica is simply the engine.
        self._by_replica = len(replicas) > 1
        # vLLM 0.9.2 loses the metrics of all data-parallel engines but the last, and leaves the others'
        # configuration: an engine of which nothing else is said is not one that we can see.
        found = {key for row in rows if row.name not in _INFO and (key := self.of(row)) is not None}
        self.all = sorted(found or {_ENGINE_IF_UNNAMED}, key=lambda key: (len(key), key))

    def of(self, row: _Row) -> str | None:
        engine = row.labels.get("engine")
        if self._by_replica and "ReplicaId" in row.labels:
            return f"{row.labels['ReplicaId']}/{engine or _ENGINE_IF_UNNAMED}"
        return engine


def _bind_engine(
    key: str,
    by_name: Mapping[str, list[_Row]],
    by_engine: Mapping[tuple[str, str | None], list[_Row]],
    http: Take | None,
) -> tuple[dict[str, Any], tuple[tuple[str, Take], ...]]:
    def rows_of(name: str) -> list[_Row]:
        own = by_engine.get((name, key))
        if own or name not in _INFO:
            return own or by_engine.get((name, None), [])
        return by_name.get(
            name, []
        )  # the configuration is the server's: every engine's says the same

    takes = []
    for field_name, field in FIELDS.items():
        take = _bind_field(field, rows_of)
        if take is not None:
            takes.append((field_name, take))
    created = rows_of("vllm:generation_tokens_created") or rows_of("vllm:prompt_tokens_created")
    if created:
        takes.append(("created_time", _max_of(created)))
    if http is not None:
        takes.append(("http", http))
    return {"engine": key, "model_name": _model_name(rows_of)}, tuple(takes)


def _model_name(rows_of: Callable[[str], list[_Row]]) -> str | None:
    for name in (
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
    ):
        for row in rows_of(name):
            if "model_name" in row.labels:
                return row.labels["model_name"]
    return None


def _bind_field(field: Field, rows_of: Callable[[str], list[_Row]]) -> Take | None:
    if field.kind is Kind.HISTOGRAM:
        for name in field.names:
            take = _bind_histogram(name, field.scale, rows_of)
            if take is not None:
                return take
        return None
    candidates = [rows for name in field.names if (rows := _plain_rows(name, rows_of))]
    if not candidates:
        return None
    # vLLM 0.9.2 with several API servers gives the KV usage once per process, stale ones included;
    # the older name beside it is merged properly.
    rows = next((c for c in candidates if not any("pid" in row.labels for row in c)), candidates[0])
    match field.kind:
        case Kind.SUM:
            return _sum_of(rows)
        case Kind.MAX:
            return _max_of(rows)
        case Kind.INFO:
            return _info_of(rows)
    return _labelled(rows, field.label)


def _plain_rows(name: str, rows_of: Callable[[str], list[_Row]]) -> list[_Row]:
    # Ray writes counters with and without their suffix, depending on its version.
    return rows_of(name) or (
        rows_of(name.removesuffix("_total")) if name.endswith("_total") else []
    )


def _sum_of(rows: list[_Row]) -> Take:
    if len(rows) == 1:
        return itemgetter(rows[0].index)
    pick = itemgetter(*(row.index for row in rows))
    return lambda values: sum(pick(values))


def _max_of(rows: list[_Row]) -> Take:
    if len(rows) == 1:
        return itemgetter(rows[0].index)
    pick = itemgetter(*(row.index for row in rows))
    return lambda values: max(pick(values))


def _labelled(rows: list[_Row], label: str) -> Take:
    groups: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        value = row.labels.get(label, "")
        known = value in groups or len(groups) < LABEL_VALUES_MAX
        groups[value if known else OTHER_LABEL_VALUES].append(row)
    takes = [(key, _sum_of(group)) for key, group in groups.items()]
    return lambda values: {key: take(values) for key, take in takes}


def _info_of(rows: list[_Row]) -> Take:
    labels = [{k: v for k, v in row.labels.items() if k != "engine"} for row in rows]
    if len(rows) == 1:
        only = labels[0]
        return lambda _: only
    pick = itemgetter(*(row.index for row in rows))

    def newest(values: Values) -> dict[str, str]:
        times: tuple[float, ...] = pick(values)
        return labels[times.index(max(times))]

    return newest


def _bind_histogram(name: str, scale: float, rows_of: Callable[[str], list[_Row]]) -> Take | None:
    buckets, sums, counts = (rows_of(name + suffix) for suffix in _HISTOGRAM_SUFFIXES)
    if not counts and not buckets:
        return None
    by_bound: dict[float, list[_Row]] = defaultdict(list)
    for row in buckets:
        by_bound[_bound(row.labels.get("le", "+Inf"))].append(row)
    order = sorted(by_bound)
    bounds = tuple(bound * scale for bound in order)
    cumulative = _tuple_of([by_bound[bound] for bound in order])
    total = _sum_of(sums) if sums else None
    # A histogram whose count was lost on the way still has it in its last bucket.
    count = _sum_of(counts) if counts else _sum_of(by_bound[order[-1]])

    def take(values: Values) -> Histogram:
        summed = None if total is None else total(values) * scale
        return Histogram(count(values), summed, bounds, cumulative(values))

    return take


def _tuple_of(groups: list[list[_Row]]) -> Callable[[Values], tuple[float, ...]]:
    if all(len(group) == 1 for group in groups):
        indices = [group[0].index for group in groups]
        if len(indices) > 1:
            return itemgetter(*indices)
    takes = [_sum_of(group) for group in groups]
    return lambda values: tuple([take(values) for take in takes])


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")


def _bind_http(by_name: Mapping[str, list[_Row]]) -> Take | None:
    takes: list[tuple[str, Take]] = []
    requests = by_name.get(vllm_names.HTTP_REQUESTS)
    if requests:
        takes.append(("requests", _labelled(requests, "status")))
    for part, family in vllm_names.HTTP_TOTALS.items():
        counts, sums = by_name.get(family + "_count"), by_name.get(family + "_sum")
        if counts and sums:
            takes.append((part, _count_and_sum(_sum_of(counts), _sum_of(sums))))
    if not takes:
        return None
    return lambda values: {part: take(values) for part, take in takes}


def _count_and_sum(count: Take, total: Take) -> Take:
    return lambda values: {"count": count(values), "sum": total(values)}


def _engine_kind(rows: list[_Row]) -> str:
    names = {row.name for row in rows}
    if any("engine" in row.labels for row in rows):
        return "V1"  # V0 never had the label; V1 has it from 0.8.3
    if names & vllm_names.V0_ONLY:
        return "V0"
    return "V1" if names & vllm_names.V1_ONLY else "V0"


def _unknown_families(rows: list[_Row]) -> tuple[str, ...]:
    known = {name for field in FIELDS.values() for name in field.names}
    unknown = set()
    for row in rows:
        name = row.name
        bases = {name, name + "_total", *(name.removesuffix(s) for s in _HISTOGRAM_SUFFIXES)}
        if name.endswith("_created"):
            base = name.removesuffix("_created")
            bases |= {base, base + "_total"}
        if not bases & known:
            unknown.add(_family(name))
    return tuple(sorted(unknown))


def _family(name: str) -> str:
    for suffix in (*_HISTOGRAM_SUFFIXES, "_total", "_created"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _may_be_vllm(by_name: Mapping[str, list[_Row]]) -> bool:
    """Could this be a vLLM whose own series are off? Then what its process says is still worth reading."""
    if _serves_openai(by_name):
        return True
    return bool(by_name) and all(name.startswith(("python_", "process_")) for name in by_name)


def _serves_openai(by_name: Mapping[str, list[_Row]]) -> bool:
    rows = by_name.get(vllm_names.HTTP_REQUESTS, [])
    return any(row.labels.get("handler", "").startswith("/v1/") for row in rows)


def _why_not_vllm(by_name: Mapping[str, list[_Row]]) -> str:
    if not by_name:
        return "the body has no series at all"
    for prefix, product in _OTHER_SERVERS.items():
        if any(name.startswith(prefix) for name in by_name):
            return f"these are the metrics of {product}, not of vLLM"
    if _serves_openai(by_name):
        return (
            "an API server answers, but no vllm: series are there: vLLM runs with "
            "--disable-log-stats, which turns its engine metrics off"
        )
    if _may_be_vllm(by_name):
        return (
            "only python_ and process_ series are there: a vLLM with --disable-log-stats, vLLM 0.5.4 "
            "with its default front end (which lost its metrics), or another Python server"
        )
    first = next(iter(by_name))
    return f"none of its series is vLLM's (it has {len(by_name)} names, the first is {first!r})"
