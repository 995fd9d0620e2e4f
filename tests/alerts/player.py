"""A server that plays a recording back on a real port: what was answered then is answered now, at the same distance.

A body is served as it was recorded, a refused connection is refused, one that was taken and not answered is
taken and answered by the next body, like a process that was stopped and goes on. A process that is stopped says the
same for as long as it is: there the player can be held, until whoever watches has seen what there is to see.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aiohttp import web

from vllm_watch.sources import recording
from vllm_watch.sources.trace_line import RawObservation

_CLOSE_SECONDS = 0.01  # a killed process says no goodbye; aiohttp takes 0 for "wait for ever"


@dataclass(frozen=True, slots=True)
class Scene:
    """What the server does from `at_s` on: "ok", "refused", "read_timeout" or another outcome."""

    at_s: float
    outcome: str
    look: RawObservation


def scenes(file: Path, from_s: float, to_s: float) -> Iterator[Scene]:
    """The looks of this span of a recording. One that failed began when it was asked, not when it was given up."""
    began_t: float | None = None
    for look in recording.read(file):
        began_t = look.t if began_t is None else began_t
        asked_t = look.t if look.scrape.outcome == "ok" else look.t - look.scrape.latency_s
        if from_s <= asked_t - began_t <= to_s:
            yield Scene(asked_t - began_t - from_s, look.scrape.outcome, look)


class Player:
    """Plays scenes from `play` on; `holds` are the times before which it waits for `go_on`. `url` is known at once."""

    def __init__(self, played: Sequence[Scene], holds: Sequence[float] = ()) -> None:
        self._scenes = list(played)
        self._holds = list(holds)
        self._now = self._scenes[0]
        self._answered = asyncio.Condition()
        self._going_on = asyncio.Event()
        self._socket = socket.socket()
        self._runner: web.AppRunner | None = None
        self._task: asyncio.Task[None] | None = None
        self.began_s = 0.0  # of the event loop's clock, less what it was held

    async def __aenter__(self) -> Self:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self._port: int = self._socket.getsockname()[1]
        self._socket.close()
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def play(self) -> None:
        """Begin. Until then it answers as at the first look."""
        self.began_s = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._play())

    def go_on(self) -> None:
        """Where it is held, or will be next: do not wait there any more."""
        self._going_on.set()

    async def _hold(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = self.began_s + self._holds.pop(0)
        await asyncio.sleep(due_s - loop.time())
        await self._going_on.wait()
        self._going_on.clear()
        self.began_s += max(0.0, loop.time() - due_s)

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        for scene in self._scenes:
            while self._holds and scene.at_s >= self._holds[0]:
                await self._hold()
            await asyncio.sleep(self.began_s + scene.at_s - loop.time())
            async with self._answered:
                self._now = scene
                self._answered.notify_all()
            if scene.outcome == "refused":
                await self._close()
            elif self._runner is None:
                await self._open()

    async def _open(self) -> None:
        application = web.Application()
        for path in ("/metrics", "/health", "/version", "/v1/models"):
            application.router.add_get(path, self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=_CLOSE_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()

    async def _close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        async with self._answered:  # held by a server that takes connections and answers none
            await self._answered.wait_for(lambda: self._now.outcome in ("ok", "http"))
        look = self._now.look
        if request.path == "/version":
            return web.json_response({"version": look.version})
        if request.path == "/v1/models":
            cards = [{"id": name, "max_model_len": look.max_model_len} for name in look.models or ()]  # fmt: skip
            return web.json_response({"data": cards})
        if request.path == "/health":
            status = look.health.status if look.health else None
            return web.Response(status=status or 200)
        return web.Response(text=look.metrics or "", status=look.scrape.status or 200)
