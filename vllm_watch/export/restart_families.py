"""Metric families of restarts."""

from typing import Any

from vllm_watch.board.restarts import AttemptShown, RestartPlan
from vllm_watch.export.family import Family, Series


def _plan(name: str, entry: Any) -> float | None:
    value: float | None = getattr(entry.restart, name, None)
    return value


def _of_plan(name: str) -> Any:
    return lambda entry: _plan(name, entry)


def _outcomes(entry: Any) -> Series:
    return [(labels, count) for labels, count in sorted(entry.restart_counts.outcomes.items())]


def _blocked(entry: Any) -> Series:
    return [((gate,), count) for gate, count in sorted(entry.restart_counts.blocked.items())]


def _breaker(entry: Any) -> float | None:
    return None if entry.restart is None else int(entry.restart.breaker is not None)


def _under_way(entry: Any) -> float | None:
    return None if entry.restart is None else int(entry.restart.under_way is not None)


def _waiting(entry: Any) -> Series | None:
    plan: RestartPlan | None = entry.restart
    if plan is None:
        return None
    approval = sum(each.verdict == "approve" for each in plan.waiting)
    return ((("approval",), approval), (("gate",), len(plan.waiting) - approval))


def _kept_back(entry: Any) -> Series | None:
    plan: RestartPlan | None = entry.restart
    if plan is None:
        return None
    counts: dict[str, int] = {}
    for each in plan.waiting:
        for gate in {gate.gate for gate in each.gates} | ({each.gate} if each.gate else set()):
            counts[gate] = counts.get(gate, 0) + 1
    return [((gate,), count) for gate, count in sorted(counts.items())]


def _mode(entry: Any) -> Series | None:
    return None if entry.restart is None else (((entry.restart.mode,), 1),)


def _last(entry: Any) -> Series | None:
    last = None if entry.restart is None else entry.restart.last
    return None if last is None else (((last.trigger, last.state), 1),)


def _last_ended(entry: Any) -> Series | None:
    last: AttemptShown | None = None if entry.restart is None else entry.restart.last
    if last is None or last.ended_timestamp_seconds is None:
        return None
    return (((last.trigger, last.state), last.ended_timestamp_seconds),)


def _paused(board: Any) -> float | None:
    return None if board.restarts is None else int(board.restarts.paused is not None)


def _journal_ok(board: Any) -> float | None:
    return None if board.restarts is None else int(board.restarts.journal_trouble is None)


_R = "vllm_watch_restart_"
_OFF = "Absent if restarts are off."

RESTART_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_restarts_total", kind="counter", scope="target", labels=("trigger", "outcome"),
        help="Finished restart attempts, by trigger and outcome: helped, did_not_help, failed, "
             "uncertain, cancelled (before the hook was called), dry_run (mode observe).",
        absent="Absent until there was one; counted since the watcher began.", series=_outcomes,
    ),
    Family(
        name="vllm_watch_restarts_blocked_total", kind="counter", scope="target", labels=("blocker",),
        help="Times that a check began to refuse or delay a requested restart; "
             "approval: it waits for a person.",
        absent="A check that never refused is absent; counted since the watcher began.", series=_blocked,
    ),
    Family(
        name=_R + "mode_info", kind="info", scope="target", labels=("mode",),
        help="Whether the target may be restarted: observe, approve or auto.", absent=_OFF, series=_mode,
    ),
    Family(
        name=_R + "budget_remaining", kind="gauge", scope="target",
        help="Restarts left in the hourly and daily budgets of the target's group.",
        absent=_OFF + " Absent while the journal cannot be read.", value=_of_plan("budget_remaining"),
    ),
    Family(
        name=_R + "breaker_open", kind="gauge", scope="target",
        help="1 if the last restart did not help and only a person may try again, else 0.",
        absent=_OFF, value=_breaker,
    ),
    Family(
        name=_R + "last_info", kind="info", scope="target", labels=("trigger", "outcome"),
        help="Outcome of the target's last finished attempt, by trigger; from the journal, so that it outlives the watcher.",
        absent=_OFF + " Absent until one has ended, and again after a week.", series=_last,
    ),
    Family(
        name=_R + "last_timestamp_seconds", kind="gauge", scope="target", labels=("trigger", "outcome"),
        help="Unix time at which the attempt of vllm_watch_restart_last_info ended.",
        absent=_OFF + " Absent until one has ended, and again after a week.", series=_last_ended,
    ),
    Family(
        name=_R + "payoff_ratio", kind="gauge", scope="target",
        help="Throughput that the last measured restart regained ÷ throughput of a fresh engine, from -1 to 1.",
        absent="Absent until a restart was measured; one without traffic measures nothing.",
        value=_of_plan("payoff_ratio"),
    ),
    Family(
        name=_R + "next_scheduled_timestamp_seconds", kind="gauge", scope="target",
        help="Unix time at which the next scheduled restart falls due.",
        absent="Absent without a schedule.", value=_of_plan("next_scheduled_timestamp_seconds"),
    ),
    Family(
        name=_R + "under_way", kind="gauge", scope="target",
        help="1 while a restart attempt is under way, including verification, else 0.",
        absent=_OFF, value=_under_way,
    ),
    Family(
        name=_R + "waiting", kind="gauge", scope="target", labels=("for",),
        help="Requested restarts that wait for a person's approval or for a check to pass.",
        absent=_OFF, series=_waiting,
    ),
    Family(
        name=_R + "kept_back", kind="gauge", scope="target", labels=("gate",),
        help="Requested restarts that this check refuses or delays now; approval: they wait for a person.",
        absent="A check that lets everything through is absent.", series=_kept_back,
    ),
)  # fmt: skip

RESTART_WATCHER_FAMILIES: tuple[Family, ...] = (
    Family(
        name=_R + "paused", kind="gauge", scope="watcher",
        help="1 while a person has paused all restarts, else 0.",
        absent="Absent if restarts are off everywhere.", value=_paused,
    ),
    Family(
        name=_R + "journal_ok", kind="gauge", scope="watcher",
        help="1 if the restart journal can be read and written, else 0: then nothing is restarted.",
        absent="Absent where restarts are off everywhere.", value=_journal_ok,
    ),
)  # fmt: skip
