"""A watcher that only has gates, as a process of its own, so that it can be killed and stopped.

Run: python -m tests.restart.hooks.gate_watcher STATE_DIR PORT. It prints its port, then obeys lines: `kill START`
and `drain START` (of target llama), `free`.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import structlog

from vllm_watch.board.board import Board
from vllm_watch.export.server import Server
from vllm_watch.restart.gates import Gates
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.journal import Journal

ROOT = Path(__file__).parents[3]
KILL_SECONDS = 300.0


class Watcher:
    """The process, for a test. It is ended with the `with`."""

    def __init__(self, state_dir, port=0):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.restart.hooks.gate_watcher", str(state_dir), str(port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def say(self, line):
        """Have it done; return when it is."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def stop(self):
        """Stop it in its tracks, as a paused VM or a debugger does."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


def _looked(start):
    return TargetSignals(
        target="llama", t=time.time(), up=True, outcome="ok", state="serving", state_text="",
        process_start_time=start,
    )  # fmt: skip


async def _kill(gates, start, until):
    with gates.killing("llama", start, KILL_SECONDS):
        await until.wait()


async def _obey(gates):
    over, running = asyncio.Event(), None
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split():
            case ["kill", start]:
                running = asyncio.create_task(_kill(gates, float(start), over))
                await asyncio.sleep(0)  # it has begun
            case ["drain", start]:
                gates.scraped(_looked(float(start)))
                gates.draining("llama", on=True)
            case ["free"]:
                gates.draining("llama", on=False)
                over.set()
                while running is not None and not running.done():
                    await asyncio.sleep(0.05)
        print("done", flush=True)


async def _main(state_dir, port):
    Path(state_dir).mkdir(exist_ok=True)
    journal = Journal(Path(state_dir))
    await journal.probe()
    gates = Gates(journal)
    board = Board(window_seconds=30)
    board.add_target(Target(name="llama", url="http://127.0.0.1:1"), 5.0)
    server = Server(
        board, host="127.0.0.1", port=int(port), ready=lambda: None, gatekeeper=gates
    )  # fmt: skip
    await server.start()
    print(server.port, flush=True)
    await _obey(gates)


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(_main(*sys.argv[1:]))
