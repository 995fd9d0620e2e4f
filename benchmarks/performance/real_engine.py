"""What being watched costs a real vLLM: its throughput with a watcher at 1 s and without, in pairs.

Needs vLLM's own environment (`make test-vllm` installs it). Load and engine are those of tests/real_vllm.
Which of a pair comes first alternates, so that a drift of the machine cancels out.
"""

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.performance import processes
from benchmarks.performance.row import Row
from tests.real_vllm.load import Load, under_load
from tests.real_vllm.server import RealVllm

PAIRS = 10
SETTLE_SECONDS, SECONDS = 8.0, 30.0
CLIENTS = 4
CHANGE_MAX = 0.5  # per cent


def rows() -> list[Row]:
    """All of this subject."""
    changes = []
    with tempfile.TemporaryDirectory() as folder, RealVllm(Path(folder)) as vllm:
        for pair in range(PAIRS):
            order = (True, False) if pair % 2 else (False, True)
            rate = {watched: _tokens_per_second(vllm.url, watched=watched) for watched in order}
            changes.append(100 * (1 - rate[True] / rate[False]))
    noise = statistics.stdev(changes) / PAIRS**0.5
    return [
        Row("throughput that a real vLLM loses to a watcher at 1 s", statistics.mean(changes), "%", CHANGE_MAX,
            f"± {noise:.2f} % (standard error of {PAIRS} pairs)"),
    ]  # fmt: skip


def _tokens_per_second(url: str, *, watched: bool) -> float:
    with ExitStack() as stack:
        if watched:
            stack.enter_context(processes.watcher(url, 1, 1.0, name_paths=False))
        load = Load(clients=CLIENTS, requests_max=1_000_000, seconds_max=2 * SECONDS)
        report = stack.enter_context(under_load(url, load))
        time.sleep(SETTLE_SECONDS)
        tokens, began = report.output_tokens, time.monotonic()
        time.sleep(SECONDS)
        return (report.output_tokens - tokens) / (time.monotonic() - began)
