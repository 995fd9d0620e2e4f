"""What is exported of notifiers."""

from typing import Any

from vllm_watch.board.health import NotifierHealth
from vllm_watch.export.family import Family, Series


def _outcomes(board: Any) -> Series:
    notifiers: dict[str, NotifierHealth] = board.notifiers
    return [
        ((name, outcome), count)
        for name, health in sorted(notifiers.items())
        for outcome, count in health.outcomes.items()
    ]


def _queue(board: Any) -> Series:
    return [((name,), health.queue) for name, health in sorted(board.notifiers.items())]


def _failing(board: Any) -> Series:
    return [
        ((name,), int(not health.ok))
        for name, health in sorted(board.notifiers.items())
        if health.ok is not None
    ]


def _last_success(board: Any) -> Series:
    return [
        ((name,), health.last_success_timestamp_seconds)
        for name, health in sorted(board.notifiers.items())
    ]


_N = "vllm_watch_"
_NONE = "Absent where no notifier is configured."

NOTIFIER_FAMILIES: tuple[Family, ...] = (
    Family(
        name=_N + "notifications_total", kind="counter", scope="watcher", labels=("notifier", "outcome"),
        help="Messages by how they ended: sent, failed (a try; it is tried again), and dropped (given up: "
             "too old, too many, or refused). Of a JSON lines stream: its lines.",
        absent=_NONE, series=_outcomes,
    ),
    Family(
        name=_N + "notifications_queue_length", kind="gauge", scope="watcher", labels=("notifier",),
        help="Messages that wait to be sent.", absent=_NONE, series=_queue,
    ),
    Family(
        name=_N + "notifier_failing", kind="gauge", scope="watcher", labels=("notifier",),
        help="1 where the last try failed, else 0.", absent=_NONE + " Absent until the first try.", series=_failing,
    ),
    Family(
        name=_N + "notifications_last_success_timestamp_seconds", kind="gauge", scope="watcher", labels=("notifier",),
        help="Unix time of the last message that was taken.",
        absent=_NONE + " Absent until one was, since the watcher began.", series=_last_success,
    ),
)  # fmt: skip
