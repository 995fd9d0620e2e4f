"""A small world by hand over real processes: a server is a `sleep`, its looks are what /proc says of it.

Running it serves, stopped (SIGSTOP) it is stalled, gone it is down. A hook is the real command hook with a
script that ends this process and starts another; every call and every end is a line in a file.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.restart.hooks.calls import alive, started
from vllm_watch.restart import evidence
from vllm_watch.restart.facts import Answer, IncidentFact, Peers
from vllm_watch.restart.hooks.base import Hook, Tools
from vllm_watch.restart.hooks.command import Hook as CommandHook
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.means import Means
from vllm_watch.restart.policy import Policy
from vllm_watch.restart.request import RestartRequest
from vllm_watch.samples.target import Target
from vllm_watch.settings.hooks import CommandHook as CommandSettings
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.state.attempt import Attempt

ROOT = Path(__file__).parents[2]
TARGET = Target(name="chat-0", url="http://127.0.0.1:9", group="chat")
REQUEST = RestartRequest(
    target="chat-0", group="chat", trigger="incident", reason="no step for 90 s", asked_t=1.0,
    engine="0", incident_id="i1", kind="engine_stalled", cause="hang",
)  # fmt: skip
SETTINGS = RestartSettings.model_validate({
    "mode": "auto", "hook": "script", "peers": "none", "new_version_seconds": 0,
    "verify": {"start_seconds": 2, "settle_seconds": 0.3}, "drain": {"deadline_seconds": 0.3},
})  # fmt: skip

START = "setsid sleep 600 > /dev/null 2>&1 & echo $! >> pids; echo $! > server.pid"
END = 'kill -9 "$(cat server.pid)"; echo "$VLLM_WATCH_ATTEMPT_ID" >> ended'
CALLED = 'echo "$VLLM_WATCH_ATTEMPT_ID $(cat watcher.pid 2> /dev/null)" >> called'
SCRIPTS = {
    "restarts": f"{CALLED}; {END}; {START}",
    "does nothing": CALLED,
    "stalls again": f"{CALLED}; {END}; {START}; kill -STOP $!",
    "never starts": f"{CALLED}; {END}",
    "busy once": f'{CALLED}; [ "$(wc -l < called)" -gt 1 ] || exit 75; {END}; {START}',
    "always busy": f"{CALLED}; exit 75",
    "fails": f"{CALLED}; exit 3",
    "hangs": f"{CALLED}; {END}; sleep 60",
}
"""What the hook's script does, in words."""


