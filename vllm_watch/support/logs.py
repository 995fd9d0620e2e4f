"""Configure logging: text on a terminal, JSON elsewhere. All logs pass one filter for secrets."""

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from vllm_watch.support.redaction import HIDDEN, is_secret_name, redacted
from vllm_watch.support.visible import visible, visible_lines

_DEPTH_MAX = 4  # deeper values become text
_QUIET_LOGGERS = ("aiohttp.access",)  # it logs every scrape of this daemon
_PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""syslog's priorities. Each line for systemd's journal begins with one, as in `<4>`
(sd-daemon(3))."""


def configure(level: str, form: str = "auto", stream: TextIO | None = None) -> None:
    """Send logs of this level or above to `stream` (default: stderr). Called again at each reload.

    `form` is "console", "json" or "auto", as in the setting `log.format`.
    """
    stream = sys.stderr if stream is None else stream
    level_number = logging.getLevelNamesMapping()[level.upper()]
    for_people = form == "console" or (form == "auto" and stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _hide_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level_number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    render = _console(stream) if for_people else structlog.processors.JSONRenderer(default=str)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _with_priority(render) if _is_journal(stream) else render,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level_number)
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(level_number, logging.WARNING))
    logging.captureWarnings(capture=True)


def _console(stream: TextIO) -> Processor:
    # A coloured traceback would print local variables, which may hold keys.
    return structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


def _is_journal(stream: TextIO) -> bool:
    try:
        file = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{file.st_dev}:{file.st_ino}"


def _with_priority(render: Processor) -> Processor:
    def rendered(logger: WrappedLogger, method: str, event: EventDict) -> str:
        priority = _PRIORITIES.get(event.get("level", ""), _PRIORITIES["info"])
        lines = str(render(logger, method, event)).splitlines()
        return "\n".join(f"<{priority}>{line}" for line in lines)

    return rendered


def _hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    text = event.get("event")
    clean = {key: _without_secrets(key, value, 0) for key, value in event.items() if key[:1] != "_"}
    if isinstance(text, str):
        clean["event"] = visible(redacted(text))
    return {**event, **clean}


def _without_secrets(name: str, value: Any, depth: int) -> Any:
    if is_secret_name(name):
        return HIDDEN
    if isinstance(value, str):
        return visible_lines(redacted(value))
    if isinstance(value, bool | int | float) or value is None:
        return value
    if depth < _DEPTH_MAX and isinstance(value, Mapping):
        return {
            str(key): _without_secrets(str(key), inner, depth + 1) for key, inner in value.items()
        }
    if depth < _DEPTH_MAX and isinstance(value, list | tuple | set | frozenset):
        return [_without_secrets("", inner, depth + 1) for inner in value]
    return visible_lines(redacted(str(value)))
