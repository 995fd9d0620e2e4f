"""Format the board's results as JSON. Numbers that are not finite become null."""

import json
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING

from vllm_watch import __version__
from vllm_watch.board.board import Board, TargetEntry
from vllm_watch.board.history import SPANS, Charts, ring_seconds
from vllm_watch.board.restarts import RestartPlan
from vllm_watch.export import page_files
from vllm_watch.export.gpu_families import distinct_holders
from vllm_watch.incidents import reasons, recurrence, way
from vllm_watch.incidents.incident import Incident, in_order, plain_evidence, plain_worst
from vllm_watch.incidents.relations import CAUSES_BESIDE
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.signals.holders.records import UNKNOWN, GpuHolders, Holder, Judged
from vllm_watch.signals.records import TargetSignals
from vllm_watch.story.base import STEPS, step_of
from vllm_watch.story.kinds import KINDS, STORIES, story_of
from vllm_watch.support.redaction import safe_arguments

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_ARGUMENTS_MAX = 64  # vLLM has about 20
_ARGUMENT_CHARACTERS_MAX = 256
_NOT_YET = "Not scraped yet."
_INCIDENT = (
    "id", "target", "engine", "kind", "cause", "family", "severity", "summary", "restart_advised", "concerns",
    "restart_targets", "related", "resolution", "phase", "meanwhile", "stacks", "times", "requests_lost",
)  # fmt: skip
LEFT_OUT = {
    "TargetSignals": ("detectors", "advice"),
    "EngineSignals": ("totals",),
    "Incident": ("way",),
}
"""Fields omitted from JSON. Detectors and advice are exported separately."""


