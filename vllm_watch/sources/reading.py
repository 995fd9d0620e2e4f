"""Turn a /metrics body into a Reading.

Fields are located once per layout (names and labels). The result is functions that pick each field
from a body's numbers.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from vllm_watch.samples.engine import COUNTED, FIELDS, JUDGED, EngineSample, Field, Histogram, Kind
from vllm_watch.samples.observation import Reading, ServerSample
from vllm_watch.sources import vllm_names
from vllm_watch.sources.exposition import SERIES_MAX, Exposition, Layout, Lines, Parser
from vllm_watch.sources.vllm_names import HISTOGRAM_SUFFIXES
from vllm_watch.support.redaction import redacted

Values = Sequence[float]
Take = Callable[[Values], Any]
T = TypeVar("T")

_ENGINE_IF_UNNAMED = "0"
ENGINES_MAX = 64
"""At most this many engines are read per body. An engine has about 400 lines, so SERIES_MAX lines hold no more."""

NAME_CHARACTERS_MAX = 256
"""Names longer than this are cut, because they are labels of every exported series."""

LABEL_VALUES_MAX = 64
"""At most this many values of a label are kept apart. vLLM's own labels (finished_reason, source) have under ten."""

OTHER_LABEL_VALUES = "other"

BUCKETS_MAX = 200
"""At most this many buckets of a histogram are kept. vLLM's histograms have at most 40."""

EQUAL_LABELS_MAX = 1_000
"""At most this many label sets are shared. Sharing more may take more memory than it saves."""

_INFO = frozenset(
    name for field in FIELDS.values() if field.kind is Kind.INFO for name in field.names
)
_CREATED = ("vllm:generation_tokens_created", "vllm:prompt_tokens_created")
_READ = {
    name + suffix
    for field in FIELDS.values()
    for name in field.names
    for suffix in ("", *HISTOGRAM_SUFFIXES)
}
_READ |= {name.removesuffix("_total") for name in _READ}
_READ |= {
    *vllm_names.PROCESS.values(),
    vllm_names.HTTP_REQUESTS,
    "process_start_time_seconds",
    *_CREATED,
}
_READ |= {name + suffix for name in vllm_names.HTTP_TOTALS.values() for suffix in ("_sum", "_count")}  # fmt: skip

_LABELS_READ = frozenset(
    ("ReplicaId", "engine", "handler", "le", "model_name", "pid", "status")
) | {field.label for field in FIELDS.values()}

OURS = "vllm-watch"
_PREFIXES = (
    ("vllm_watch_", OURS),
    ("sglang:", "SGLang"),
    ("tgi_", "Text Generation Inference"),
    ("llamacpp:", "llama.cpp"),
    ("nv_inference_", "Triton"),
    ("litellm_", "LiteLLM"),
    ("DCGM_FI_", "NVIDIA's DCGM exporter"),
    ("node_exporter_", "node_exporter"),
    ("alertmanager_build_info", "Alertmanager"),
    ("prometheus_build_info", "Prometheus"),
    ("prometheus_tsdb_", "Prometheus"),
)


class Row:
    """A series. Its labels are a flat tuple, which needs less memory than a dictionary."""

    __slots__ = ("_labels", "index", "name")

    def __init__(self, index: int, name: str, labels: tuple[str, ...]) -> None:
        self.index = index
        self.name = name
        self._labels = labels

    @property
    def labels(self) -> dict[str, str]:
        return dict(zip(self._labels[::2], self._labels[1::2], strict=True))

    def label(self, name: str) -> str | None:
        for at in range(0, len(self._labels), 2):
            if self._labels[at] == name:
                return self._labels[at + 1]
        return None


class Reader:
    """Reads the bodies of one target."""

    def __init__(self, *, judged_only: bool = False) -> None:
        """With `judged_only`, read only `samples.engine.JUDGED`, and check other numbers only for invalid characters."""
        self._parser = Parser()
        self._judged_only = judged_only
        self.lines: Lines | None = None

    def read(self, body: str, *, openmetrics: bool = False, lines_max: int = SERIES_MAX) -> Reading:
        """Raises ExpositionError if the body is not a Prometheus exposition."""
        self.lines = None
        exposition = self._parser.parse(
            body, openmetrics=openmetrics, lazily=self._judged_only, lines_max=lines_max
        )
        try:
            reading = self._binding(exposition.layout).read(exposition)
        except ValueError:
            exposition = self._parser.parse(body, openmetrics=openmetrics)
            reading = self._binding(exposition.layout).read(exposition)
        if exposition.tails is not None:
            self.lines = Lines(exposition.layout.heads, exposition.tails)
        return reading

    def _binding(self, layout: Layout) -> "_Binding":
        binding = layout.bindings.get(self._judged_only)
        if binding is None:
            fields = JUDGED if self._judged_only else _ALL
            binding = layout.bindings[self._judged_only] = _bind(layout, fields)
        return binding


