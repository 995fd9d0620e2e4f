"""Metric families of the targets, and of their incidents and restarts."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import attrgetter

from vllm_watch.board.board import TargetEntry
from vllm_watch.board.restarts import AttemptShown
from vllm_watch.export.family import Family, Series, by_label, is_set, one_hot, optional, rows
from vllm_watch.incidents.incident import SEVERITIES, Incident
from vllm_watch.samples.observation import OUTCOMES

_gauge = rows("vllm_watch_target_", "target")
_info = rows("vllm_watch_target_", "target", "info")
_NOT_YET = "Absent until the first scrape of the target."
_NO_PROCESS = "Absent if vLLM does not export process_*: V0 from 0.5.5, several API servers."
_detector = partial(
    rows("vllm_watch_detector_", "target"), labels=("detector",), few=True,
    absent="Absent until enough scrapes have shown the target's exports.",
)  # fmt: skip

_outcome = one_hot("outcome", OUTCOMES)


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


def _families_unknown(entry: TargetEntry) -> float | None:
    signals = entry.signals
    return len(signals.unknown_families) if signals is not None and signals.up else None


def _sight(state: str, entry: TargetEntry) -> Series | None:
    if entry.signals is None:
        return None
    known = entry.signals.detectors.items()
    return [((slug,), int(s.state == state)) for slug, s in sorted(known) if s.state != "unknown"]


TARGET_FAMILIES: tuple[Family, ...] = (
    _info("info", "Identity of the target; `group` is the pod's owner (Deployment, StatefulSet, …); "
          "`address` is host:port, as in `instance` of a Prometheus that scrapes it.",
          "A label that does not apply is empty; `model_name` until the first scrape.",
          labels=("url", "group", "namespace", "pod", "node", "address", "model_name"), series=_identity),
    _gauge("up", "1 if the last scrape of the target's /metrics could be read, else 0.", _NOT_YET,
           value=optional("signals.up", int)),
    _gauge("scrape_outcome", f"How the last scrape ended: 1 for the outcome, 0 for the others ({', '.join(OUTCOMES)}).",
           _NOT_YET, labels=("outcome",), series=lambda entry: entry.signals and _outcome(entry.signals), few=True),
    _gauge("last_observation_timestamp_seconds", "Unix time of the last scrape of the target, successful or not.",
           _NOT_YET, value=optional("signals.t")),
    _gauge("interval_seconds", "Seconds between two scrapes of the target, as configured.",
           value=attrgetter("interval_seconds")),
    _gauge("lateness_seconds",
           "How much later than planned the last scrape of the target began: the watcher's own delay, not the target's.",
           _NOT_YET, value=attrgetter("late_seconds")),
    _gauge("health_status_code", "HTTP status of the last request to the target's /health; a hung engine still returns 200.",
           "Absent if /health did not answer or was not asked.", value=optional("signals.health_status")),
    _info("vllm_info", "vLLM's version and the kind of its engine, V0 or V1.",
          "Absent while neither is known; an unknown one is empty (/version exists from vLLM 0.4.0).",
          labels=("version", "engine_kind"), series=_vllm),
    _gauge("process_open_fds", "Open file descriptors of the API server: the one sign of demand while an engine hangs.",
           _NO_PROCESS, value=optional("signals.process_open_fds")),
    _gauge("process_start_timestamp_seconds", "Unix time at which the API server's process (not the engine's) started.",
           _NO_PROCESS, value=optional("signals.process_start_time")),
    _gauge("unknown_families", "Families of vLLM on the target's /metrics that this version of vllm-watch does not know.",
           "Absent while /metrics cannot be read.", value=_families_unknown),
    _detector("blind", "1 if the detector lacks a required signal on this target and so cannot find anything, else 0; "
              "/api/v1/status and the page name the missing signal and the fix.", series=partial(_sight, "blind")),
    _detector("partly_blind", "1 if the detector finds less, or later, because this target lacks some data, else 0.",
              series=partial(_sight, "partly")),
)  # fmt: skip


def _open(
    value: Callable[[Incident], float], choose: Callable[[float, float], float]
) -> Callable[[TargetEntry], Series]:
    """Return a function that chooses one value for all open incidents with the same labels, such as two GPUs' with one fault."""

    def read(entry: TargetEntry) -> Series:
        found: dict[tuple[str, ...], float] = {}
        for each in entry.incidents.open.values():
            labels, own = (each.engine or "", each.kind, each.cause, each.severity), value(each)
            found[labels] = choose(own, found.get(labels, own))
        return sorted(found.items())

    return read


_incident = partial(
    rows("vllm_watch_incident_", "incidents"), labels=("engine", "kind", "cause", "severity")
)
_NONE_OPEN = "Absent while there is none. A cause that is found out changes the labels."