def plain(value: object) -> object:
    """Convert a record for json.dumps."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    return value


def _record(value: "DataclassInstance") -> dict[str, object]:
    return {name: plain(getattr(value, name)) for name in _field_names(type(value))}


@lru_cache(maxsize=64)
def _field_names(kind: "type[DataclassInstance]") -> tuple[str, ...]:
    left_out = LEFT_OUT.get(kind.__name__, ())
    return tuple(field.name for field in fields(kind) if field.name not in left_out)


def to_json(value: object) -> str:
    """Return compact JSON without NaN."""
    return json.dumps(plain(value), separators=(",", ":"), allow_nan=False)


_STORY = to_json({kind: STORIES[kind] for kind in KINDS})
_STEPS = to_json(STEPS)


class Status:
    """Returns JSON, and caches each target's text until the target changes."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._started = time.time()
        self._started_monotonic = time.monotonic()
        self._kept: dict[str, tuple[TargetEntry, int, str]] = {}

    def whole(self, not_ready: str | None) -> str:
        board = self._board
        self._kept = {name: kept for name, kept in self._kept.items() if name in board.targets}
        targets = ",".join(filter(None, map(self.target, board.targets)))
        head = to_json(self.watcher() | {"not_ready": not_ready})
        words = f'"story":{_STORY},"restart_steps":{_STEPS}'
        return f'{head[:-1]},{words},"gpus":{self.gpus()},"targets":[{targets}]}}'

    def watcher(self) -> dict[str, object]:
        return {
            "version": __version__,
            "page": page_files.digest(),
            "t": time.time(),
            "started_timestamp_seconds": self._started,
            "uptime_seconds": time.monotonic() - self._started_monotonic,
            "window_seconds": self._board.window_seconds,
            "history_seconds": SPANS[0],
            "history_spans": SPANS,
            "nothing_watched": self._board.nothing_watched,
            "store": self._board.store,
            "notifiers": self._board.notifiers,
            "takes_tokens": self._board.takes_tokens,
            "restarts": self._board.restarts,
            "sources": self._board.host_sources,
            "links": self._board.links,
            "host": {
                "name": self._board.host.target.name,
                "incidents": self._incidents(self._board.host),
            },
        }

    def target(self, name: str) -> str | None:
        entry = self._board.targets.get(name)
        if entry is None:
            return None
        kept = self._kept.get(name)
        if kept is None or kept[0] is not entry or kept[1] != entry.revision:
            kept = self._kept[name] = (entry, entry.revision, to_json(self._target(entry)))
        return kept[2]

    def gpus(self) -> str:
        board, reading = self._board, self._board.gpus
        if reading is None:
            return "null"
        found = _record(reading)
        if reading.gpus is not None:
            found["gpus"] = [
                _gpu(gpu, board.xid_errors.get(gpu.uuid, {}), board.holders.get(gpu.uuid))
                for gpu in reading.gpus
            ]
        return to_json(found)

    def incidents(self, target: str | None = None, state: str | None = None) -> str:
        found = [
            self._incident(each)
            for each in self._board.incidents.listed()
            if target in (None, each.target) and state in (None, _state(each))
        ]
        return to_json({"incidents": found})

    def incident(self, name: str, *, debug: bool = False) -> str | None:
        found = self._board.incidents.find(name)
        if found is None:
            return None
        said = self._incident(found)
        if debug:
            advised = found.restart_advised
            said["explanation"] = {
                "severity": reasons.of_severity(found),
                "no_page": "" if reasons.notifies(found) else reasons.of_severity(found),
                "no_restart": "" if advised else said["restart_outcome"],
                "way": plain(way.plain(found.way)),
            }
        return to_json(said)

    def history(self, name: str, engine: str | None, seconds: float = SPANS[0]) -> str | None:
        entry = self._board.targets.get(name)
        if entry is None or (engine is not None and engine not in entry.history):
            return None
        now, span = entry.signals.t if entry.signals else 0.0, ring_seconds(seconds)
        engines = entry.history if engine is None else (engine,)
        rings = {label: entry.history[label].ring(span) for label in engines}
        return _charts(name, Charts(now, span, rings), entry, time.time())

    def incident_history(self, name: str) -> str | None:
        incident = self._board.incidents.find(name)
        return (
            None if incident is None else _charts(incident.target, self._board.charts_of(incident))
        )

    def _target(self, entry: TargetEntry) -> dict[str, object]:
        signals = entry.signals
        return _record(entry.target) | {
            "interval_seconds": entry.interval_seconds,
            "state": signals.state if signals else "unknown",
            "state_text": signals.state_text if signals else _NOT_YET,
            "detectors": signals.detectors if signals else {},
            "advice": signals.advice if signals else (),
            "signals": None if signals is None else _signals(signals),
            "sources": entry.sources,
            "restart": entry.restart,
            "incidents": self._incidents(entry),
        }

    def _incidents(self, entry: TargetEntry) -> list[dict[str, object]]:
        return [self._incident(each) for each in in_order(entry.incidents.open.values())]

    def _incident(self, incident: Incident) -> dict[str, object]:
        said = {name: plain(getattr(incident, name)) for name in _INCIDENT}
        story, cause = story_of(incident.kind, incident.target), incident.cause
        advised, after_s = incident.restart_advised, incident.advised_after_s
        said |= {
            "title": story.title_of(cause),
            "says": story.says_of(cause),
            "first_step": story.first_step_of(cause, advised=advised, known=incident.texts),
            "restart_outcome": reasons.of_restart(
                incident, story.restart_of(cause, advised=advised, after_s=after_s)
            ),
            "cost": reasons.of_cost(incident),
            "severity_reason": reasons.on_card(incident),
            "runbook": f"docs/{story.runbook}",
            "runbook_url": f"{self._board.external_url or ''}/{story.runbook_path}",
            "evidence": plain_evidence(incident),
            "opened_timestamp_seconds": incident.opened_t,
            "updated_timestamp_seconds": incident.updated_t,
            "resolved_timestamp_seconds": incident.resolved_t,
            "began_timestamp_seconds": incident.began_t,
            "ended_timestamp_seconds": incident.ended_t,
            "closes_timestamp_seconds": incident.closes_t,
            "phase": incident.phase if incident.open else _state(incident),
            "worst": plain(plain_worst(incident.worst)),
            "recurring": plain(recurrence.plain(incident.recurring)),
            "state": _state(incident),
        }
        entry = self._board.targets.get(incident.target)
        return said if entry is None else said | _tried(entry.restart, incident)