@dataclass(frozen=True, slots=True)
class _EngineBinding:
    fields: list[Any]  # in the order of EngineSample's
    plain: tuple[int, ...]
    pick: Callable[[Values], tuple[float, ...]]
    takes: tuple[tuple[int, Take], ...]

    def read(self, values: Values) -> EngineSample:
        fields = self.fields.copy()
        for place, value in zip(self.plain, self.pick(values), strict=True):
            fields[place] = value
        for place, take in self.takes:
            fields[place] = take(values)
        return EngineSample(*fields)


@dataclass(frozen=True, slots=True)
class _Binding:
    of_values: Callable[[Values], tuple[float, ...]]
    of_words: Callable[[list[str]], tuple[str, ...]]
    engines: tuple[_EngineBinding, ...]
    server: tuple[tuple[str, Take], ...]
    constant: dict[str, Any]

    def read(self, exposition: Exposition) -> Reading:
        words = exposition.words
        if exposition.values is not None:
            return self.build(self.of_values(exposition.values))
        assert words is not None  # noqa: S101 - one is set
        return self.build(tuple(map(float, self.of_words(words))))

    def build(self, values: Values) -> Reading:
        engines = tuple([engine.read(values) for engine in self.engines])
        server = ServerSample(**{name: take(values) for name, take in self.server})
        return Reading(engines=engines, server=server, **self.constant)


_ALL = frozenset((*FIELDS, "created_time", "http"))
_PLACES = {name: place for place, name in enumerate(EngineSample.__annotations__)}


def _bind(layout: Layout, fields: Container[str]) -> _Binding:
    nim = vllm_names.is_nim(set(map(vllm_names.canonical, layout.names)))

    def spelled(name: str) -> str:
        return vllm_names.of_nim(name) if nim else vllm_names.canonical(name)

    names = dict.fromkeys(map(spelled, layout.names))
    some = layout.some(lambda name: spelled(name) in _READ)
    named = ((at, spelled(one.name), one.labels) for at, one in some)
    rows = make_rows(
        (at, name, {k: v for k, v in labels.items() if k in _LABELS_READ or name in _INFO})
        for at, name, labels in named
    )
    needed: Any = defaultdict(float)  # gets a key for each number that is read
    _bind_rows(rows, names, fields, [], []).build(needed)
    indices = sorted(needed)
    places = {index: place for place, index in enumerate(indices)}
    for row in rows:
        row.index = places.get(row.index, len(indices))
    binding = _bind_rows(rows, names, fields, indices, layout.lines_of(indices))
    if nim:
        binding.constant["engine_kind"] = None  # NIM's names do not show the kind
    return binding


def _bind_rows(
    rows: list[Row],
    names: Mapping[str, None],
    fields: Container[str],
    indices: list[int],
    lines: list[int],
) -> _Binding:
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row.name].append(row)
    rows_of_vllm = [row for row in rows if row.name.startswith("vllm:")]
    vllm = {name for name in names if name.startswith("vllm:")}
    why_not = None if vllm else _why_not_vllm(by_name, names)
    keys, engine_of = _engine_keys(rows_of_vllm)
    engines = []
    if vllm or _may_be_vllm(by_name, names):
        read = frozenset((None, *keys[:ENGINES_MAX]))
        by_engine: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
        for row in rows:
            if (key := engine_of(row)) in read:
                by_engine[row.name, key].append(row)
        http = _bind_http(by_name) if "http" in fields else None
        engines = [
            _bind_engine(key, by_name, by_engine, fields, http) for key in keys[:ENGINES_MAX]
        ]
    process = {"process_start_time": "process_start_time_seconds", **vllm_names.PROCESS}
    server = tuple((f, reduced(by_name[n], max)) for f, n in process.items() if n in by_name)
    constant = {
        "vllm": bool(vllm),
        "why_not": why_not,
        "engine_kind": _engine_kind(vllm, rows_of_vllm) if vllm else None,
        "unknown_families": vllm_names.unknown_families(vllm),
    }
    return _Binding(
        of_values=tuple_at(indices),
        of_words=tuple_at(lines),
        engines=tuple(engines),
        server=server,
        constant=constant,
    )


def _engine_keys(rows: list[Row]) -> tuple[list[str], Callable[[Row], str | None]]:
    """Return a body's engines, and a function from a row to its engine (None if the row belongs to all)."""
    # With Ray's agent, each replica on the node is an engine.
    by_replica = len({row.label("ReplicaId") for row in rows} - {None}) > 1

    def of(row: Row) -> str | None:
        engine = row.label("engine")
        if by_replica and (replica := row.label("ReplicaId")) is not None:
            engine = f"{replica}/{engine or _ENGINE_IF_UNNAMED}"
        return engine and engine[:NAME_CHARACTERS_MAX]

    # Skip cache_config_info. In vLLM 0.9.2, most data-parallel engines have no other series.
    found = {key for row in rows if row.name not in _INFO and (key := of(row)) is not None}
    return sorted(found or {_ENGINE_IF_UNNAMED}, key=lambda key: (len(key), key)), of


