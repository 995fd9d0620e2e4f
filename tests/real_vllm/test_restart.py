"""Restarts of a real vLLM, end to end: it hangs, evidence is kept, it is ended, a new one serves, and that is verified.

The server runs under a supervisor, so that a hook which only ends it has it started again: a shell's loop in the server's
own process group, so that no orphan outlives a test.
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
from typing import TypeVar

import pytest

from tests.real_vllm.daemon import Daemon
from tests.real_vllm.faults import stopped_at_work
from tests.real_vllm.load import Load, under_load
from tests.real_vllm.server import READY_SECONDS_MAX, RealVllm
from tests.real_vllm.ward import EVERY_SECOND, TARGET, TIMES, Ward
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

T = TypeVar("T")
pytestmark = pytest.mark.real_vllm

MIXED = Load(prompt_tokens=(16, 300), output_tokens=(16, 200))
SATURATED_SECONDS = 20.0
ENDED_SECONDS_MAX = (
    300.0  # from the fault to the verdict; a start takes 20 s where nothing else runs
)
STARTS_THAT_FAIL = 3
QUIET_SECONDS = 15.0  # in which a second call would come: wishes are asked about every 5 s
PAUSE_SECONDS = 1.0  # from one end to the next start; systemd's RestartSec is 0.1 s
TOKEN = "on-call-of-the-test-1234"

LOOP = """
flags=$1; shift
while :; do
    more=()
    [ -e "$flags" ] && mapfile -t more < "$flags"
    "$@" "${more[@]}"
    echo "supervisor: ended with $?"
    sleep $PAUSE