def _tried(plan: RestartPlan | None, incident: Incident) -> dict[str, str]:
    if plan is None or not incident.open:
        return {}
    if plan.under_way is not None:
        said = {"restart_outcome": "A restart is under way."}
        if incident.kind in CAUSES_BESIDE and plan.under_way.incident_id != incident.id:
            return said  # a GPU's fault outlasts this restart
        return said | {"first_step": step_of("begun").first_step}
    if plan.breaker is None:
        return {}
    said = {"restart_outcome": f"vllm-watch will not restart it again: {plan.breaker.rstrip('.')}."}
    if plan.last is None or plan.last.incident_id != incident.id:
        return said
    return said | {"first_step": step_of(plan.last.state).first_step}


def _charts(target: str, charts: Charts, entry: TargetEntry | None = None, t: float = 0.0) -> str:
    engines = {}
    for label, ring in charts.engines.items():
        times, series = ring.series(charts.t)
        engines[label] = {"t": times, "series": series}
    said = {"target": target, "t": charts.t, "seconds": charts.seconds, "engines": engines}
    day = entry and entry.day.cells(t)
    return to_json(said | {"day": day, "uptime": () if entry is None else entry.uptime.shares(t)})


def _signals(signals: TargetSignals) -> dict[str, object]:
    said = _record(signals)
    failed = signals.start_failure
    said["start_failure"] = None if failed is None else plain(failed.published())
    return said


def _state(incident: Incident) -> str:
    return "open" if incident.open else "resolved"


def _gpu(
    gpu: GpuSample, xid_errors: Mapping[int, int], judged: GpuHolders | None
) -> dict[str, object]:
    found = _record(gpu)
    found["xid_errors_total"] = plain(xid_errors)
    found["targets"] = judged.targets if judged else ()
    found["stale_bytes"] = judged.stale_bytes if judged else None
    found["unaccounted_bytes"] = judged.unaccounted_bytes if judged else None
    found["unaccounted"] = _judged(judged.unaccounted if judged else None)
    holders = {each.process.pid: each for each in judged.holders or ()} if judged else {}
    if gpu.processes is not None:
        found["processes"] = [
            _record(process)
            | {"cmdline": public_arguments(process.cmdline)}
            | _holder(holders.get(process.pid))
            for process in distinct_holders(gpu.processes)
        ]
    return found


def _holder(holder: Holder | None) -> dict[str, object]:
    return _judged(holder.judged if holder else None) | {"place": holder.place if holder else None}


def _judged(judged: Judged | None) -> dict[str, object]:
    judged = judged or Judged(verdict=UNKNOWN)
    return {name: getattr(judged, name) for name in ("verdict", "reason", "evidence", "remedy")}


def public_arguments(cmdline: tuple[str, ...] | None) -> list[str] | None:
    """Return the arguments with secret values hidden."""
    if cmdline is None:
        return None
    shown = safe_arguments(cmdline[:_ARGUMENTS_MAX])
    return [argument[:_ARGUMENT_CHARACTERS_MAX] for argument in shown]


def in_a_line(board: Board, url: str) -> str:
    """Return one line about targets and incidents."""
    entries = board.targets.values()
    looked_at = [entry.signals for entry in entries if entry.signals is not None]
    answer = sum(signals.up for signals in looked_at)
    opened = [i for entry in board.all_entries() for i in entry.incidents.open.values()]
    incidents = [each for each in opened if not each.recovering]
    pages = sum(incident.severity == "page" for incident in incidents)
    parts = [f"{answer} of {_count(len(board.targets), 'target')} answer"]
    if len(looked_at) < len(board.targets):
        parts.append(f"{len(board.targets) - len(looked_at)} not scraped yet")
    parts.append(f"{_count(len(incidents), 'incident')} open" if incidents else "nothing is wrong")
    if pages:
        parts[-1] += f" ({_count(pages, 'page')})"
    if len(opened) > len(incidents):
        parts.append(f"{_count(len(opened) - len(incidents), 'incident')} recovering")
    return f"{', '.join(parts)}; {url}/"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
