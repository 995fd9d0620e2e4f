"""Metric families of targets, sources and the watcher."""

from functools import partial
from operator import attrgetter

from vllm_watch import __version__
from vllm_watch.board.board import Board, TargetEntry
from vllm_watch.export.family import Family, Series, by_label, one_hot
from vllm_watch.samples.observation import OUTCOMES
from vllm_watch.signals.records import TargetSignals

_TARGET = "vllm_watch_target_"
_SOURCE = "vllm_watch_source_"
_NOT_YET = "Absent until the first scrape of the target."
GPU_STATUSES = ("ok", "no_driver", "hung", "error")

_outcome = one_hot("outcome", OUTCOMES)
_gpu_status = one_hot("status", GPU_STATUSES)


def _up(entry: TargetEntry) -> float | None:
    return None if entry.signals is None else int(entry.signals.up)


def _identity(entry: TargetEntry) -> Series:
    target, signals = entry.target, entry.signals
    model = next((each.model_name for each in signals.engines.values()), "") if signals else ""
    names = (target.url, target.group, target.namespace, target.pod, target.node)
    return (((*names, target.host_and_port, model), 1),)


def _vllm(entry: TargetEntry) -> Series | None:
    signals = entry.signals
    if signals is None or (signals.version is None and signals.engine_kind is None):
        return None
    return (((signals.version or "", signals.engine_kind or ""), 1),)


def _signal(attribute: str, entry: TargetEntry) -> float | None:
    value: float | None = getattr(entry.signals, attribute, None)
    return value


def _families_unknown(entry: TargetEntry) -> float | None:
    signals: TargetSignals | None = entry.signals
    return len(signals.unknown_families) if signals is not None and signals.up else None


def _sight(state: str, entry: TargetEntry) -> Series | None:
    if entry.signals is None:
        return None
    known = entry.signals.detectors.items()
    return [((slug,), int(s.state == state)) for slug, s in sorted(known) if s.state != "unknown"]


def _gpu_reading(board: Board) -> Series | None:
    return None if board.gpus is None else _gpu_status(board.gpus)


TARGET_FAMILIES: tuple[Family, ...] = (
    Family(
        name=_TARGET + "info", kind="info", scope="target",
        labels=("url", "group", "namespace", "pod", "node", "address", "model_name"),
        help="Identity of the target; `group` is the pod's owner (Deployment, StatefulSet, …); "
             "`address` is host:port, as in `instance` of a Prometheus that scrapes it.",
        absent="A label that does not apply is empty; `model_name` until the first scrape.", series=_identity,
    ),
    Family(
        name=_TARGET + "up", kind="gauge", scope="target",
        help="1 if the last scrape of the target's /metrics could be read, else 0.",
        absent=_NOT_YET, value=_up,
    ),
    Family(
        name=_TARGET + "scrape_outcome", kind="gauge", scope="target", labels=("outcome",),
        help=f"How the last scrape ended: 1 for the outcome, 0 for the others ({', '.join(OUTCOMES)}).",
        absent=_NOT_YET, series=lambda entry: entry.signals and _outcome(entry.signals), few=True,
    ),
    Family(
        name=_TARGET + "last_observation_timestamp_seconds", kind="gauge", scope="target",
        help="Unix time of the last scrape of the target, successful or not.",
        absent=_NOT_YET, value=lambda entry: _signal("t", entry),
    ),
    Family(
        name=_TARGET + "interval_seconds", kind="gauge", scope="target",
        help="Seconds between two scrapes of the target, as configured.",
        value=attrgetter("interval_seconds"),
    ),
    Family(
        name=_TARGET + "lateness_seconds", kind="gauge", scope="target",
        help="How much later than planned the last scrape of the target began: the watcher's own delay, not the target's.",
        absent=_NOT_YET, value=attrgetter("late_seconds"),
    ),
    Family(
        name=_TARGET + "health_status_code", kind="gauge", scope="target",
        help="HTTP status of the last request to the target's /health; a hung engine still returns 200.",
        absent="Absent if /health did not answer or was not asked.",
        value=lambda entry: _signal("health_status", entry),
    ),
    Family(
        name=_TARGET + "vllm_info", kind="info", scope="target", labels=("version", "engine_kind"),
        help="vLLM's version and the kind of its engine, V0 or V1.",
        absent="Absent while neither is known; an unknown one is empty (/version exists from vLLM 0.4.0).",
        series=_vllm,
    ),
    Family(
        name=_TARGET + "process_open_fds", kind="gauge", scope="target",
        help="Open file descriptors of the API server: the one sign of demand while an engine hangs.",
        absent="Absent if vLLM does not export process_*: V0 from 0.5.5, several API servers.",
        value=lambda entry: _signal("process_open_fds", entry),
    ),
    Family(
        name=_TARGET + "process_start_timestamp_seconds", kind="gauge", scope="target",
        help="Unix time at which the API server's process (not the engine's) started.",
        absent="Absent if vLLM does not export process_*: V0 from 0.5.5, several API servers.",
        value=lambda entry: _signal("process_start_time", entry),
    ),
    Family(
        name=_TARGET + "unknown_families", kind="gauge", scope="target",
        help="Families of vLLM on the target's /metrics that this version of vllm-watch does not know.",
        absent="Absent while /metrics cannot be read.", value=_families_unknown,
    ),
    Family(
        name="vllm_watch_detector_blind", kind="gauge", scope="target", labels=("detector",),
        help="1 if the detector lacks a required signal on this target and so cannot find anything, else 0; "
             "/api/v1/status and the page name the missing signal and the fix.",
        absent="Absent until enough scrapes have shown the target's exports.", series=partial(_sight, "blind"), few=True,
    ),
    Family(
        name="vllm_watch_detector_partly_blind", kind="gauge", scope="target", labels=("detector",),
        help="1 if the detector finds less, or later, because this target lacks some data, else 0.",
        absent="Absent until enough scrapes have shown the target's exports.", series=partial(_sight, "partly"), few=True,
    ),
)  # fmt: skip