def _bind_engine(
    key: str,
    by_name: Mapping[str, list[Row]],
    by_engine: Mapping[tuple[str, str | None], list[Row]],
    fields: Container[str],
    http: Take | None,
) -> _EngineBinding:
    def rows_of(name: str) -> list[Row]:
        own = by_engine.get((name, key))
        if own or name not in _INFO:
            return own or by_engine.get((name, None), [])
        return by_name.get(name, [])  # the configuration is the same for every engine

    counted = COUNTED if fields is JUDGED else ()
    takes = {
        name: take
        for name, field in FIELDS.items()
        if name in fields
        and (take := _bind_field(field, rows_of, buckets=name not in counted)) is not None
    }
    created = next(filter(None, map(rows_of, _CREATED)), None)
    if created and "created_time" in fields:
        takes["created_time"] = reduced(created, max)
    if http is not None:
        takes["http"] = http
    plain = {name: take.index for name, take in takes.items() if isinstance(take, At)}
    return _EngineBinding(
        fields=[key, _model_name(rows_of), *[None] * (len(_PLACES) - 2)],
        plain=tuple(_PLACES[name] for name in plain),
        pick=tuple_at(list(plain.values())),
        takes=tuple((_PLACES[name], take) for name, take in takes.items() if name not in plain),
    )


def _model_name(rows_of: Callable[[str], list[Row]]) -> str | None:
    for name in (
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
    ):
        for row in rows_of(name):
            if (model := row.label("model_name")) is not None:
                return redacted(model[:NAME_CHARACTERS_MAX])
    return None


def _bind_field(field: Field, rows_of: Callable[[str], list[Row]], *, buckets: bool) -> Take | None:
    if field.kind is Kind.HISTOGRAM:
        for name in field.names:
            bounds, sums, counts = (rows_of(name + suffix) for suffix in HISTOGRAM_SUFFIXES)
            if counts or bounds:
                return histogram_of(bounds, sums, counts, field.scale, buckets=buckets)
        return None
    if field.kind is Kind.FAMILIES:
        found = {n: rows_of(n + "_count") or _plain_rows(n, rows_of) for n in field.names}
        groups = {vllm_names.short(n): rows for n, rows in found.items() if rows}
        return by_group(groups) if groups else None
    candidates = [rows for name in field.names if (rows := _plain_rows(name, rows_of))]
    if not candidates:
        return None
    # With several API servers, vLLM 0.9.2 merges only the older name of KV usage correctly.
    rows = next(
        (c for c in candidates if not any(row.label("pid") is not None for row in c)), candidates[0]
    )
    match field.kind:
        case Kind.SUM:
            return reduced(rows, sum)
        case Kind.MAX:
            return reduced(rows, max)
        case Kind.INFO:
            return info_of(rows)
    return labelled(rows, field.label)


def _plain_rows(name: str, rows_of: Callable[[str], list[Row]]) -> list[Row]:
    # Ray writes counters with or without the suffix `_total`, depending on its version.
    return rows_of(name) or (
        rows_of(name.removesuffix("_total")) if name.endswith("_total") else []
    )


def _bind_http(by_name: Mapping[str, list[Row]]) -> Take | None:
    takes: list[tuple[str, Take]] = []
    requests = by_name.get(vllm_names.HTTP_REQUESTS)
    if requests:
        takes.append(("requests", labelled(requests, "status")))
    for part, family in vllm_names.HTTP_TOTALS.items():
        counts, sums = by_name.get(family + "_count"), by_name.get(family + "_sum")
        if counts and sums:
            takes.append((part, by_group({"count": counts, "sum": sums})))
    if not takes:
        return None
    return lambda values: {part: take(values) for part, take in takes}


def _engine_kind(names: Collection[str], rows: list[Row]) -> str:
    if any(row.label("engine") is not None for row in rows):
        return "V1"  # V0 never had the label; V1 has it from 0.8.3
    if not vllm_names.V0_ONLY.isdisjoint(names):
        return "V0"
    return "V0" if vllm_names.V1_ONLY.isdisjoint(names) else "V1"


def _may_be_vllm(by_name: Mapping[str, list[Row]], names: Collection[str]) -> bool:
    if _serves_openai(by_name):
        return True
    return bool(names) and all(name.startswith(("python_", "process_")) for name in names)


def _serves_openai(by_name: Mapping[str, list[Row]]) -> bool:
    rows = by_name.get(vllm_names.HTTP_REQUESTS, [])
    return any((row.label("handler") or "").startswith("/v1/") for row in rows)


