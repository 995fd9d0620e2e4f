"""How soon it watches: what importing takes, and when the first scrape comes after the process began."""

import os
import resource
import socket
import subprocess
import sys
import time

from benchmarks.performance.processes import pinned
from benchmarks.performance.row import Row

REPEATS = 7
IMPORTED = "import vllm_watch.cli.run, vllm_watch.daemon"  # all that `vllm-watch run` needs
PEER = "import aiohttp, pydantic, yaml, structlog, prometheus_client"  # what of it is not ours
WAIT_SECONDS = 60.0


def rows() -> list[Row]:
    """All of this subject; the best of some runs, since others on the machine only ever add."""
    bare = min(_python("pass") for _ in range(REPEATS))
    ours = min(_python(IMPORTED) for _ in range(REPEATS)) - bare
    theirs = min(_python(PEER) for _ in range(REPEATS)) - bare
    first = min(_first_scrape() for _ in range(REPEATS))
    return [
        Row("import, CPU", 1000 * ours, "ms", 250.0, f"its libraries alone {1000 * theirs:.0f} ms"),
        Row("first scrape after the process began, wall clock", 1000 * first, "ms", 600.0, f"python alone {1000 * bare:.0f} ms"),
    ]  # fmt: skip


def _python(code: str) -> float:
    """CPU seconds: others on the machine count little in it."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*pinned(0), sys.executable, "-c", code], check=True, env=_environ())
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def _first_scrape() -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_SECONDS)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        words = ["-m", "vllm_watch", "run", "--target", f"one={url}", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [*pinned(0), sys.executable, *words], env=_environ(), stderr=subprocess.DEVNULL
        )
        try:
            server.accept()[0].close()
            return time.monotonic() - began
        finally:
            process.kill()
            process.wait()


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
