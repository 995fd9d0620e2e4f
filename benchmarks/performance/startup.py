"""How soon it watches: what importing takes, and when the first scrape comes after the process began.

With bytecode there, as pip leaves it when it installs a package; what it takes without any is said beside it.
"""

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.performance.processes import pinned
from benchmarks.performance.row import Row

REPEATS = 7
IMPORTED = "import gc; gc.disable(); from vllm_watch.cli import run"  # as __main__ does for `run`
PEER = "import aiohttp.web, pydantic, structlog, yaml"  # what of it is not ours
ENDED = "\nimport os; os._exit(0)"  # what it takes to clear away at the end is not importing
WAIT_SECONDS = 60.0


def rows() -> list[Row]:
    """All of this subject; the best of some runs, since others on the machine only ever add."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = _environ(PYTHONPYCACHEPREFIX=folder)
        source = _environ(
            PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX=str(Path(folder, "none"))
        )
        bare = _best(lambda: _python("pass", compiled))
        ours = _best(lambda: _python(IMPORTED, compiled)) - bare
        theirs = _best(lambda: _python(PEER, compiled)) - bare
        first = _best(lambda: _first_scrape(compiled))
        uncompiled = _best(lambda: _first_scrape(source))
    return [
        Row("import, CPU", 1000 * ours, "ms", 400.0, f"its libraries alone {1000 * theirs:.0f} ms"),
        Row("from process start to first scrape, wall clock", 1000 * first, "ms", 600.0,
            f"python alone {1000 * bare:.0f} ms; without cached bytecode {1000 * uncompiled:.0f} ms"),
    ]  # fmt: skip


def _best(measure: Callable[[], float]) -> float:
    measure()  # the first run writes the bytecode
    return min(measure() for _ in range(REPEATS))


def _python(code: str, environ: dict[str, str]) -> float:
    """CPU seconds: others on the machine count little in it."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*pinned(0), sys.executable, "-c", code + ENDED], check=True, env=environ)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def _first_scrape(environ: dict[str, str]) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_SECONDS)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        words = ["-m", "vllm_watch", "run", "--target", f"one={url}", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [*pinned(0), sys.executable, *words], env=environ, stderr=subprocess.DEVNULL
        )
        try:
            server.accept()[0].close()
            return time.monotonic() - began
        finally:
            process.kill()
            process.wait()


def _environ(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}
