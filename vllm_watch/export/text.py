"""Render the board's results as Prometheus text 0.0.4 or OpenMetrics 1.0."""

import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any
from zlib import crc32

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from vllm_watch.board.board import Board
from vllm_watch.export.families import FAMILIES
from vllm_watch.export.family import Family, Scope
from vllm_watch.export.gpu_families import GpuRow
from vllm_watch.signals.records import EngineSignals

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_HERE = "\0"  # placeholder for labels; no label or name contains it
_LABEL_CHARACTERS_MAX = 256  # fits a model path

Rows = Sequence[tuple[str, Any]]  # pairs of rendered scope labels and record


def render(board: Board, own: CollectorRegistry, *, openmetrics: bool = False) -> bytes:
    """Return the text. The watcher's process metrics (`own`) come last."""
    rows = _rows(board)
    parts: list[str] = []
    for family in FAMILIES:
        if lines := _samples(family, rows[family.scope]):
            parts.append(_head(family, openmetrics))
            parts.extend(lines)
    own_lines = generate_openmetrics(own) if openmetrics else generate_latest(own)  # type: ignore[no-untyped-call]
    parts.append(own_lines.decode())
    # Names from /proc may be invalid UTF-8.
    return "".join(parts).encode("utf-8", "replace")


def own_metrics() -> CollectorRegistry:
    """Return the watcher's process metrics."""
    own = CollectorRegistry()
    ProcessCollector(registry=own)
    PlatformCollector(registry=own)
    return own


def wants_openmetrics(accept: str) -> bool:
    """Return True if the client prefers OpenMetrics."""
    best = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for item in accept.split(","):
        media, *parameters = (part.strip() for part in item.split(";"))
        if media in best:
            best[media] = max(best[media], _quality(parameters))
    return best["application/openmetrics-text"] > best["text/plain"]


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _rows(board: Board) -> dict[Scope, Rows]:
    targets, engines, sources = [], [], []
    for name, entry in board.targets.items():
        target = _label("target", name)
        targets.append((target, entry))
        sources += [
            (f"{_label('source', s)},{target}", health) for s, health in entry.sources.items()
        ]
        if entry.signals is not None:
            found = entry.signals.engines.values() or (
                EngineSignals(engine="", state=entry.signals.state),
            )
            engines += [
                (f"{target},{_label('engine', e.engine)},{_label('model_name', e.model_name)}", e)
                for e in found
            ]
    sources += [
        (f'{_label("source", s)},target=""', health) for s, health in board.host_sources.items()
    ]
    shared = [
        (_label("target", entry.target.name), entry)
        for entry in (board.own, board.host)
        if any(entry.incidents.opened.values())
    ]
    notifiers = [(_label("notifier", name), health) for name, health in sorted(board.notifiers.items())]  # fmt: skip
    return {
        "watcher": [("", board)], "notifier": notifiers, "target": targets, "incidents": [*targets, *shared], "engine": engines,
        "source": sources, "gpu": _gpu_rows(board),
    }  # fmt: skip


def _gpu_rows(board: Board) -> Rows:
    reading = board.gpus
    if reading is None or reading.gpus is None:
        return ()
    host, driver = socket.gethostname(), reading.driver_version or ""
    return [
        (
            _label("gpu", gpu.uuid),
            GpuRow(
                gpu=gpu,
                host=host,
                driver_version=driver,
                xid_errors=board.xid_errors.get(gpu.uuid, {}),
                judged=board.holders.get(gpu.uuid),
            ),
        )
        for gpu in reading.gpus
    ]


def _samples(family: Family, rows: Rows) -> list[str]:
    # A hot path: a thousand targets have a hundred thousand lines.
    name = family.name
    if family.bounds:
        form = _histogram_form(name, family.bounds)
        told = ((labels, family.histogram(row)) for labels, row in rows)
        return [
            (form % (*each[2:], each[0], each[1], each[0])).replace(_HERE, labels)
            for labels, each in told
            if each is not None
        ]
    if family.value is not None:
        read = family.value
        return [
            f"{name}{{{labels}}} {repr(value) if isfinite(value) else _infinite(value)}\n"
            if labels
            else f"{name} {value!r}\n"
            for labels, row in rows
            if (value := read(row)) is not None
        ]
    lines = []
    read_series, own_labels = family.series, family.labels
    if family.few:
        found = ((labels, read_series(row)) for labels, row in rows)
        return [
            _form(name, own_labels, tuple(s)).replace(_HERE, labels) for labels, s in found if s
        ]
    for labels, row in rows:
        comma = "," if labels else ""
        for values, value in read_series(row) or ():
            if value is not None:
                number = repr(value) if isfinite(value) else _infinite(value)
                lines.append(f"{name}{{{labels}{comma}{_labels(own_labels, values)}}} {number}\n")
    return lines


def _head(family: Family, openmetrics: bool) -> str:
    """OpenMetrics drops the suffix of counters and infos."""
    name, kind = family.name, family.kind
    if openmetrics:
        name = name.removesuffix("_total") if kind == "counter" else name
        name = name.removesuffix("_info") if kind == "info" else name
        text = family.help_text.replace('"', '\\"')
    else:
        kind = "gauge" if kind == "info" else kind
        text = family.help_text
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _infinite(value: float) -> str:
    return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"  # noqa: PLR0124


@lru_cache(maxsize=16)
def _histogram_form(name: str, bounds: tuple[float, ...]) -> str:
    les = [repr(bound) for bound in bounds] + ["+Inf"]
    lines = [f'{name}_bucket{{{_HERE},le="{le}"}} %r\n' for le in les]
    return "".join([*lines, f"{name}_sum{{{_HERE}}} %r\n", f"{name}_count{{{_HERE}}} %r\n"])


@lru_cache(maxsize=1024)
def _form(
    name: str, own_labels: tuple[str, ...], series: tuple[tuple[tuple[str, ...], float], ...]
) -> str:
    return "".join(
        f"{name}{{{_HERE},{_labels(own_labels, values)}}} {value!r}\n" for values, value in series
    )


@lru_cache(maxsize=1024)  # the same for every target
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(_label(name, value) for name, value in zip(names, values, strict=True))


def _label(name: str, value: str) -> str:
    if len(value) > _LABEL_CHARACTERS_MAX:
        # The checksum distinguishes values that differ only at the end.
        value = f"{value[:_LABEL_CHARACTERS_MAX]}~{crc32(value.encode('utf-8', 'replace')):08x}"
    value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{value}"'
