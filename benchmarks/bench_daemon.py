"""What the whole daemon costs: one target at 1 s, and 200 targets at 5 s on one core.

The engines are served by another process, pinned to the other core; the daemon is a process of its
own, pinned to the first, with detectors, recorder, GPUs and export as `vllm-watch run` has them. CPU and memory
are the operating system's figures; lateness is how much later than planned a look began.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def start_engines(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    port_file = folder / "port"
    process = subprocess.Popen([*pinned(1), sys.executable, HERE / "engines.py", port_file])
    while not (port_file.exists() and port_file.read_text()):
        time.sleep(0.05)
    return process, int(port_file.read_text())


def pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core)] if os.cpu_count() != 1 else []


def measure(
    targets: int, interval_seconds: float, seconds: float, state_dir: Path | None
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engines, port = start_engines(folder)
        result = folder / "result"
        daemon = subprocess.Popen(
            [
                *pinned(0),
                sys.executable,
                __file__,
                "child",
                str(port),
                str(targets),
                str(interval_seconds),
                str(state_dir or ""),
                result,
            ],
        )
        try:
            while not result.exists():
                time.sleep(0.05)
                assert daemon.poll() is None, "the daemon ended"
            time.sleep(2 * interval_seconds + 2)  # warm-up: layouts learnt, windows begun
            began, cpu = time.monotonic(), cpu_seconds(daemon.pid)
            (folder / "reset").touch()
            time.sleep(seconds)
            share = (cpu_seconds(daemon.pid) - cpu) / (time.monotonic() - began)
            rss = rss_bytes(daemon.pid)
            url = result.read_text()
            render = min(
                timed(lambda: urllib.request.urlopen(url + "/metrics", timeout=30).read())
                for _ in range(5)
            )
            daemon.terminate()
            daemon.wait(10)
            looks, late, late_p99 = (float(x) for x in (folder / "looks").read_text().split())
        finally:
            daemon.kill()
            engines.kill()
            daemon.wait()
            engines.wait()
    return {
        "cpu share": share, "RSS MiB": rss / 2**20, "ms CPU a look": 1000 * share * interval_seconds / targets,
        "late max ms": 1000 * late, "late p99 ms": 1000 * late_p99, "looks": looks, "render ms": 1000 * render,
    }  # fmt: skip


def timed(call: object) -> float:
    began = time.monotonic()
    call()  # type: ignore[operator]
    return time.monotonic() - began


async def child(
    port: int, targets: int, interval_seconds: float, state_dir: str, result: Path
) -> None:
    """The daemon itself, as `vllm-watch run` makes it."""
    from vllm_watch import logs
    from vllm_watch.config import load
    from vllm_watch.daemon import Daemon
    from vllm_watch.sources.nvml import NvmlSource
    from vllm_watch.sources.processes import ProcReader

    names = [f"t{number}=http://127.0.0.1:{port}/t{number}" for number in range(targets)]
    environ = {
        "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": str(interval_seconds),
        "VLLM_WATCH_LOG__LEVEL": "error",
    }
    config = load(
        None,
        environ=environ,
        targets=names,
        listen="127.0.0.1:0",
        state_dir=Path(state_dir) if state_dir else None,
    )
    logs.configure(config.log)
    daemon = Daemon(
        config, lambda settings, config: NvmlSource(settings, ProcReader(config.procfs))
    )

    async def start_over() -> None:
        result.write_text(daemon.url)
        while not (result.parent / "reset").exists():
            await asyncio.sleep(0.05)
        for loop in daemon.loops:
            loop.lateness_seconds.clear()

    tasks = []
    kept: list = []

    def started() -> None:
        kept.extend(daemon.loops)
        tasks.append(asyncio.create_task(start_over()))

    await daemon.run(started)
    late = sorted(x for loop in kept for x in loop.lateness_seconds)
    (result.parent / "looks").write_text(f"{len(late)} {late[-1]} {late[int(len(late) * 0.99)]}")


def main() -> None:
    quick = "--quick" in sys.argv
    rows = []
    with tempfile.TemporaryDirectory() as state:
        for title, targets, interval, seconds, folder in (
            ("1 target at 1 s", 1, 1.0, 20 if quick else 60, None),
            ("1 target at 1 s, state dir", 1, 1.0, 20 if quick else 30, Path(state)),
            ("200 targets at 5 s", 200, 5.0, 20 if quick else 60, None),
            ("200 targets at 5 s, state dir", 200, 5.0, 20 if quick else 30, Path(state)),
        ):
            rows.append((title, measure(targets, interval, seconds, folder)))
    print(f"{'daemon, whole path':32}" + "".join(f"{key:>15}" for key in rows[0][1]))
    for title, row in rows:
        print(f"{title:32}" + "".join(f"{value:15.4g}" for value in row.values()))
    print(
        "limits: 1 target at 1 s under 0.01 of a core and under 75 MB; 200 at 5 s with no look late by over 1000 ms"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        asyncio.run(
            child(
                int(sys.argv[2]),
                int(sys.argv[3]),
                float(sys.argv[4]),
                sys.argv[5],
                Path(sys.argv[6]),
            )
        )
    else:
        main()
