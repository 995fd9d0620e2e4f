"""Serve simulated servers on real ports, and run a scene (scene.py) in real time."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

from vllm_watch.errors import ServeError
from vllm_watch.lab.exposition import Writer
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import CHAT, COMPLETIONS, Request
from vllm_watch.samples.target import Target

# The content type of prometheus_client since 0.23.
_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_HOST = "127.0.0.1"
_GZIP_LEVEL = 6
_CHARACTERS_PER_TOKEN = 4
_DEFAULT_MAX_TOKENS = 16
_COMPLETION_SECONDS_MAX = 3600.0
_CLOSE_SECONDS = 0.01  # for aiohttp, 0 means no limit
_BODY_BYTES_MAX = 8 << 20

_UNLOGGED = "/version"
_ANSWERS: dict[str, Callable[[SimulatedVllm], object]] = {
    _UNLOGGED: lambda vllm: {"version": vllm.release.version},
    "/v1/models": lambda vllm: {"object": "list", "data": [
        {"id": vllm.model_name, "object": "model", "max_model_len": vllm.max_model_len}
    ]},
    "/is_sleeping": lambda vllm: {"is_sleeping": vllm.sleep_level > 0},
    "/is_paused": lambda vllm: {"is_paused": vllm.paused},
}  # fmt: skip


class LabServer:
    """Serves one `SimulatedVllm`. It keeps the port while it refuses connections."""

    def __init__(self, vllm: SimulatedVllm, advance: Callable[[], float], port: int = 0) -> None:
        self.vllm = vllm
        self._advance = advance
        self._writer = Writer(vllm)
        self._port = port
        self._reserved: socket.socket | None = None
        self._runner: web.AppRunner | None = None
        self._incarnation = 0
        self._api_resumed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}"

    async def __aenter__(self) -> "LabServer":
        """Raises ServeError if the port is taken."""
        self._reserved = self._bind()
        self._port = self._reserved.getsockname()[1]
        await self.follow()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def follow(self) -> None:
        """Listen or refuse connections as the simulated process would."""
        vllm = self.vllm
        if self._runner is not None and (not vllm.serving or vllm.incarnation != self._incarnation):
            await self._close()
        if self._runner is None and vllm.serving:
            await self._open()
        if not vllm.api_hung:
            self._api_resumed.set()

    def _bind(self) -> socket.socket:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # With SO_REUSEADDR, two sockets can share an address if at most one listens. The other one
        # reserves the port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((_HOST, self._port))
        except OSError as error:
            bound.close()
            cause = f"cannot serve a simulated engine on {_HOST}:{self._port}: {error.strerror}"
            raise ServeError(cause, "Choose another port, or 0 for any.") from error
        return bound

    async def _open(self) -> None:
        app = web.Application(
            middlewares=[self._hang_or_authorize], client_max_size=_BODY_BYTES_MAX
        )
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        for path in _ANSWERS:
            app.router.add_get(path, self._answer)
        if self.vllm.generates:
            app.router.add_post(COMPLETIONS, self._completions)
            app.router.add_post(CHAT, self._completions)
        # If a client disconnects, cancelling the handler frees the request's blocks.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_SECONDS
        )
        await self._runner.setup()
        await web.SockSite(self._runner, self._bind()).start()
        self._incarnation = self.vllm.incarnation

    async def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @web.middleware
    async def _hang_or_authorize(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        self._advance()
        while self.vllm.api_hung:  # the kernel still accepts connections
            self._api_resumed.clear()
            await self._api_resumed.wait()
        key = self.vllm.api_key
        guarded = key is not None and request.path.startswith("/v1")
        if guarded and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def _metrics(self, request: web.Request) -> web.Response:
        body = self._writer.body().encode()
        headers = {"Content-Type": _METRICS_TYPE}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.vllm.dead else 200)

    async def _answer(self, request: web.Request) -> web.Response:
        vllm, path = self.vllm, request.path
        if vllm.release.http and path != _UNLOGGED:
            now = vllm.epoch + vllm.t
            vllm.http.record(path, "2xx", 0.001, now, method=request.method, response_bytes=27)
        return web.json_response(_ANSWERS[path](vllm))

    async def _completions(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read())
            prompt_tokens = _prompt_tokens(body)
            max_tokens = int(body.get("max_tokens") or _DEFAULT_MAX_TOKENS)
        except (ValueError, TypeError, AttributeError) as error:
            return _refusal(400, f"not a completion request: {error}")
        vllm = self.vllm
        if (model := body.get("model") or vllm.model_name) != vllm.model_name:
            message = f"The model `{model}` does not exist. Valid aliases: {vllm.model_name}."
            return _refusal(404, message)
        try:
            engine = _engine(request, len(vllm.engines))
        except ValueError as error:
            return _refusal(400, str(error))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        simulated = Request(
            prompt_tokens, max_tokens, arrival_t=self._advance(), max_tokens=max_tokens,
            handler=request.path, finish_reason="length", on_finish=partial(_resolve, done),
        )  # fmt: skip
        if not vllm.submit(simulated, engine):
            if prompt_tokens + max_tokens > vllm.max_model_len:
                return _refusal(400, f"more than {vllm.max_model_len} tokens")
            return _refusal(500 if vllm.dead else 503, "the engine takes no requests")
        try:
            async with asyncio.timeout(_COMPLETION_SECONDS_MAX):
                await done
        except (asyncio.CancelledError, TimeoutError):
            vllm.abort(simulated)
            raise
        if simulated.finish_reason == "error":
            return _refusal(500, "the engine died")
        return web.json_response(_answer(vllm, simulated))


def _engine(request: web.Request, engines: int) -> int | None:
    rank = request.headers.get("X-data-parallel-rank")
    if rank is None or not rank.isdecimal():
        return None
    if int(rank) >= engines:
        raise ValueError(f"data_parallel_rank {rank} is out of range [0, {engines}).")
    return int(rank)


def _resolve(done: "asyncio.Future[None]", _: Request) -> None:
    if not done.done():
        done.set_result(None)


def _prompt_tokens(body: dict[str, object]) -> int:
    prompt = body.get("prompt", body.get("messages", ""))
    if isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        return max(1, len(prompt))
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    return max(1, -(-len(text) // _CHARACTERS_PER_TOKEN))


def _answer(vllm: SimulatedVllm, request: Request) -> dict[str, object]:
    text = " token" * request.generated_tokens
    choice: dict[str, object] = {"index": 0, "finish_reason": request.finish_reason}
    if request.handler == CHAT:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    return {
        "object": "chat.completion" if request.handler == CHAT else "text_completion",
        "model": vllm.model_name,
        "choices": [choice],
        "usage": {
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": request.generated_tokens,
            "total_tokens": request.prompt_tokens + request.generated_tokens,
        },
    }


def _refusal(status: int, message: str) -> web.Response:
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    return web.json_response(
        {"error": {"message": message, "type": kind, "code": status}}, status=status
    )


# Simulated answers and faults become visible within 1/20 of the shortest scrape interval.
_TICK_SECONDS = 0.05


class Live:
    """Runs a scene at `speed` times real time. A scene with a past `epoch` first catches up to the present."""

    def __init__(self, scene: Scene, speed: float = 1.0) -> None:
        self.scene = scene
        self.speed = speed
        self.servers = {name: LabServer(vllm, self.advance) for name, vllm in scene.servers.items()}
        self._began_s = 0.0
        self._opened = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Live":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> list[Target]:
        """Open all ports. Raises ServeError if one is taken."""
        if not self.scene.epoch:
            self.scene.begin_at(time.time())
        self._began_s = time.monotonic() - (time.time() - self.scene.epoch) / self.speed
        self.advance()
        async with AsyncExitStack() as opened:
            for server in self.servers.values():
                await opened.enter_async_context(server)
            self._opened = opened.pop_all()
        self._task = asyncio.create_task(self._keep_time(), name="lab")
        return [
            Target(name=name, url=server.url, group=server.vllm.group)
            for name, server in self.servers.items()
        ]

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._opened.aclose()

    def advance(self) -> float:
        self.scene.advance((time.monotonic() - self._began_s) * self.speed)
        return self.scene.t

    def unix_time(self) -> float:
        return self.scene.epoch + self.advance()

    async def _keep_time(self) -> None:
        while True:
            self.advance()
            for server in self.servers.values():
                await server.follow()
            await asyncio.sleep(_TICK_SECONDS)