def _why_not_vllm(by_name: Mapping[str, list[Row]], names: Collection[str]) -> str:
    if not names:
        return "the body has no series at all"
    found = (its for prefix, its in _PREFIXES if any(name.startswith(prefix) for name in names))
    if (product := next(found, None)) is not None:
        engine = ": give the URL of the engine that it watches" if product == OURS else ""
        return f"these are the metrics of {product}, not of vLLM{engine}"
    if _serves_openai(by_name):
        return (
            "an API server answers, but no vllm: series are there: vLLM runs with "
            "--disable-log-stats, which turns its engine metrics off"
        )
    if _may_be_vllm(by_name, names):
        return (
            "only python_ and process_ series are there: a vLLM with --disable-log-stats, vLLM 0.5.4 "
            "with its default front end (which lost its metrics), or another Python server"
        )
    first = next(iter(names))[:NAME_CHARACTERS_MAX]
    return f"none of its series is vLLM's (it has {len(names)} names, the first is {first!r})"


def make_rows(series: Iterable[tuple[int, str, dict[str, str]]]) -> list[Row]:
    """Return the row of each series (position among all numbers, name, labels)."""
    rows: list[Row] = []
    one: dict[tuple[str, ...], tuple[str, ...]] = {}
    for place, name, labels in series:
        kept = tuple(chain.from_iterable(labels.items()))
        if len(one) < EQUAL_LABELS_MAX:
            kept = one.setdefault(kept, kept)
        rows.append(Row(place, name, kept))
    return rows


class At:
    """Picks one number."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, values: Values) -> float:
        return values[self.index]


def tuple_at(indices: list[int]) -> Callable[[Sequence[T]], tuple[T, ...]]:
    """Return a function that picks these items."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda values: tuple([values[index] for index in indices])


def reduced(rows: list[Row], reduce: Callable[[Values], float]) -> Take:
    """Return a function that reduces these series to one number by `sum` or `max`."""
    if len(rows) == 1:
        return At(rows[0].index)
    pick = itemgetter(*(row.index for row in rows))
    return lambda values: reduce(pick(values))


def labelled(rows: list[Row], label: str) -> Take:
    """Return a function that maps label values to numbers. Values beyond LABEL_VALUES_MAX are summed as "other"."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        value = row.label(label) or ""
        known = value in groups or len(groups) < LABEL_VALUES_MAX
        groups[value if known else OTHER_LABEL_VALUES].append(row)
    return by_group(groups)


def by_group(groups: dict[str, list[Row]]) -> Take:
    """Return a function that sums each group of series."""
    keys, numbers = tuple(groups), _tuple_of(list(groups.values()))
    return lambda values: dict(zip(keys, numbers(values), strict=True))


def info_of(rows: list[Row]) -> Take:
    """Return a function that picks the labels of the newest series. Each value is the time of its series."""
    labels = [{k: v for k, v in row.labels.items() if k != "engine"} for row in rows]
    if len(rows) == 1:
        only = labels[0]
        return lambda _: only
    pick = itemgetter(*(row.index for row in rows))

    def newest(values: Values) -> dict[str, str]:
        times: tuple[float, ...] = pick(values)
        return labels[times.index(max(times))]

    return newest


def histogram_of(
    bounded: list[Row], sums: list[Row], counts: list[Row], scale: float, *, buckets: bool
) -> Take:
    """Return a function that reads a histogram. The bounds and the sum are multiplied by `scale`.
    The counts of the buckets are read only if `buckets` is True."""
    by_bound: dict[float, list[Row]] = defaultdict(list)
    for row in bounded:
        by_bound[_bound(row.label("le") or "+Inf")].append(row)
    order = sorted(by_bound)
    if len(order) > BUCKETS_MAX:
        order = [*order[: BUCKETS_MAX - 1], order[-1]]
    bounds = _one(tuple(bound * scale for bound in order))
    # The last bucket has the count, too, if a proxy dropped `_count`.
    totals = [counts or by_bound[order[-1]], *([sums] if sums else [])]
    numbers = _tuple_of([*totals, *(by_bound[bound] for bound in order if buckets)])
    begin = len(totals)

    def take(values: Values) -> Histogram:
        found = numbers(values)
        return Histogram(found[0], found[1] * scale if sums else None, bounds, found[begin:])

    return take


@lru_cache(maxsize=64)
def _one(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """Return one object for equal bounds, so that comparing them is fast."""
    return bounds


def _tuple_of(groups: list[list[Row]]) -> Callable[[Values], tuple[float, ...]]:
    if all(len(group) == 1 for group in groups):
        return tuple_at([group[0].index for group in groups])
    takes = [reduced(group, sum) for group in groups]
    return lambda values: tuple([take(values) for take in takes])


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")
