"""Push /metrics to an OpenTelemetry collector."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from vllm_watch.board.board import Board
from vllm_watch.errors import WatchError
from vllm_watch.export.text import render
from vllm_watch.settings.stages import OtlpSettings
from vllm_watch.support.threads import begin

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
    own = CollectorRegistry()
    ProcessCollector(registry=own)
    PlatformCollector(registry=own)
    failing: str | None = None
    try:
        while True:
            began = time.monotonic()
            text = render(board, own).decode()
            because = await _aside(partial(exporter.push, text))
            if because is not None and because != failing:
                _log.error("otlp_fails", endpoint=settings.endpoint, because=because)
            elif because is None and failing is not None:
                _log.info("otlp_works_again", endpoint=settings.endpoint)
            failing = because
            await asyncio.sleep(max(0.0, settings.interval_seconds - (time.monotonic() - began)))
    finally:
        exporter.close()


async def _aside(push: Callable[[], str | None]) -> str | None:
    """Push in a daemon thread, so that a hung collector blocks nothing."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str | None] = loop.create_future()

    def end(because: str | None) -> None:
        if not done.done():
            done.set_result(because)

    def run() -> None:
        try:
            because = push()
        except Exception as error:  # noqa: BLE001 - logged, and the push is retried
            because = f"{type(error).__name__}: {error}"
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(end, because)

    return await done if begin(run) else "no thread can be had"
