"""Restarts of a real vLLM, end to end: it hangs, evidence is kept, it is ended, a new one serves, and that is verified.

The server runs under a supervisor (a loop), so that a hook which only ends it has it started again.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real_vllm.daemon import Daemon
from tests.real_vllm.faults import stopped_at_work
from tests.real_vllm.load import Load, under_load
from tests.real_vllm.server import RealVllm
from tests.real_vllm.supervised import SupervisedVllm
from tests.real_vllm.ward import EVERY_SECOND, TARGET, TIMES, Ward
from vllm_watch.actions.attempt import Attempt
from vllm_watch.actions.journal import Journal

pytestmark = pytest.mark.real_vllm

MIXED = Load(prompt_tokens=(16, 300), output_tokens=(16, 200))
SATURATED_SECONDS = 30.0
ENDED_SECONDS_MAX = 300.0  # from the fault to the verdict; a start takes 20 s where nothing else runs
STARTS_THAT_FAIL = 3
QUIET_SECONDS = 20.0  # in which a second call would come: wishes are asked about every 5 s
TOKEN = "on-call-of-the-test-1234"

CONFIG = """
restart:
  mode: {mode}
  hook: {hook}
  peers: none
  new_version_seconds: 0
  cooldown_seconds: 1
  cooldown_load_times: 0
  budget_per_hour: 5
  budget_per_day: 5
  drain: {{deadline_seconds: 5}}
  verify: {{settle_seconds: {settle_seconds}}}
hooks:
  signal:
    - name: by-signal
      terminate_seconds: 5
      supervised_by: the loop of this test
  command:
    - name: by-command
      argv: [{script}]
api:
  tokens:
    - name: ana
      file: {token}
