"""Ways to hurt a real vLLM with signals, each undone at the end of its block."""

import contextlib
import threading
import time
from collections.abc import Iterator

from tests.real_vllm.server import RealVllm
from tests.real_vllm.witness import moment

SLOW_PERIOD_SECONDS = 0.1  # well below a look, so that no single look finds it stopped
SLOW_STOPPED_SHARE = 0.85
TRIES = 30


@contextlib.contextmanager
def stopped_at_work(vllm: RealVllm, role: str, least: int = 1) -> Iterator[None]:
    """Stop one process (not the API server) at a moment when at least `least` requests run.

    All clients may be between two requests at once, on a busy machine above all: then let it go on,
    and try again.
    """
    for _ in range(TRIES):
        with vllm.stopped(role):
            time.sleep(0.5)  # what it had sent before is with the API server now
            if moment(vllm.url).running >= least:
                yield
                return
        time.sleep(1)
    raise AssertionError(f"at no moment did {least} requests run")


@contextlib.contextmanager
def slowed(vllm: RealVllm, role: str) -> Iterator[None]:
    """Stop one process for most of each tenth of a second: a device that became seven times slower."""
    ended = threading.Event()

    def cycle() -> None:
        while not ended.is_set():
            with vllm.stopped(role):
                ended.wait(SLOW_PERIOD_SECONDS * SLOW_STOPPED_SHARE)
            ended.wait(SLOW_PERIOD_SECONDS * (1 - SLOW_STOPPED_SHARE))

    thread = threading.Thread(target=cycle, name="slowed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