SOURCE_FAMILIES: tuple[Family, ...] = (
    Family(
        name=_SOURCE + "last_success_timestamp_seconds", kind="gauge", scope="source",
        help="Unix time of the source's last good answer; `target` is empty for a source of the whole host.",
        absent="Absent until the first good answer, and for `nvml` on a machine without a GPU driver.",
        value=attrgetter("last_success_timestamp_seconds"),
    ),
    Family(
        name=_SOURCE + "duration_seconds", kind="gauge", scope="source",
        help="Seconds that the last call to the source took, successful or not.",
        absent="Absent until the first call.", value=attrgetter("duration_seconds"),
    ),
    Family(
        name=_SOURCE + "calls_total", kind="counter", scope="source",
        help="Finished calls to the source, successful or not.",
        absent="Absent until the first call.", value=attrgetter("calls"),
    ),
    Family(
        name=_SOURCE + "errors_total", kind="counter", scope="source", labels=("reason",),
        help="Failed calls to the source, by reason (the outcomes of vllm_watch_target_scrape_outcome; hung, error).",
        absent="A reason that never occurred is absent.", series=by_label("errors"),
    ),
)  # fmt: skip

WATCHER_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_build_info", kind="info", scope="watcher", labels=("version",),
        help="Version of the running vllm-watch.", series=lambda _: (((__version__,), 1),),
    ),
    Family(
        name="vllm_watch_external_url_info", kind="info", scope="watcher", labels=("url",),
        help="Address of the status page (external_url); links in alerts begin with it.",
        absent="Absent where external_url is not set.",
        series=lambda board: None if board.external_url is None else (((board.external_url,), 1),),
    ),
    Family(
        name="vllm_watch_signal_window_seconds", kind="gauge", scope="watcher",
        help="Seconds over which rates, quantiles and shares are computed.",
        value=attrgetter("window_seconds"),
    ),
    Family(
        name="vllm_watch_targets", kind="gauge", scope="watcher",
        help="Watched targets.", value=lambda board: len(board.targets),
    ),
    Family(
        name="vllm_watch_gpu_reading_status", kind="gauge", scope="watcher", labels=("status",),
        help="How the last poll of the GPUs ended: 1 for the status, 0 for the others. "
             "no_driver is a machine without GPUs, hung a driver that did not answer in time.",
        absent="Absent until the first poll.", series=_gpu_reading,
    ),
)  # fmt: skip
