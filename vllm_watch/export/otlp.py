"""Push /metrics to an OpenTelemetry collector."""

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from vllm_watch.board.board import Board
from vllm_watch.errors import WatchError
from vllm_watch.export.text import own_metrics, render
from vllm_watch.settings.stages import OtlpSettings
from vllm_watch.support import threads

if TYPE_CHECKING:
    from vllm_watch.export.otlp_exporter import Exporter

_log = structlog.get_logger()


async def pushing(board: Board, settings: OtlpSettings) -> None:
    """Push until cancelled, or return if no endpoint is set."""
    if settings.endpoint is None:
        return
    try:
        from vllm_watch.export.otlp_exporter import Exporter  # noqa: PLC0415 - an extra

        exporter = Exporter(settings, board.host.target.node)
    except ImportError as error:
        remedy = "pip install 'vllm-watch[otlp]'"
        _log.error("otlp_unusable", cause=f"there is no module {error.name}", remedy=remedy)
        return
    except WatchError as error:
        _log.error("otlp_unusable", cause=error.cause, remedy=error.remedy)
        return
    own = own_metrics()
    failing: str | None = None
    try:
        while True:
            began = time.monotonic()
            text = render(board, own).decode()
            because = await _pushed(exporter, text)
            if because is not None and because != failing:
                _log.error("otlp_fails", endpoint=settings.endpoint, because=because)
            elif because is None and failing is not None:
                _log.info("otlp_works_again", endpoint=settings.endpoint)
            failing = because
            await asyncio.sleep(max(0.0, settings.interval_seconds - (time.monotonic() - began)))
    finally:
        exporter.close()


async def _pushed(exporter: "Exporter", text: str) -> str | None:
    """Push in a thread, so that a hung collector blocks nothing. Return the cause of a failure."""
    try:
        return await threads.run(lambda: exporter.push(text), None)
    except MemoryError:
        return "no thread can be had"
    except Exception as error:  # noqa: BLE001 - logged, and the push is retried
        return f"{type(error).__name__}: {error}"
