"""A small engine on a port of its own that answers as vLLM does, until it is told to misbehave."""

import asyncio
import itertools
import json
import time
from contextlib import ExitStack
from pathlib import Path

from tests.sources.wire import black_hole

BODY = (Path(__file__).parents[1] / "sources/captures/0.32.0-v1-cpu-midload.txt").read_text()
MODELS = json.dumps({"data": [{"id": "example/model-8b", "max_model_len": 8192}]})
GIGABYTE = 1 << 30
CHUNK = b"x" * (1 << 16)
SERIES = 10_000
SCRAPED_SECONDS = (
    60.0  # by a daemon that looks twice a second, on a machine that is busy with other tests
)
OTHER = {"/health": "", "/version": '{"version": "0.32.0"}', "/v1/models": MODELS}


class Engine:
    """One server. `fault` names what it does now; "" is well, "refuses" and "black-holes" close its port."""

    def __init__(self, tls=None):
        self.fault = ""
        self.port = 0
        self.asked = 0  # requests taken
        self.scrapes = 0  # ... of which for /metrics
        self.sent = 0  # bytes of the flood that were taken from us
        self.elsewhere = ""  # where it redirects to
        self.series = SERIES  # that it invents at each look
        self.closes = False  # a connection for each request
        self.answer_seconds = 0.0  # how long it takes for anything
        self.runs = asyncio.Event()  # not set: it has stopped, and answers when it goes on
        self.runs.set()
        self._tls = tls
        self._server = None
        self._writers = set()
        self._hole = ExitStack()
        self._lives = itertools.count()
        self._began = time.time() - 3600

    @property
    def url(self):
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def start(self):
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls, backlog=64
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def misbehave(self, fault):
        """From now on; "" makes it well again."""
        if fault in ("refuses", "black-holes"):
            await self.stop()
        self.fault = fault
        if fault == "black-holes":
            self._hole.enter_context(black_hole(self.port))
        for writer in list(self._writers):
            writer.transport.abort()
        if not fault and self._server is None:
            self._hole.close()
            await self.start()

    async def stop(self):
        self._hole.close()
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split()[1].decode()
                self.asked += 1
                self.scrapes += path == "/metrics"
                await self._answer(path, reader, writer)
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, path, reader, writer):
        await self.runs.wait()
        await asyncio.sleep(self.answer_seconds)
        act = getattr(self, "_" + self.fault.replace(" ", "_"), None)
        if act is not None:
            await act(path, reader, writer)
        elif path == "/metrics":
            await self._send(writer, self.body())
        elif path in OTHER:
            await self._send(writer, OTHER[path])
        else:
            await self._send(writer, "", "404 Not Found")

    async def _send(self, writer, body, status="200 OK", more="", length=None):
        body = body if isinstance(body, bytes) else body.encode()
        length = len(body) if length is None else length
        more += "Connection: close\r\n" if self.closes else ""
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n".encode() + body)
        await writer.drain()

    def body(self, offset=None, began=None, extra=""):
        """A body whose counters have grown by what an engine does in this time."""
        grown = (time.monotonic() * 100) if offset is None else offset
        lines = []
        for line in BODY.split("\n"):
            name = line.split("{")[0]
            value = line.rpartition(" ")[2]
            if line.startswith("#") or not line:
                lines.append(line)
            elif name.startswith("process_start_time_seconds"):
                lines.append(f"{line.rpartition(' ')[0]} {began or self._began}")
            elif 'finished_reason="' in line and '"stop"' not in line:  # it fails none
                lines.append(line)
            elif name.endswith("_tokens_total"):  # a hundred of each request
                lines.append(f"{line.rpartition(' ')[0]} {float(value) + 100 * grown}")
            elif name.endswith(("_total", "_count", "_sum", "_bucket")):
                lines.append(f"{line.rpartition(' ')[0]} {float(value) + grown}")
            else:
                lines.append(line)
        return "\n".join(lines[:-1]) + "\n" + extra

    async def scraped(self, times):
        """Wait until /metrics was asked for so many times in all."""
        async with asyncio.timeout(SCRAPED_SECONDS):
            while self.scrapes < times:
                await asyncio.sleep(0.02)

    # --- what it can do wrong

    async def _says_nothing(self, path, reader, writer):
        await reader.read()

    async def _drips(self, path, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"#")
            await writer.drain()
            await asyncio.sleep(1)

    async def _floods(self, path, reader, writer):
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {GIGABYTE}\r\n\r\n".encode())
        for _ in range(GIGABYTE // len(CHUNK)):
            writer.write(CHUNK)
            await writer.drain()
            self.sent += len(CHUNK)

    async def _garbles(self, path, reader, writer):
        await self._send(writer, bytes(range(256)) * 64)

    async def _truncates(self, path, reader, writer):
        body = self.body().encode()
        await self._send(writer, body[: len(body) // 2], length=len(body))
        writer.transport.close()
        raise ConnectionError

    async def _redirects(self, path, reader, writer):
        await self._send(writer, "", "302 Found", f"Location: {self.elsewhere}{path}\r\n")

    async def _changes_identity(self, path, reader, writer):
        """Two replicas behind one address, asked in turn."""
        if path != "/metrics":
            await self._send(writer, OTHER.get(path, ""), "200 OK" if path in OTHER else "404 No")
            return
        one = next(self._lives) % 2
        grown = (1e6 if one else 5e3) + time.monotonic() * 50
        await self._send(writer, self.body(grown, self._began - 7200 * one))

    async def _invents_series(self, path, reader, writer):
        if path != "/metrics":
            await self._send(writer, OTHER.get(path, ""), "200 OK" if path in OTHER else "404 No")
            return
        life = next(self._lives)
        extra = "".join(
            f'vllm:invented_total{{id="{life}-{number}"}} 1\n' for number in range(self.series)
        )
        await self._send(writer, self.body(extra="# TYPE vllm:invented_total counter\n" + extra))
