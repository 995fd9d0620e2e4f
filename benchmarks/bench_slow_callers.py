"""What a scrape takes while 200 callers are slow on purpose: heads and bodies that drip, answers unread, silence.

The server is a process of its own, with 200 targets on its board; each scrape is a new connection.
"""

import asyncio
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.export.demo_board import fill  # noqa: E402
from tests.export.slow_callers import scrape_seconds, slow_callers  # noqa: E402
from tests.export.small_board import small_board  # noqa: E402
from vllm_watch.export.server import Server  # noqa: E402

TARGETS = 200
SCRAPES = 200
EACH = 50  # of four kinds


def serve(told: Connection) -> None:
    """Serve until the parent goes."""

    async def main() -> None:
        board = small_board()
        fill(board, extra=TARGETS, now=1_763_700_000.0, back_seconds=5)
        server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
        await server.start()
        told.send(server.port)
        await asyncio.to_thread(told.recv)
        await server.stop()

    asyncio.run(main())


async def measured(port: int) -> list[float]:
    return sorted([await asyncio.to_thread(scrape_seconds, port) for _ in range(SCRAPES)])


async def measure(port: int) -> None:
    print(f"{'callers':32} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    await measured(port)  # warm
    rows = [("none", await measured(port))]
    async with slow_callers(port, EACH):
        await asyncio.sleep(2.0)
        rows.append((f"{4 * EACH} slow ones", await measured(port)))
    for name, took in rows:
        p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        print(f"{name:32} {p50 * 1e3:8.1f} {p99 * 1e3:8.1f} {took[-1] * 1e3:8.1f}")


def main() -> None:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,))
    server.start()
    try:
        asyncio.run(measure(ours.recv()))
    finally:
        ours.send(None)
        server.join(10)
    print(f"one server process, {os.cpu_count()} cores, {TARGETS} targets on the board")


if __name__ == "__main__":
    main()
