"""A real Prometheus on a loopback port that scrapes addresses."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.ports import free_port

READY_SECONDS_MAX = 60.0
CONFIG = """\
global: {scrape_interval: %ds, scrape_timeout: %ds}
scrape_configs: [{job_name: %s, static_configs: [{targets: %s}]}]
"""


def wait_for(url: str, process: subprocess.Popen[bytes], seconds: float) -> None:
    """Return once the address answers 200; fails when the process ends or the time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer within {seconds:g} s")


class Prometheus:
    """Its data live in `folder`."""

    def __init__(
        self, folder: Path, *targets: str, job: str = "vllm-watch", interval_s: int = 1
    ) -> None:
        self._config = folder / "prometheus.yaml"
        self._config.write_text(
            CONFIG % (interval_s, min(10, interval_s), job, json.dumps(targets))
        )
        self._folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        address = self.url.removeprefix("http://")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={self._config}", f"--web.listen-address={address}",
             f"--storage.tsdb.path={self._folder / 'data'}", "--log.level=error"],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for(f"{self.url}/-/ready", self._process, READY_SECONDS_MAX)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:  # fmt: skip
        self._process.kill()
        self._process.wait(timeout=10)

    def ask(self, path: str, parameters: Mapping[str, str | float]) -> Any:
        """The `data` of an answer of its API; an error's text fails the test."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None
