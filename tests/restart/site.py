"""A place where a vLLM runs and is restarted by a script: real processes, a real hook, a real daemon over them."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import aiohttp
import yaml

from tests.daemon_process import ROOT
from tests.ports import free_port

TOKEN = "a-token-of-enough-characters"
SERVER = Path(__file__).parent / "engine_server.py"

# The hook's program: says that it was called, ends the server, starts another.
SCRIPT = """\
#!/bin/sh
echo "$VLLM_WATCH_ATTEMPT_ID" >> {folder}/calls
test -e {folder}/slow && sleep 60
kill -9 "$(cat {folder}/pid)"
PYTHONPATH={root} setsid {python} {server} {folder} {port} > {folder}/log 2>&1 < /dev/null &
"""


class Site:
    """One server on one port, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.script = folder / "restart"
        self.script.write_text(
            SCRIPT.format(
                folder=folder, root=ROOT, python=sys.executable, server=SERVER, port=self.port
            )
        )
        self.script.chmod(0o755)

    def __enter__(self):
        self._begun = [self._start()]
        return self

    def _start(self):
        return subprocess.Popen(
            [sys.executable, SERVER, self.folder, str(self.port)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip

    def heal(self):
        """Replace the server by another, as its own supervisor would; return once one answers.

        A hook may just have begun another: then that one may be it.
        """
        self._end_all()
        self._begun.append(self._start())
        wait_for(lambda: answers(self.port))

    def _end_all(self):
        for pid in self.lines("starts"):
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def __exit__(self, *_):
        self._end_all()
        for each in self._begun:
            each.wait(10)

    def configure(self, mode="approve", **restart):
        """Write the configuration of a daemon that may restart the server; returns its path."""
        targets = [{"name": "a", "url": f"http://127.0.0.1:{self.port}"}]
        hooks = {"command": [{"name": "site", "argv": [str(self.script)]}]}
        return configured(self.folder, targets, hooks, mode=mode, hook="site", **restart)

    def lines(self, name):
        """Of one of the folder's files."""
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    @property
    def calls(self):
        """Attempt ids that the hook was called with."""
        return self.lines("calls")

    def send(self, number):
        """A signal to the server that runs now."""
        os.kill(int((self.folder / "pid").read_text()), number)


def configured(folder, targets, hooks, **restart):
    """Write the configuration of a daemon that may restart them, soon; returns its path."""
    token, path = folder / "token", folder / "config.yaml"
    token.write_text(TOKEN)
    token.chmod(0o600)
    quick = {
        "cooldown_seconds": 1, "cooldown_load_times": 0, "budget_per_hour": 5, "budget_per_day": 5,
        "new_version_seconds": 0, "peers": "none", "drain": {"deadline_seconds": 1},
        "verify": {"start_seconds": 30, "settle_seconds": 1},
    }  # fmt: skip
    config = {
        "state_dir": str(folder / "state"), "targets": targets, "hooks": hooks, "restart": quick | restart,
        "gpu": {"enabled": "off"}, "scrape": {"health_interval_seconds": 0.5},
        "api": {"tokens": [{"name": "anna", "file": str(token)}]},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(config))
    return path


async def ask(process, path, body=None, token=TOKEN):
    """(status, document) of a POST."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=40)) as session,
        session.post(
            process.url + path, json=body or {}, headers={"Authorization": f"Bearer {token}"}
        ) as response,
    ):
        return response.status, json.loads(await response.read())


def plan(status, target="a"):
    """What is shown of the target's restarts."""
    found = next((each for each in status["targets"] if each["name"] == target), None)
    return (found or {}).get("restart") or {}


def incidents(status, target="a"):
    """The open incidents of the target."""
    return next((t["incidents"] for t in status["targets"] if t["name"] == target), [])


def answers(port):
    """Does the server on this port say that it is well?"""
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return answer.status == 200
    return False


def is_up(status, target="a"):
    """Does it answer?"""
    found = next((each for each in status["targets"] if each["name"] == target), None)
    return bool(found and found["signals"] and found["signals"]["up"])


def wait_for(true, seconds=20.0):
    """Return once it is so."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.02)
