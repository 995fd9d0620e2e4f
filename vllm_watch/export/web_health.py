"""How the web configuration file does, and what is exported of it."""

from dataclasses import dataclass
from typing import Any

from vllm_watch.export.family import Family


@dataclass(slots=True)
class WebHealth:
    """The web configuration since the watcher began."""

    file: str
    problem: str | None = None  # why the file as it is now is not used, in words
    remedy: str | None = None
    last_success_timestamp_seconds: float | None = None

    @property
    def because(self) -> str | None:
        """Why an older one is used, and what to do; None: the file's own is used."""
        if self.problem is None:
            return None
        return f"{self.problem}. {self.remedy}. The one before goes on"


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
