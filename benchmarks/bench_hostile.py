"""What one hostile engine costs a watcher in memory: `python benchmarks/bench_hostile.py [--minutes 2] [--mode MODE]`.

The real daemon as a process of its own, with its defaults, and the lab's hostile engine: each mode in turn, and
between two of them all mixed. Prints a line every 10 s, the sums at the end; exits 1 above RSS_MB_MAX.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from aiohttp import web

from benchmarks.lab.hostile import MIXED, MODES, packed

RSS_MB_MAX = 110.0
EACH_SECONDS = 10.0


class Engine:
    """Answers each look at /metrics with what its mode makes; knows no other path."""

    def __init__(self) -> None:
        self.mode, self.looks = MIXED, 0
        self._rng = Random("hostile")

    async def answer(self, request: web.Request) -> web.Response:
        """A body that was never sent before."""
        if request.path != "/metrics":
            return web.Response(status=200 if request.path == "/health" else 404)
        self.looks += 1
        said, headers = await asyncio.to_thread(packed, self.mode, self._rng)
        return web.Response(body=said, headers=headers, content_type="text/plain")


def rss_mb(pid: int) -> float:
    """What the process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def slope_mb(times_s: list[float], held_mb: list[float]) -> float:
    """MB an hour, by least squares."""
    mean_t, mean = sum(times_s) / len(times_s), sum(held_mb) / len(held_mb)
    across = sum((t - mean_t) ** 2 for t in times_s)
    up = sum((t - mean_t) * (mb - mean) for t, mb in zip(times_s, held_mb, strict=True))
    return 3600 * up / across if across else 0.0


async def measure(minutes: float, mode: str | None) -> float:
    """Return the largest RSS, in MB."""
    engine = Engine()
    application = web.Application()
    application.router.add_get("/{path:.*}", engine.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    modes = [mode] if mode else [each for name in MODES for each in (name, MIXED)]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(
            f"listen: 127.0.0.1:0\nstate_dir: {folder}/state\ntargets: [{{url: http://127.0.0.1:{port}}}]\n"
        )
        with Path(folder, "log").open("wb") as log:
            daemon = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "vllm_watch", "run", "--config", str(config), stdout=log, stderr=log
            )  # fmt: skip
        try:
            return await _watched(daemon, engine, modes, 60 * minutes)
        finally:
            if daemon.returncode is None:
                daemon.terminate()
                await daemon.wait()
            await runner.cleanup()


async def _watched(
    daemon: asyncio.subprocess.Process, engine: Engine, modes: list[str], seconds: float
) -> float:
    began_s = time.monotonic()
    times_s: list[float] = []
    held_mb: list[float] = []
    by_mode: dict[str, list[float]] = {}
    while (now_s := time.monotonic() - began_s) < seconds:
        engine.mode = modes[int(now_s / seconds * len(modes))]
        await asyncio.sleep(EACH_SECONDS)
        if daemon.returncode is not None:
            raise SystemExit(f"the daemon ended with {daemon.returncode}")
        held = rss_mb(daemon.pid)
        print(f"{now_s:6.0f} s {engine.mode:10} {engine.looks:5} looks {held:6.1f} MB", flush=True)
        times_s.append(now_s)
        held_mb.append(held)
        by_mode.setdefault(engine.mode, []).append(held)
    for name, each in by_mode.items():
        print(f"{name:10} mean {sum(each) / len(each):6.1f} max {max(each):6.1f} MB")
    print(
        f"all        mean {sum(held_mb) / len(held_mb):6.1f} max {max(held_mb):6.1f} MB, "
        f"slope {slope_mb(times_s, held_mb):+.1f} MB an hour"
    )
    return max(held_mb)


def main() -> int:
    """Measure, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--mode", choices=(*MODES, MIXED))
    said = parser.parse_args()
    return int(asyncio.run(measure(said.minutes, said.mode)) > RSS_MB_MAX)


if __name__ == "__main__":
    sys.exit(main())
