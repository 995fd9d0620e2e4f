"""What is exported of the web configuration."""

from typing import Any

from vllm_watch.board.health import WebHealth
from vllm_watch.export.family import Family


def _ok(board: Any) -> float | None:
    web: WebHealth | None = board.web
    return None if web is None else float(web.problem is None)


def _last_success(board: Any) -> float | None:
    web: WebHealth | None = board.web
    return None if web is None else web.last_success_timestamp_seconds


WEB_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_web_config_reload_successful", kind="gauge", scope="watcher",
        help="1 where the web configuration and its certificates are used as their files are now; 0 where they "
             "are not usable and the ones before go on.",
        absent="Absent without a web configuration.", value=_ok,
    ),
    Family(
        name="vllm_watch_web_config_last_reload_success_timestamp_seconds", kind="gauge", scope="watcher",
        help="Unix time at which the web configuration or its certificates were last taken over.",
        absent="Absent without a web configuration.", value=_last_success,
    ),
)  # fmt: skip
