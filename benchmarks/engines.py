"""A process that serves many targets: the whole capture of a vLLM, every value different at every scrape.

`python engines.py PORT_FILE` binds a free port of loopback, writes its number into PORT_FILE and answers
`/<anything>/metrics` and `/<anything>/health` until it is killed. It does as little as it can for a
request, so that what is measured is the one who asks.
"""

import asyncio
import sys
from pathlib import Path

CAPTURE = Path(__file__).parent.parent / "tests/sources/captures/0.32.0-v1-real-cpu.txt"
BODIES = 128


def bodies(count: int = BODIES) -> list[str]:
    """`count` bodies of one server, all counters growing, no value equal to the one before."""
    lines = CAPTURE.read_text().split("\n")
    return ["\n".join(_grown(line, number) for line in lines) for number in range(count)]


def _grown(line: str, number: int) -> str:
    if not line or line.startswith("#"):
        return line
    head, _, value = line.rpartition(" ")
    if "_created" in head or "start_time" in head:
        return line  # these would say that the server began anew
    if "_perc" in head:
        return f"{head} {0.1 + 0.0071 * (number % 100)}"
    return f"{head} {float(value) + 1.37 * (number + 1) * (1 + float(value) * 1e-4)}"


class _Server(asyncio.Protocol):
    answers: tuple[bytes, ...] = ()
    asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            if path.endswith(b"/metrics"):
                _Server.asked += 1
                # One step on for every 200 questions: each of 200 targets sees another body each time.
                self.transport.write(
                    self.answers[(_Server.asked // 200 + int(_Server.asked)) % len(self.answers)]
                )
            elif path.endswith(b"/health"):
                self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            else:
                self.transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


async def main(port_file: Path) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\r\n"
    _Server.answers = tuple(head.format(len(b.encode())).encode() + b.encode() for b in bodies())
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0)
    port_file.write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
