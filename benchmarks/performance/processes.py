"""The processes that are measured: engines on one core; the watcher, or Prometheus, on the other.

CPU and memory are the operating system's figures of the whole process.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
START_SECONDS = 120.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """What a process holds in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def pinned(core: int) -> list[str]:
    """The words that keep a command on one core, where there are two."""
    return ["taskset", "-c", str(core)] if os.cpu_count() != 1 else []


def written(path: Path, process: subprocess.Popen[bytes]) -> str:
    """What a process writes when it is ready."""
    end_s = time.monotonic() + START_SECONDS
    while not (path.exists() and path.read_text()):
        assert process.poll() is None, "it ended"
        assert time.monotonic() < end_s, f"nothing in {path} after {START_SECONDS:g} s"
        time.sleep(0.05)
    return path.read_text()


@contextmanager
def engines() -> Iterator[str]:
    """The URL below which every name is an engine."""
    with tempfile.TemporaryDirectory() as folder:
        port = Path(folder) / "port"
        process = subprocess.Popen([*pinned(1), sys.executable, HERE.parent / "engines.py", port])
        try:
            yield f"http://127.0.0.1:{written(port, process)}"
        finally:
            process.kill()
            process.wait()


class Watcher:
    """A running watcher, with how late its looks begin."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self.pid = process.pid
        self._process = process
        self.url = written(folder / "url", process)

    def begin_anew(self) -> None:
        """Forget how late looks were until now."""
        (self._folder / "reset").touch()

    def lateness(self) -> list[float]:
        """How late each look since then began (seconds), ascending."""
        (self._folder / "tell").touch()
        return [float(line) for line in written(self._folder / "late", self._process).split()]

    def shares(self) -> dict[str, float]:
        """By stage, its share of all CPU since then, of a watcher that is timed; the most first."""
        (self._folder / "tell").touch()
        lines = written(self._folder / "shares", self._process).split("\n")
        pairs = [line.split(" ", 1) for line in lines]
        return {
            name: float(share) for share, name in sorted(pairs, key=lambda pair: -float(pair[0]))
        }


@contextmanager
def watcher(
    engines_url: str,
    targets: int,
    interval_seconds: float,
    *,
    name_paths: bool = True,
    timed: bool = False,
) -> Iterator[Watcher]:
    """`vllm-watch run` of so many targets, on the core that the engines do not use.

    `name_paths`: each target has a path of its own below the URL; otherwise it is the URL itself.
    `timed`: with timers around its stages.
    """
    with tempfile.TemporaryDirectory() as name:
        urls = [f"{engines_url}/t{n}" if name_paths else engines_url for n in range(targets)]
        (Path(name) / "targets").write_text("\n".join(urls))
        words = [interval_seconds, name, *(["timed"] if timed else [])]
        command = [sys.executable, HERE / "watching.py", *map(str, words)]
        process = subprocess.Popen([*pinned(0), *command])
        try:
            yield Watcher(Path(name), process)
        finally:
            process.kill()
            process.wait()


@contextmanager
def prometheus(
    engines_url: str, targets: int, interval_seconds: float, *, name_paths: bool = True
) -> Iterator[int]:
    """The PID of a Prometheus that scrapes the same, on the same core, into memory and its log."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "prometheus.yml"
        address = engines_url.removeprefix("http://")
        paths = [f"/t{number}/metrics" if name_paths else "/metrics" for number in range(targets)]
        each = [
            f"      - {{targets: ['{address}'], labels: {{__metrics_path__: {path}, name: t{number}}}}}"
            for number, path in enumerate(paths)
        ]
        head = f"global: {{scrape_interval: {interval_seconds:g}s, scrape_timeout: {interval_seconds:g}s}}"
        jobs = ["scrape_configs:", "  - job_name: engines", "    static_configs:", *each]
        config.write_text("\n".join([head, *jobs, ""]))
        process = subprocess.Popen(
            [
                *pinned(0), "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                "--web.listen-address=127.0.0.1:0", "--log.level=error",
            ],
            env={**os.environ, "GOMAXPROCS": "1"},
        )  # fmt: skip
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()


def spent(pid: int, seconds: float) -> float:
    """CPU seconds that a process spends in so long, from now."""
    began = cpu_seconds(pid)
    time.sleep(seconds)
    return cpu_seconds(pid) - began
