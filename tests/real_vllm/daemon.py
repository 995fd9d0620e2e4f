"""The whole daemon as its operators run it: a process of its own, asked over HTTP."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0
ANSWER_SECONDS_MAX = 60.0  # it answers from memory: 7 s while vLLM compiles on both of two cores

Labels = tuple[tuple[str, str], ...]  # ascending by label


class Metrics:
    """One /metrics body, by series."""

    def __init__(self, body: str) -> None:
        self.series: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(body):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                self.series.setdefault(sample.name, {})[labels] = sample.value

    def get(self, name: str, **labels: str) -> float | None:
        """Value of the one series that has these labels among its own; None where there is none."""
        wanted = set(labels.items())
        found = [value for key, value in self.series.get(name, {}).items() if wanted <= set(key)]
        assert len(found) <= 1, f"{name}{labels} is {len(found)} series"
        return found[0] if found else None

    def holding(self, name: str, label: str, **labels: str) -> str | None:
        """Of several series that differ in `label`, its value on the one that is 1."""
        wanted = set(labels.items())
        for key, value in self.series.get(name, {}).items():
            if wanted <= set(key) and value == 1:
                return dict(key)[label]
        return None


class Daemon:
    """`vllm-watch run` on a free port; `settings` are environment variables without their prefix."""

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, str],
        settings: Mapping[str, str],
        config: str = "",
    ) -> None:
        """`config` is the text of a configuration file, where environment variables do not suffice."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{listen}"
        self.log = folder / "daemon.log"
        arguments = ["--listen", listen, "--state-dir", str(folder / "state")]
        for name, url in targets.items():
            arguments += ["--target", f"{name}={url}"]
        self._config = folder / "vllm-watch.yaml"
        if config:
            self._config.write_text(config)
            arguments += ["--config", str(self._config)]
        # Our own variables for tests look like settings to the daemon, which refuses what it does not know.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_WATCH_")}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vllm_watch", "run", *arguments],
                env=inherited | {f"VLLM_WATCH_{key}": value for key, value in settings.items()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise RuntimeError(f"the daemon did not come up:\n{self.log.read_text()}")
            time.sleep(0.1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        assert status == 0 or kind, f"the daemon ended with {status}:\n{self.log.read_text()}"

    def reload(self, config: str) -> None:
        """Change to this configuration, and return when it has."""
        self._config.write_text(config)
        request = urllib.request.Request(f"{self.url}/-/reload", method="POST")
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX):
            pass

    def metrics(self) -> Metrics:
        """Return what it exports now."""
        return Metrics(self._get("/metrics").decode())

    def status(self, target: str) -> dict[str, Any]:
        """Return what /api/v1/status says of one target."""
        found = json.loads(self._get("/api/v1/status"))["targets"]
        said: dict[str, Any] = next(each for each in found if each["name"] == target)
        return said

    def incidents(self, target: str) -> list[dict[str, Any]]:
        """Return what /api/v1/incidents says: those that are open, then those that ended."""
        found: list[dict[str, Any]] = json.loads(self._get(f"/api/v1/incidents?target={target}"))[
            "incidents"
        ]
        return found

    def logged(self) -> list[dict[str, Any]]:
        """Return the lines of its log so far, where they are JSON (`LOG__FORMAT`)."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]

    def recording(self, target: str, minutes: float = 10) -> list[dict[str, Any]]:
        """Return the flight recorder's observations, oldest first."""
        return [
            json.loads(line)
            for line in gzip.decompress(self.recorded(target, minutes)).splitlines()
        ]

    def recorded(self, target: str, minutes: float) -> bytes:
        """Return the same as the trace file that it is."""
        return self._get(f"/api/v1/recording?target={target}&minutes={minutes:g}")

    def _answers(self) -> bool:
        try:
            self._get("/-/healthy")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=ANSWER_SECONDS_MAX) as answer:
            body: bytes = answer.read()
            return body
