"""A process that serves many targets: the whole capture of a real vLLM, nearly every value another at every scrape.

`python engines.py PORT_FILE` binds a free port of loopback, writes its number into PORT_FILE and answers
`/NAME/metrics` and `/NAME/health` until it is killed. Each NAME is an engine of its own that works steadily:
its counters only grow, and it is healthy. `/NAME/silence` makes it take requests and answer none any more,
and `/all/silence` all of them. It does as little as it can for a request, so that what is measured is the one
who asks.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import ClassVar

CAPTURE = Path(__file__).parent.parent / "tests/sources/captures/0.32.0-v1-real-cpu.txt"
BODIES = 128
SERVED = 400  # looks until an engine begins anew: half an hour at 5 s
GROWTH = 50.0  # of each counter between two looks
TOKENS = 100.0  # of a request
MEAN_SECONDS = 0.025  # of what a histogram of seconds observes; tokens: a thousand times that
_STEADY = (
    "_created", "start_time", "preemptions", "_info", "open_fds", "max_fds",
    "abort", "error", "repetition",
)  # fmt: skip


def bodies(count: int = BODIES) -> list[str]:
    """`count` bodies of one server, one look after another."""
    lines = CAPTURE.read_text().split("\n")
    buckets = Counter(line.partition('le="')[0] for line in lines)
    seen: Counter[str] = Counter()
    makers = []
    for line in lines:
        family = line.partition('le="')[0]
        seen[family] += 1
        makers.append(_maker(line, seen[family] / buckets[family]))
    return ["\n".join(line if make is None else make(number) for line, make in makers) for number in range(count)]  # fmt: skip


def _maker(line, share):
    """(the line, how to make it of a look's number; None: it never changes)."""
    head, _, value = line.rpartition(" ")
    if not line or line.startswith("#") or any(word in head for word in _STEADY):
        return line, None
    name, first = head.partition("{")[0], float(value)
    if "usage_perc" in name:
        return line, lambda number: f"{head} {0.1 + 0.0071 * (number % 100)}"
    if "num_requests" in name:
        return line, lambda number: f"{head} {float(8 + number % 5 if 'running' in name else number % 2)}"  # fmt: skip
    if name.startswith(("process_", "python_")):
        return line, lambda number: f"{head} {first + number}"
    if name.endswith("_sum"):
        step = GROWTH * MEAN_SECONDS * (1.0 if "seconds" in name else 1000.0)
        return line, lambda number: f"{head} {round(first + step * (number + 1), 9)}"
    of_tokens = TOKENS if name.endswith("_tokens_total") else 1.0
    step = GROWTH * (share if name.endswith("_bucket") else of_tokens)
    return line, lambda number: f"{head} {float(round(first + step * (number + 1)))}"


class _Server(asyncio.Protocol):
    answers: tuple[bytes, ...] = ()
    looks: ClassVar[Counter[bytes]] = Counter()
    silent: ClassVar[set[bytes]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            _, name, what = head.split(b" ", 2)[1].split(b"/", 2)
            self._answer(name, what)

    def _answer(self, name: bytes, what: bytes) -> None:
        if what == b"silence":
            self.silent.add(name)
        elif name in self.silent or b"all" in self.silent:
            return
        if what == b"metrics":
            self.transport.write(self.answers[self.looks[name] % len(self.answers)])
            self.looks[name] += 1
        elif what in (b"health", b"silence"):
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        else:
            self.transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


async def main(port_file: Path) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\r\n"
    _Server.answers = tuple(
        head.format(len(b.encode())).encode() + b.encode() for b in bodies(SERVED)
    )
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0, backlog=4096)
    port_file.write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