@dataclass
class Server:
    """The server of one folder: whatever process its `server.pid` names."""

    folder: Path

    def start(self) -> None:
        subprocess.run(["/bin/sh", "-c", START], cwd=self.folder, check=True)

    @property
    def pid(self) -> int:
        try:
            return int((self.folder / "server.pid").read_text())
        except (OSError, ValueError):
            return 0

    def hang(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def end_all(self) -> None:
        """Nothing that was ever started here outlives this."""
        for pid in self.lines("pids"):
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def lines(self, name: str) -> list[str]:
        """The lines of one of the files in which the scripts count."""
        try:
            return (self.folder / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def signals(self, fresh_ratio: float | None = 1.0) -> TargetSignals:
        pid = self.pid
        if not pid or not alive(pid):
            return _signals("down", None, None, None)
        stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        requests = len(self.lines("requests"))
        state = "stalled" if stopped else "serving"
        ratio = fresh_ratio if state == "serving" else 0.0
        # Two processes may start within one clock tick; never with one PID.
        return _signals(state, started(pid) + pid / 1e6, ratio, float(requests))


def _signals(
    state: str, start_t: float | None, ratio: float | None, requests: float | None
) -> TargetSignals:
    engine = EngineSignals(
        engine="0", state=state, throughput_ratio=ratio, requests_running=requests,
        requests_waiting=0.0,
    )  # fmt: skip
    up = state != "down"
    return TargetSignals(
        target="chat-0", t=1.0, up=up, outcome="ok" if up else "refused", state=state,
        state_text=state, process_start_time=start_t, engines={"0": engine},
    )  # fmt: skip


@dataclass
class HandWorld:
    """What the dispatcher asks of its surroundings, over one server's folder."""

    server: Server
    setting: RestartSettings = SETTINGS
    targets: dict[str, Target] = field(default_factory=lambda: {TARGET.name: TARGET})
    facts: dict[str, IncidentFact] = field(
        default_factory=lambda: {"i1": IncidentFact(open=True, restart_advised=True)}
    )
    start_failures: dict[str, str] = field(default_factory=dict)
    fresh_ratio: float | None = 1.0  # throughput of a server that runs; None: too little traffic
    look_seconds: float = 0.02  # from one look to the next
    state: str | None = None  # where it is to be another than the process shows
    seen: bool = True
    told: list[str] = field(default_factory=list)  # what was done, in order
    change: asyncio.Event = field(default_factory=asyncio.Event)

    def target(self, name: str) -> Target | None:
        return self.targets.get(name)

    def settings(self, name: str) -> RestartSettings:
        return self.setting

    def signals(self, name: str) -> TargetSignals | None:
        if not self.seen:
            return None
        now = self.server.signals(self.fresh_ratio)
        return now if self.state is None else replace(now, state=self.state)

    def open_kinds(self, name: str) -> frozenset[str]:
        state = self.server.signals().state
        return frozenset({"stalled": ("engine_stalled",), "down": ("engine_down",)}.get(state, ()))

    def incident(self, incident_id: str) -> IncidentFact | None:
        return self.facts.get(incident_id)

    def peers(self, name: str) -> Peers | None:
        return None

    def load_seconds(self, name: str) -> float | None:
        return None

    def start_failure(self, name: str) -> str | None:
        return self.start_failures.get(name)

    async def next_look(self, name: str, timeout_seconds: float) -> bool:
        await asyncio.sleep(self.look_seconds)
        return self.seen

    async def evidence(self, attempt: Attempt) -> str | None:
        self.told.append("evidence")
        pid = self.server.pid

        async def status() -> Any:
            yield Path(f"/proc/{pid}/status").read_bytes()

        folder = self.server.folder / "evidence"
        return str(await evidence.keep(folder, attempt.id, {"status.txt": status()}))

    def restarting(self, name: str, *, on: bool) -> None:
        self.told.append(f"restarting {'on' if on else 'off'}")

    def draining(self, name: str, *, on: bool) -> None:
        self.told.append(f"draining {'on' if on else 'off'}")

    def changed(self, name: str) -> None:
        self.change.set()


def command(server: Server, script: str, timeout_seconds: float = 20.0) -> CommandHook:
    """The real command hook, with one of the scripts."""
    argv = ("/bin/sh", "-c", f"cd {server.folder}; {SCRIPTS.get(script, script)}")
    settings = CommandSettings(name="script", argv=argv, timeout_seconds=timeout_seconds)
    return CommandHook(settings, Tools())


def means(
    hook: Callable[[str], Hook | None],
    lock: Callable[[RestartSettings], Lock | None] = lambda _: None,
    answers: Callable[[], Iterable[Answer]] = tuple,
    holder: str = "test",
    **changed: Any,
) -> Means:
    """Means around one hook; `changed` is what differs in the policy."""

    def policy(settings: RestartSettings) -> Policy:
        said = {
            "mode": settings.mode, "triggers": frozenset(settings.triggers),
            "cooldown_seconds": settings.cooldown_seconds, "cooldown_load_times": 0.0,
            "budget_per_hour": settings.budget_per_hour, "budget_per_day": settings.budget_per_day,
            "peers_matter": False, "peers_healthy_ratio_min": 0.5,
            "new_version_seconds": settings.new_version_seconds,
            "has_lock": lock(settings) is not None,
        }  # fmt: skip
        return Policy(**said | changed)

    async def ask(_: object) -> tuple[Answer, ...]:
        return tuple(answers())

    return Means(hook=hook, lock=lock, ask_blockers=ask, policy=policy, holder=holder)


def python(*words: str, **how: Any) -> subprocess.Popen[str]:
    """Another Python that can import the tests."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)} | how.pop("env", {})
    return subprocess.Popen([sys.executable, *words], text=True, env=environ, **how)
