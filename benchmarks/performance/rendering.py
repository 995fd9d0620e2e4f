"""What rendering /metrics of a thousand targets takes, alone: in this process, without sending it."""

import time

from prometheus_client import CollectorRegistry

from benchmarks.engines import bodies
from benchmarks.performance.row import Row
from vllm_watch.board.board import Board
from vllm_watch.export.text import render
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.samples.target import Target
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.watch import Watch

TARGETS, LOOKS, INTERVAL_SECONDS = 1000, 6, 5.0


def rows() -> list[Row]:
    """The best of some, each after every target was looked at anew: others on the machine only add."""
    board, reader, own = Board(), Reader(), CollectorRegistry()
    watches = [Watch(f"t{number}") for number in range(TARGETS)]
    for watch in watches:
        board.add_target(
            Target(name=watch.target, url=f"http://h/{watch.target}"), INTERVAL_SECONDS
        )
    best_s, size = float("inf"), 0
    for look, text in enumerate(bodies(LOOKS)):
        _look(board, watches, reader, text, look * INTERVAL_SECONDS)
        began = time.thread_time()
        size = len(render(board, own))
        best_s = min(best_s, time.thread_time() - began)
    beside = f"{size / 1e6:.1f} MB, CPU, without sending"
    return [Row("/metrics of 1,000 targets, rendered", 1000 * best_s, "ms", 100.0, beside)]


def _look(board: Board, watches: list[Watch], reader: Reader, text: str, at_s: float) -> None:
    reading, call = reader.read(text), Call(outcome="ok", status=200, latency_s=0.004)
    for watch in watches:
        watch.observe(
            Observation(t=1.7e9 + at_s, monotonic_s=at_s, target=watch.target, scrape=call, health=call, reading=reading)
        )  # fmt: skip
        for source in ("metrics", "health"):
            board.call(source, watch.target, "ok", 0.004, 1.7e9 + at_s)
        assert watch.signals is not None
        board.publish(watch.signals, late_seconds=0.001)
