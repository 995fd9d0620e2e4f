"""Metric families of state folder, web configuration and notifiers."""

from typing import Any

from vllm_watch.board.health import NotifierHealth, StoreHealth, WebHealth
from vllm_watch.export.family import Family, Series

_N = "vllm_watch_"


def _store_errors(board: Any) -> Series | None:
    store: StoreHealth | None = board.store
    return (
        None if store is None else [((name,), store.errors[name]) for name in sorted(store.errors)]
    )


def _store_last_success(board: Any) -> float | None:
    store: StoreHealth | None = board.store
    return None if store is None else store.last_success_timestamp_seconds


STORE_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_store_last_success_timestamp_seconds", kind="gauge", scope="watcher",
        help="Unix time of the last good read or write of the state folder, at least once a minute.",
        absent="Absent without a state folder, and until it could be read or written.",
        value=_store_last_success,
    ),
    Family(
        name="vllm_watch_store_errors_total", kind="counter", scope="watcher", labels=("reason",),
        help="Failed uses of the state folder, by reason: full, not_writable, refused (another "
             "vllm-watch holds it, or a newer one wrote it), damaged, entry (one entry could not be used), io.",
        absent="Absent without a state folder; a reason that never occurred is absent.", series=_store_errors,
    ),
)  # fmt: skip


def _web_ok(board: Any) -> float | None:
    web: WebHealth | None = board.web
    return None if web is None else float(web.problem is None)


def _web_last_success(board: Any) -> float | None:
    web: WebHealth | None = board.web
    return None if web is None else web.last_success_timestamp_seconds


WEB_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_web_config_reload_successful", kind="gauge", scope="watcher",
        help="1 if the current files of the web configuration and its certificates are in use; 0 if they are "
             "not usable and the previous ones stay in use.",
        absent="Absent without a web configuration.", value=_web_ok,
    ),
    Family(
        name="vllm_watch_web_config_last_reload_success_timestamp_seconds", kind="gauge", scope="watcher",
        help="Unix time at which the web configuration or its certificates were last loaded.",
        absent="Absent without a web configuration.", value=_web_last_success,
    ),
)  # fmt: skip


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


def _notifier_last_success(board: Any) -> Series:
    return [
        ((name,), health.last_success_timestamp_seconds)
        for name, health in sorted(board.notifiers.items())
    ]


_NO_NOTIFIER = "Absent if no notifier is configured."

NOTIFIER_FAMILIES: tuple[Family, ...] = (
    Family(
        name=_N + "notifications_total", kind="counter", scope="watcher", labels=("notifier", "outcome"),
        help="Messages by outcome: sent, failed (one try, which is repeated), and dropped (too old, too many, "
             "or refused).",
        absent=_NO_NOTIFIER, series=_outcomes,
    ),
    Family(
        name=_N + "notifications_queue_length", kind="gauge", scope="watcher", labels=("notifier",),
        help="Messages that wait to be sent.", absent=_NO_NOTIFIER, series=_queue,
    ),
    Family(
        name=_N + "notifier_failing", kind="gauge", scope="watcher", labels=("notifier",),
        help="1 if the last try failed, else 0.", absent=_NO_NOTIFIER + " Absent until the first try.", series=_failing,
    ),
    Family(
        name=_N + "notifications_last_success_timestamp_seconds", kind="gauge", scope="watcher", labels=("notifier",),
        help="Unix time of the last delivered message.",
        absent=_NO_NOTIFIER + " Absent until one was, since the watcher began.", series=_notifier_last_success,
    ),
)  # fmt: skip