"""

SCRIPT = """#!/bin/sh
# Tells what it was told, and ends the server, which its supervisor starts again.
env | grep ^VLLM_WATCH_ > "{told}"
kill -KILL {pids}
"""


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedVllm]:
    """One for all: every test here leaves it serving, or starts it anew."""
    with SupervisedVllm(tmp_path_factory.mktemp("supervised")) as vllm:
        yield vllm


class Watched:
    """A ward whose daemon may restart it."""

    def __init__(self, vllm: SupervisedVllm, folder: Path, mode: str, hook: str, settle_seconds: float = 60.0) -> None:  # fmt: skip
        self.folder = folder
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self.script = folder / "restart.sh"
        config = CONFIG.format(
            mode=mode, hook=hook, settle_seconds=settle_seconds, script=self.script, token=self.token
        )
        self.daemon = Daemon(folder, {TARGET: vllm.url}, EVERY_SECOND, config)
        self.ward = Ward(vllm, self.daemon)

    def __enter__(self) -> "Watched":
        self.daemon.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.ward.without_load()
        print(f"\n{self.daemon.log}\n{self.ward.said()}\n{self.attempts()}")
        self.daemon.__exit__(None, None, None)

    def attempts(self) -> tuple[Attempt, ...]:
        """What the journal on disk says."""

        async def read() -> tuple[Attempt, ...]:
            journal = Journal(self.folder / "state")
            try:
                return await journal.attempts()
            finally:
                await journal.close()

        return asyncio.run(read())

    def ended(self, number: int = 1) -> Attempt:
        """Wait until so many attempts have ended; return the last."""
        return self.wait(
            lambda: next(iter([each for each in self.attempts() if not each.open][number - 1 :]), None),
            ENDED_SECONDS_MAX,
            f"attempt {number} did not end",
        )

    def wait[T](self, what: Callable[[], T | None], seconds: float, failure: str) -> T:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = what()
            if found is not None:
                return found
            self.ward.look()
            time.sleep(0.5)
        state = self.daemon.status(TARGET)["state_text"]
        raise AssertionError(f"{failure} in {seconds:.0f} s: {state}\n{self.ward.said()}\n{self.attempts()}")

    def says(self, *arguments: str) -> str:
        """Our command, as the on-call engineer uses it."""
        done = subprocess.run(
            [sys.executable, "-m", "vllm_watch", *arguments, "--url", self.daemon.url, "--token-file", str(self.token)],
            capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def hang(vllm: RealVllm) -> None:
    """For good: only another process helps."""
    with stopped_at_work(vllm, "engine_core"):
        core = vllm.pid("engine_core")
    os.kill(core, signal.SIGSTOP)


def test_a_hang_is_ended_by_signal_and_verified(supervised: SupervisedVllm, tmp_path: Path) -> None:
    """Alone, in mode auto; before that, saturated and healthy, it is never touched."""
    with Watched(supervised, tmp_path, "auto", "by-signal") as watched:
        ward = watched.ward
        ward.admit(supervised.size, MIXED)
        ward.healthy()
        old = supervised.processes()
        more = replace(MIXED, clients=48, seconds_max=SATURATED_SECONDS)
        with under_load(supervised.url, more):
            time.sleep(SATURATED_SECONDS)
        assert supervised.processes() == old
        assert watched.attempts() == ()

        began_s = time.monotonic()
        hang(supervised)
        supervised.wait_new("api_server")
        TIMES.append(f"hang: a new server process after {time.monotonic() - began_s:.1f} s")
        attempt = watched.ended()
        TIMES.append(f"hang: {attempt.state} after {time.monotonic() - began_s:.1f} s")

        assert (attempt.state, attempt.trigger, attempt.hook) == ("helped", "incident", "by-signal")
        assert attempt.payoff_ratio is None or attempt.payoff_ratio > 0.5
        assert not set(old.values()) & set(supervised.processes().values())
        (bundle,) = (tmp_path / "state").rglob("*.tar")
        with tarfile.open(bundle) as archive:
            kept = {Path(name).name.partition(".")[0] for name in archive.getnames()}
        assert "recording" in kept, archive.getnames()
        ward.settled()
        time.sleep(QUIET_SECONDS)
        assert len(watched.attempts()) == 1


def test_a_person_approves_and_a_restart_that_does_not_help_is_the_last(
    supervised: SupervisedVllm, tmp_path: Path
) -> None:
    """By command: nothing happens until a person says so; the new process hangs again, and that is all."""
    with Watched(supervised, tmp_path, "approve", "by-command", settle_seconds=45.0) as watched:
        ward = watched.ward
        ward.admit(supervised.size, MIXED)
        ward.healthy()
        told = tmp_path / "told"
        pids = " ".join(map(str, supervised.processes().values()))
        watched.script.write_text(SCRIPT.format(told=told, pids=pids))
        watched.script.chmod(0o700)

        began_s = time.monotonic()
        hang(supervised)
        incident = ward.opens("engine_stalled", "hang", began_s)
        time.sleep(QUIET_SECONDS)
        assert not told.exists()

        watched.says("approve", incident["id"])
        supervised.wait_new("engine_core")
        watched.wait(lambda: supervised.answers() or None, ENDED_SECONDS_MAX, "no new server")
        hang(supervised)
        attempt = watched.ended()

        assert attempt.state == "did_not_help", attempt
        assert attempt.actor == "ana"
        environment = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
        assert environment["VLLM_WATCH_ATTEMPT_ID"] == attempt.id
        assert environment["VLLM_WATCH_KIND"] == "engine_stalled"
        assert Path(environment["VLLM_WATCH_EVIDENCE_PATH"]).exists()
        told.unlink()
        time.sleep(QUIET_SECONDS)
        assert not told.exists()
        assert len(watched.attempts()) == 1
    supervised.restart()


def test_a_start_that_cannot_fit_is_never_retried(supervised: SupervisedVllm, tmp_path: Path) -> None:
    """Its supervisor starts it again and again; the log and the loop say that no restart cures it."""
    with Watched(supervised, tmp_path, "auto", "by-command") as watched:
        watched.script.write_text(SCRIPT.format(told=tmp_path / "told", pids="$$"))
        watched.script.chmod(0o700)
        watched.ward.admit(supervised.size, MIXED)
        watched.ward.healthy()
        supervised.starts_with("--num-gpu-blocks-override", "16")
        ends = supervised.ends()
        supervised.kill("api_server")
        supervised.kill("engine_core")
        watched.wait(
            lambda: supervised.ends() >= ends + STARTS_THAT_FAIL or None, ENDED_SECONDS_MAX, "no loop"
        )
        time.sleep(QUIET_SECONDS)

        assert watched.attempts() == ()
        assert not (tmp_path / "told").exists()
        down = [each for each in watched.ward.look() if each["state"] == "open"]
        assert [each["kind"] for each in down] == ["engine_down"]
    supervised.starts_with()
