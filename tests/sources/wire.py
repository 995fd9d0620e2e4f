"""A server on the wire, down to the byte: it answers each request as the test says, also wrongly."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from ssl import SSLError

Handler = Callable[["Request"], Awaitable[None]]


class Request:
    """One request, and the means to answer it in any way at all."""

    def __init__(self, method, path, headers, reader, writer, connection):
        self.method = method
        self.path = path
        self.headers = headers
        self.reader = reader
        self.writer = writer
        self.connection = connection  # number of the connection it came on
        self.body = b""

    async def answer(self, body=b"", *, status="200 OK", headers=None, length=None):
        """Answer properly; `length` lies about the length of the body."""
        body = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    async def raw(self, data):
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self):
        """Break the connection off."""
        self.writer.transport.abort()


class Wire:
    """What a test sees of its server."""

    def __init__(self):
        self.url = ""
        self.connections = 0
        self.ended = []  # an event for each connection
        self.requests = []
        self.routes = {}

    def on(self, path, handler):
        """Answer `path` with an async handler, or with a body."""
        self.routes[path] = handler if callable(handler) else answering(handler)


def answering(body=b"", **how):
    """A handler that always answers the same; `how` is that of `Request.answer`."""

    async def answer(request):
        await request.answer(body, **how)

    return answer


@asynccontextmanager
async def wire(*, secure=None, **routes):
    """A server on loopback; paths without a route are 404. `secure`: its TLS context."""
    state = Wire()
    tasks = set()

    async def serve(reader, writer):
        state.connections += 1
        number, ended = state.connections, asyncio.Event()
        state.ended.append(ended)
        tasks.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode("latin-1").strip().split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in rest)}
                request = Request(*first.split()[:2], headers, reader, writer, number)
                request.body = await reader.readexactly(int(headers.get("content-length", 0)))
                state.requests.append(request)
                handler = state.routes.get(request.path)
                if handler is None:
                    await request.answer(status="404 Not Found")
                else:
                    await handler(request)
        except (asyncio.IncompleteReadError, ConnectionError, SSLError, asyncio.CancelledError):
            pass
        finally:
            ended.set()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secure)
    state.url = f"http{'s' if secure else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for path, handler in routes.items():
        state.on("/" + path, handler)
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@contextmanager
def black_hole(port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """The number of an open port that swallows what is sent to it: a listener that accepts nobody, and whose backlog is full.

    So is that of a stopped process, or behind a firewall that drops.
    """
    with ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):  # the kernel takes one or two more than it was asked to
            each = held.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex((host, port))
        yield port
