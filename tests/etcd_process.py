"""Real etcd servers for tests: one, or three that elect a leader; and a wire to one that can be cut."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_watch.clients.etcd import Access, Etcd, EtcdError
from vllm_watch.restart.hooks.base import new_session

START_SECONDS = 30.0


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass
class Member:
    """One server, which can be killed and started again on the same data."""

    command: list[str]
    endpoint: str
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def send(self, signal: int) -> None:
        assert self.process is not None
        self.process.send_signal(signal)


@contextlib.contextmanager
def _members(folder: Path, count: int, certificate: Path | None) -> Iterator[list[Member]]:
    ports = free_ports(2 * count)
    scheme = "https" if certificate else "http"
    peers = ",".join(f"m{n}=http://127.0.0.1:{ports[count + n]}" for n in range(count))
    members = []
    for number in range(count):
        client, peer = (
            f"{scheme}://127.0.0.1:{ports[number]}",
            f"http://127.0.0.1:{ports[count + number]}",
        )
        command = [
            "etcd", f"--name=m{number}", f"--data-dir={folder}/m{number}", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster={peers}", "--logger=zap",
        ]  # fmt: skip
        if certificate:
            command += [
                f"--cert-file={certificate}",
                f"--key-file={certificate.with_name('tls.key')}",
            ]
            command += [f"--trusted-ca-file={certificate}", "--client-cert-auth"]
        members.append(Member(command, client, folder / f"m{number}.log"))
    try:
        for member in members:
            member.start()
        yield members
    finally:
        for member in members:
            member.kill()


@contextlib.asynccontextmanager
async def etcd(
    folder: Path, count: int = 1, certificate: Path | None = None
) -> AsyncIterator[list[Member]]:
    """Start servers and wait until they answer; with a certificate over TLS, which clients must show too."""
    with _members(folder, count, certificate) as members:
        access = Access(
            endpoints=tuple(member.endpoint for member in members), ca_file=certificate,
            certificate_file=certificate, key_file=certificate.with_name("tls.key") if certificate else None,
        )  # fmt: skip
        await answers(Etcd(access, new_session))
        yield members


async def answers(client: Etcd) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            with contextlib.suppress(EtcdError):
                await client.range("x")
                return
            await asyncio.sleep(0.2)


class Wire:
    """A connection to one server that can be cut: then nothing goes through, and nobody is told."""

    def __init__(self, endpoint: str, lose: bytes = b"") -> None:
        """A request that holds the bytes `lose` goes through, and its answer never comes back."""
        self._port = int(endpoint.rpartition(":")[2])
        self._lose = lose
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""
        self.mend()

    def cut(self) -> None:
        self._there.clear()
        self._back.clear()

    def mend(self) -> None:
        self._there.set()
        self._back.set()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whole: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await whole.wait()
                if self._lose and self._lose in data:
                    self._lose = b""
                    self._back.clear()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [writer]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            writers.append(back)
            await asyncio.gather(
                self._carry(reader, back, self._there), self._carry(there, writer, self._back)
            )
        except OSError:
            pass
        finally:
            for each in writers:
                each.transport.abort()
            self._tasks.discard(task)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self.mend()
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)  # aborted transports close in the next round