done
"""

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


class SupervisedVllm(RealVllm):
    """A server that is started again whenever it ends, as systemd's Restart=always or Kubernetes would."""

    def __init__(self, folder: Path, layout: str = "uni") -> None:
        super().__init__(folder, layout)
        self._more = folder / "flags"

    def _command(self) -> list[str | Path]:
        loop = LOOP.replace("$PAUSE", f"{PAUSE_SECONDS:g}")
        return ["bash", "-c", loop, "supervisor", self._more, *super()._command()]

    def starts_with(self, *flags: str) -> None:
        """From its next start on it has these flags, too; the last of a kind holds."""
        self._more.write_text("".join(f"{flag}\n" for flag in flags))

    def ends(self) -> int:
        """How often a process of it has ended so far."""
        return self.log.read_bytes().count(b"supervisor: ended with")

    def wait_new(self) -> None:
        """Return once other processes than were last known serve; they are those that are known then."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            now = self.processes()
            new = not set(now.values()) & set(self._pids.values())
            if new and len(now) == len(self._pids) and self.answers():
                self._pids = now
                return
            time.sleep(0.25)
        raise TimeoutError(f"no new processes serve:\n{self.log_tail()}")


class Watched:
    """A ward whose daemon may restart it, by a configuration that is changed as it runs."""

    def __init__(self, vllm: SupervisedVllm, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self.script = folder / "restart.sh"
        self.told = folder / "told"
        config = self._config("observe", "by-command", 60.0)
        self.daemon = Daemon(folder, {TARGET: vllm.url}, EVERY_SECOND, config)
        self.ward = Ward(vllm, self.daemon)

    def _config(self, mode: str, hook: str, settle_seconds: float) -> str:
        return CONFIG.format(
            mode=mode,
            hook=hook,
            settle_seconds=settle_seconds,
            script=self.script,
            token=self.token,
        )

    def restarts(
        self, mode: str, hook: str, settle_seconds: float = 60.0, kills: str = "$$"
    ) -> None:
        """From now on so; `kills`: what the command ends."""
        self.script.write_text(SCRIPT.format(told=self.told, pids=kills))
        self.script.chmod(0o700)
        self.daemon.reload(self._config(mode, hook, settle_seconds))

    def asks(self, incident: str) -> bool:
        """Does it wait for a person, by what its log says?"""
        return any(
            (each["event"], each.get("verdict"), each.get("incident"))
            == ("restart_decision", "approve", incident)
            for each in self.daemon.logged()
        )

    def healthy(self) -> None:
        """An engine that serves, and whose daemon has nothing against it."""
        self.ward.admit(self.ward.vllm.size, MIXED)
        self.ward.settled()

    def attempts(self) -> tuple[Attempt, ...]:
        """What the journal on disk says."""

        async def read() -> tuple[Attempt, ...]:
            journal = Journal(self.folder / "state")
            try:
                return tuple(each for each in await journal.attempts() if each.state != "dry_run")
            finally:
                await journal.close()

        return asyncio.run(read())

    def ended(self, number: int = 1) -> Attempt:
        """Wait until so many attempts have ended; return the last."""
        return self.wait(
            lambda: next(
                iter([each for each in self.attempts() if not each.open][number - 1 :]), None
            ),
            ENDED_SECONDS_MAX,
            f"attempt {number} did not end",
        )

    def wait(self, what: Callable[[], T | None], seconds: float, failure: str) -> T:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = what()
            if found is not None:
                return found
            self.ward.look()
            time.sleep(0.5)
        state = self.daemon.status(TARGET)["state_text"]
        raise AssertionError(
            f"{failure} in {seconds:.0f} s: {state}\n{self.ward.said()}\n{self.attempts()}"
        )

    def says(self, *arguments: str) -> str:
        """Our command, as the on-call engineer uses it."""
        done = subprocess.run(
            [sys.executable, "-m", "vllm_watch", *arguments, "--url", self.daemon.url, "--token-file", str(self.token)],
            capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedVllm]:
    """One for all, and so is its daemon; every test leaves it serving, and may run alone."""
    with SupervisedVllm(tmp_path_factory.mktemp("supervised")) as vllm:
        yield vllm


@pytest.fixture(scope="module")
def watched(
    supervised: SupervisedVllm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    watched = Watched(supervised, tmp_path_factory.mktemp("restart"))
    with watched.daemon:
        yield watched
        watched.ward.without_load()
        print(f"\n{watched.daemon.log}\n{watched.ward.said()}\n{watched.attempts()}")


def hang(vllm: RealVllm) -> None:
    """For good: only another process helps."""
    with stopped_at_work(vllm, "engine_core"):
        core = vllm.pid("engine_core")
    os.kill(core, signal.SIGSTOP)


def test_a_hang_is_ended_and_verified(supervised: SupervisedVllm, watched: Watched) -> None:
    """Alone, in mode auto; before that, saturated and healthy, it is never touched."""
    watched.healthy()
    watched.ward.healthy()
    old, before = supervised.processes(), len(watched.attempts())
    watched.restarts("auto", "by-command", kills=" ".join(map(str, old.values())))
    with under_load(supervised.url, replace(MIXED, clients=48, seconds_max=SATURATED_SECONDS)):
        time.sleep(SATURATED_SECONDS)
    assert supervised.processes() == old
    assert len(watched.attempts()) == before

    began_s = time.monotonic()
    hang(supervised)
    supervised.wait_new()
    TIMES.append(f"hang: a new process serves after {time.monotonic() - began_s:.1f} s")
    attempt = watched.ended(before + 1)
    TIMES.append(f"hang: {attempt.state} after {time.monotonic() - began_s:.1f} s")

    assert (attempt.state, attempt.trigger, attempt.hook) == ("helped", "incident", "by-command")
    assert attempt.payoff_ratio is None or attempt.payoff_ratio > 0.5
    assert not set(old.values()) & set(supervised.processes().values())
    bundle = next(each for each in watched.folder.rglob("*.tar") if attempt.id in each.name)
    with tarfile.open(bundle) as archive:
        kept = {Path(name).name.partition(".")[0] for name in archive.getnames()}
    assert "recording" in kept, archive.getnames()
    time.sleep(QUIET_SECONDS)
    assert len(watched.attempts()) == before + 1
    watched.told.unlink()


def test_a_person_approves_and_a_restart_that_does_not_help_is_the_last(
    supervised: SupervisedVllm, watched: Watched
) -> None:
    """By command: nothing happens until a person says so; the new process hangs again, and that is all."""
    watched.healthy()
    pids = " ".join(map(str, supervised.processes().values()))
    watched.restarts("approve", "by-command", settle_seconds=45.0, kills=pids)
    before = len(watched.attempts())

    began_s = time.monotonic()
    hang(supervised)
    incident = watched.ward.opens("engine_stalled", "hang", began_s)
    watched.wait(
        lambda: watched.asks(incident["id"]) or None, ENDED_SECONDS_MAX, "nobody was asked"
    )
    time.sleep(QUIET_SECONDS)
    assert not watched.told.exists()

    watched.says("approve", incident["id"])
    supervised.wait_new()
    hang(supervised)
    attempt = watched.ended(before + 1)

    assert attempt.state == "did_not_help", attempt
    assert attempt.actor == "ana"
    told = dict(each.split("=", 1) for each in watched.told.read_text().splitlines() if "=" in each)
    assert told["VLLM_WATCH_ATTEMPT_ID"] == attempt.id
    assert told["VLLM_WATCH_KIND"] == "engine_stalled"
    assert Path(told["VLLM_WATCH_EVIDENCE_PATH"]).exists()
    watched.told.unlink()
    watched.restarts("auto", "by-command")
    time.sleep(QUIET_SECONDS)
    assert not watched.told.exists()
    assert len(watched.attempts()) == before + 1
    watched.restarts("observe", "by-command")
    supervised.restart()
    watched.says("resume")


def test_a_start_that_cannot_fit_is_never_retried(
    supervised: SupervisedVllm, watched: Watched
) -> None:
    """Its supervisor starts it again and again; its starts say that no restart cures it."""
    watched.restarts("auto", "by-command")
    watched.healthy()
    before, known = len(watched.attempts()), set(watched.ward.claims)
    supervised.starts_with("--num-gpu-blocks-override", "16")
    ends = supervised.ends()
    supervised.kill("api_server")
    supervised.kill("engine_core")
    watched.wait(
        lambda: supervised.ends() >= ends + STARTS_THAT_FAIL or None, ENDED_SECONDS_MAX, "no loop"
    )
    time.sleep(QUIET_SECONDS)

    assert len(watched.attempts()) == before
    new = [each for each in watched.ward.look() if each["id"] not in known]
    assert [(each["kind"], each["state"]) for each in new] == [("engine_down", "open")]
    supervised.starts_with()
    supervised.wait_new()