INCIDENT_FAMILIES: tuple[Family, ...] = (
    _incident("open",
              "1 while an incident of this kind and cause is open; `engine` is empty for one of the whole server, "
              "`target` is vllm-watch for one that many targets share, host:NAME for one of a host's GPUs, "
              f"`severity` is one of {', '.join(SEVERITIES)}.", _NONE_OPEN, series=_open(lambda _: 1, max)),
    _incident("opened_timestamp_seconds",
              "Unix time at which the incident of vllm_watch_incident_open was opened, even if its cause changed since.",
              _NONE_OPEN, series=_open(attrgetter("opened_t"), min)),
    _incident("began_timestamp_seconds",
              "Unix time of the first bad scrape of the incident of vllm_watch_incident_open, as the page shows it; "
              "it is before the incident was opened.", _NONE_OPEN, series=_open(attrgetter("began_t"), min)),
    _incident("recovering",
              "1 while the incident of vllm_watch_incident_open recovers: its fault is gone, and it "
              "closes unless the fault returns; else 0.", _NONE_OPEN,
              series=_open(lambda each: int(each.recovering), min)),
    _incident("restart_advised",
              "1 if a restart is known to cure the cause of the incident of vllm_watch_incident_open, else 0.", _NONE_OPEN,
              series=_open(lambda each: int(each.restart_advised), max)),
    rows("vllm_watch_incidents_", "incidents", "counter")(
        "total", "Incidents of this kind that were opened, including closed ones.",
        labels=("kind",), series=by_label("incidents.opened")),
)  # fmt: skip


def _waiting(entry: TargetEntry) -> Series | None:
    if entry.restart is None:
        return None
    plan = entry.restart
    approval = sum(each.verdict == "approve" for each in plan.waiting)
    return ((("approval",), approval), (("gate",), len(plan.waiting) - approval))


def _kept_back(entry: TargetEntry) -> Series | None:
    if entry.restart is None:
        return None
    counts: Counter[str] = Counter()
    for each in entry.restart.waiting:
        counts.update({gate.gate for gate in each.gates} | ({each.gate} if each.gate else set()))
    return [((gate,), count) for gate, count in sorted(counts.items())]


def _last(value: Callable[[AttemptShown], float | None]) -> Callable[[TargetEntry], Series | None]:
    def read(entry: TargetEntry) -> Series | None:
        last = None if entry.restart is None else entry.restart.last
        return None if last is None else (((last.trigger, last.state), value(last)),)

    return read


_restart = rows("vllm_watch_restart_", "target")
_restart_info = rows("vllm_watch_restart_", "target", "info")
_restarts = rows("vllm_watch_restarts_", "target", "counter")
_OFF = "Absent if restarts are off."
_NONE_ENDED = _OFF + " Absent until one has ended, and again after a week."

RESTART_FAMILIES: tuple[Family, ...] = (
    _restarts("total", "Finished restart attempts, by trigger and outcome: helped, did_not_help, failed, "
              "uncertain, cancelled (before the hook was called), dry_run (mode observe).",
              "Absent until there was one; counted since the watcher began.",
              labels=("trigger", "outcome"), series=lambda entry: sorted(entry.restart_counts.outcomes.items())),
    _restarts("blocked_total", "Times that a check began to refuse or delay a requested restart; "
              "approval: it waits for a person.",
              "A check that never refused is absent; counted since the watcher began.",
              labels=("blocker",), series=by_label("restart_counts.blocked")),
    _restart_info("mode_info", "Whether the target may be restarted: observe, approve or auto.", _OFF,
                  labels=("mode",), series=lambda entry: entry.restart and (((entry.restart.mode,), 1),)),
    _restart("budget_remaining", "Restarts left in the hourly and daily budgets of the target's group.",
             _OFF + " Absent while the journal cannot be read.", value=optional("restart.budget_remaining")),
    _restart("breaker_open", "1 if the last restart did not help and only a person may try again, else 0.", _OFF,
             value=optional("restart.breaker", is_set)),
    _restart_info("last_info",
                  "Outcome of the target's last finished attempt, by trigger; from the journal, so that it outlives the watcher.",
                  _NONE_ENDED, labels=("trigger", "outcome"), series=_last(lambda _: 1)),
    _restart("last_timestamp_seconds", "Unix time at which the attempt of vllm_watch_restart_last_info ended.",
             _NONE_ENDED, labels=("trigger", "outcome"), series=_last(attrgetter("ended_timestamp_seconds"))),
    _restart("payoff_ratio", "Throughput that the last measured restart regained ÷ throughput of a fresh engine, from -1 to 1.",
             "Absent until a restart was measured; one without traffic measures nothing.",
             value=optional("restart.payoff_ratio")),
    _restart("next_scheduled_timestamp_seconds", "Unix time at which the next scheduled restart falls due.",
             "Absent without a schedule.", value=optional("restart.next_scheduled_timestamp_seconds")),
    _restart("under_way", "1 while a restart attempt is under way, including verification, else 0.", _OFF,
             value=optional("restart.under_way", is_set)),
    _restart("waiting", "Requested restarts that wait for a person's approval or for a check to pass.", _OFF,
             labels=("for",), series=_waiting),
    _restart("kept_back", "Requested restarts that this check refuses or delays now; approval: they wait for a person.",
             "A check that lets everything through is absent.", labels=("gate",), series=_kept_back),
)  # fmt: skip
