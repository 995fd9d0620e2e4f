"""Metric families of the watcher, its state folder, web configuration and notifiers, and of the sources."""

from collections.abc import Callable
from operator import attrgetter

from vllm_watch import __version__
from vllm_watch.board.board import Board
from vllm_watch.board.health import NotifierHealth
from vllm_watch.export.family import Family, Series, by_label, is_set, one_hot, optional, rows

GPU_STATUSES = ("ok", "no_driver", "hung", "error")

_gauge = rows("vllm_watch_", "watcher")
_counter = rows("vllm_watch_", "watcher", "counter")
_info = rows("vllm_watch_", "watcher", "info")
_gpu_status = one_hot("status", GPU_STATUSES)
_errors = by_label("errors")

WATCHER_FAMILIES: tuple[Family, ...] = (
    _info("build_info", "Version of the running vllm-watch.",
          labels=("version",), series=lambda _: (((__version__,), 1),)),
    _info("external_url_info", "Address of the status page (external_url); links in alerts begin with it.",
          "Absent where external_url is not set.", labels=("url",),
          series=lambda board: None if board.external_url is None else (((board.external_url,), 1),)),
    _gauge("signal_window_seconds", "Seconds over which rates, quantiles and shares are computed.",
           value=attrgetter("window_seconds")),
    _gauge("targets", "Watched targets.", value=lambda board: len(board.targets)),
    _gauge("gpu_reading_status",
           "How the last poll of the GPUs ended: 1 for the status, 0 for the others. "
           "no_driver is a machine without GPUs, hung a driver that did not answer in time.",
           "Absent until the first poll.", labels=("status",),
           series=lambda board: board.gpus and _gpu_status(board.gpus)),
)  # fmt: skip

_NO_WEB_CONFIG = "Absent without a web configuration."

WEB_FAMILIES: tuple[Family, ...] = (
    _gauge("web_config_reload_successful",
           "1 if the current files of the web configuration and its certificates are in use; 0 if they are "
           "not usable and the previous ones stay in use.", _NO_WEB_CONFIG,
           value=optional("web.problem", lambda problem: float(problem is None))),
    _gauge("web_config_last_reload_success_timestamp_seconds",
           "Unix time at which the web configuration or its certificates were last loaded.", _NO_WEB_CONFIG,
           value=optional("web.last_success_timestamp_seconds")),
)  # fmt: skip

STORE_FAMILIES: tuple[Family, ...] = (
    _gauge("store_last_success_timestamp_seconds",
           "Unix time of the last good read or write of the state folder, at least once a minute.",
           "Absent without a state folder, and until it could be read or written.",
           value=optional("store.last_success_timestamp_seconds")),
    _counter("store_errors_total",
             "Failed uses of the state folder, by reason: full, not_writable, refused (another "
             "vllm-watch holds it, or a newer one wrote it), damaged, entry (one entry could not be used), io.",
             "Absent without a state folder; a reason that never occurred is absent.", labels=("reason",),
             series=lambda board: board.store and _errors(board.store)),
)  # fmt: skip


def _outcomes(board: Board) -> Series:
    return [
        ((name, outcome), count)
        for name, health in sorted(board.notifiers.items())
        for outcome, count in health.outcomes.items()
    ]


def _by_notifier(value: Callable[[NotifierHealth], float | None]) -> Callable[[Board], Series]:
    return lambda board: [
        ((name,), value(health)) for name, health in sorted(board.notifiers.items())
    ]


_NO_NOTIFIER = "Absent if no notifier is configured."

NOTIFIER_FAMILIES: tuple[Family, ...] = (
    _counter("notifications_total",
             "Messages by outcome: sent, failed (one try, which is repeated), and dropped (too old, too many, "
             "or refused).", _NO_NOTIFIER, labels=("notifier", "outcome"), series=_outcomes),
    _gauge("notifications_queue_length", "Messages that wait to be sent.", _NO_NOTIFIER, labels=("notifier",),
           series=_by_notifier(lambda health: health.queue)),
    _gauge("notifier_failing", "1 if the last try failed, else 0.", _NO_NOTIFIER + " Absent until the first try.",
           labels=("notifier",), series=_by_notifier(lambda health: None if health.ok is None else int(not health.ok))),
    _gauge("notifications_last_success_timestamp_seconds", "Unix time of the last delivered message.",
           _NO_NOTIFIER + " Absent until one was, since the watcher began.", labels=("notifier",),
           series=_by_notifier(lambda health: health.last_success_timestamp_seconds)),
)  # fmt: skip

RESTART_WATCHER_FAMILIES: tuple[Family, ...] = (
    _gauge("restart_paused", "1 while a person has paused all restarts, else 0.",
           "Absent if restarts are off everywhere.", value=optional("restarts.paused", is_set)),
    _gauge("restart_journal_ok", "1 if the restart journal can be read and written, else 0: then nothing is restarted.",
           "Absent where restarts are off everywhere.",
           value=optional("restarts.journal_trouble", lambda trouble: int(trouble is None))),
)  # fmt: skip

_of_source = rows("vllm_watch_source_", "source")
_count_of_source = rows("vllm_watch_source_", "source", "counter")

SOURCE_FAMILIES: tuple[Family, ...] = (
    _of_source("last_success_timestamp_seconds",
               "Unix time of the source's last good answer; `target` is empty for a source of the whole host.",
               "Absent until the first good answer, and for `nvml` on a machine without a GPU driver.",
               value=attrgetter("last_success_timestamp_seconds")),
    _of_source("duration_seconds", "Seconds that the last call to the source took, successful or not.",
               "Absent until the first call.", value=attrgetter("duration_seconds")),
    _count_of_source("calls_total", "Finished calls to the source, successful or not.",
                     "Absent until the first call.", value=attrgetter("calls")),
    _count_of_source("errors_total",
                     "Failed calls to the source, by reason (the outcomes of vllm_watch_target_scrape_outcome; hung, error).",
                     "A reason that never occurred is absent.", labels=("reason",), series=_errors),
)  # fmt: skip
