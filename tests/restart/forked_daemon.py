"""`vllm-watch run` again and again, forked from one process that has imported it: most of a start is the import.

Run as a program, it forks one for each line of JSON that it reads, and prints its PID.
"""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.daemon_process import SETTINGS, DaemonProcess
from tests.restart.world import Forking
from vllm_watch.__main__ import main
from vllm_watch.cli.helpers.commands import load
from vllm_watch.clients import kubernetes

LOOK_SECONDS = 0.02
END_SECONDS = 30.0


class ForkedDaemon(DaemonProcess):
    """One of them; its log is in a file."""

    def __init__(self, pid, log):
        self.pid, self.log, self.url = pid, log, ""

    async def serving(self, seconds):
        until = time.monotonic() + seconds
        while not self.url:
            assert time.monotonic() < until, self.log.read_text()[-3000:]
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(FileNotFoundError):
                self._read()

    def _read(self):
        for line in self.log.read_text().splitlines():
            with suppress(ValueError):
                if (said := json.loads(line)).get("event") == "serving":
                    self.url = said["url"]

    def send(self, number):
        os.kill(self.pid, number)

    async def end(self, number=signal.SIGKILL):
        """Signal it, and wait until it is gone."""
        until = time.monotonic() + END_SECONDS
        with suppress(ProcessLookupError):
            self.send(number)
            while True:
                os.kill(self.pid, 0)
                assert time.monotonic() < until, f"{self.pid} does not end"
                await asyncio.sleep(LOOK_SECONDS)


class Daemons(Forking):
    """The process that has imported it."""

    def __init__(self):
        super().__init__("-m", "tests.restart.forked_daemon")
        self._one_at_a_time = asyncio.Lock()

    async def start(self, log, *arguments, environ=None, account=None):
        """Begin one; `account`: the folder of a pod's service account."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        asked = {
            "log": str(log), "environ": own | SETTINGS | (environ or {}), "account": account and str(account),
            "arguments": [*map(str, arguments)],
        }  # fmt: skip
        async with self._one_at_a_time:
            return ForkedDaemon(await asyncio.to_thread(self.asked, **asked), log)


def _begin(asked):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing, log = os.open(os.devnull, os.O_RDWR), os.open(asked["log"], os.O_WRONLY | os.O_CREAT)
    for number, file in enumerate((nothing, log, log)):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(asked["environ"])
    if asked["account"]:
        kubernetes.SERVICE_ACCOUNT = Path(asked["account"])
    sys.exit(main(["run", "--listen", "127.0.0.1:0", *asked["arguments"]]))


def fork_each():
    load("run")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            _begin(json.loads(line))
        print(pid, flush=True)
    os.killpg(0, signal.SIGKILL)  # whoever asked has ended, and nobody outlives it


if __name__ == "__main__":
    fork_each()
