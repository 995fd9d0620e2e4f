"""A small world by hand over real processes: a server is a `sleep`, its looks are what /proc says of it.

Running it serves, stopped (SIGSTOP) it is stalled, gone it is down. A hook is the real command hook with a
script that ends this process and starts another; every call and every end is a line in a file.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.restart.hooks.calls import alive, started, until
from vllm_watch.board.board import Board, Incidents, Looked
from vllm_watch.incidents.incident import Incident, IncidentEvent
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.restart.facts import Answer, RestartRequest
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.hooks.base import Hook, Tools
from vllm_watch.restart.hooks.command import Hook as CommandHook
from vllm_watch.restart.locks.base import Held, Lock
from vllm_watch.restart.targets import ManagedTarget, Targets
from vllm_watch.restart.verify import Before, Process, before
from vllm_watch.samples.target import Target
from vllm_watch.settings.hooks import CommandHook as CommandSettings
from vllm_watch.settings.restart import BlockersSettings, LockSettings, RestartSettings
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

ROOT = Path(__file__).parents[2]
END_SECONDS = 60.0
TARGET = Target(name="chat-0", url="http://127.0.0.1:9", group="chat")
MATE = "chat-1"
"""The name of the other rank, where there is one."""

REQUEST = RestartRequest(
    target="chat-0", group="chat", trigger="incident", reason="no step for 90 s", asked_t=1.0,
    engine="0", incident_id="i1", kind="engine_stalled", cause="hang",
)  # fmt: skip
OURS = Held(held=True, text="it is ours")
SETTINGS = RestartSettings.model_validate({
    "mode": "auto", "hook": "script", "peers": "none", "new_version_seconds": 0,
    "verify": {"start_seconds": 2, "settle_seconds": 0.3}, "drain": {"deadline_seconds": 0.3},
})  # fmt: skip

LOCKED = SETTINGS.model_copy(update={"lock": LockSettings(kind="file")})
STALL = Incident(
    id="i1", target="chat-0", engine="0", kind="engine_stalled", cause="hang", severity="page",
    summary="no step for 90 s", restart_advised=True, opened_t=1.0, began_t=1.0, updated_t=1.0,
)  # fmt: skip

BEGIN, TELL = "setsid sleep 600 > /dev/null 2>&1 &", "echo $! >> pids; echo $! > server.pid"
START = f"{BEGIN} {TELL}"
STOP = (
    'until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; kill -STOP $!; '
    "until grep -q '^State:.T' /proc/$!/status; do :; done"
)
END = 'kill -9 "$(cat server.pid)"; echo "$VLLM_WATCH_ATTEMPT_ID" >> ended'
CALLED = 'echo "$VLLM_WATCH_ATTEMPT_ID $(cat watcher.pid 2> /dev/null)" >> called'
SCRIPTS = {
    "restarts": f"{CALLED}; {END}; {START}",
    "does nothing": CALLED,
    "stalls again": f"{CALLED}; {END}; {BEGIN} {STOP}; {TELL}",  # nobody ever sees it serve
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
        """Stop it; return once it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        assert until(lambda: self.stopped)

    @property
    def stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

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
        requests = len(self.lines("requests"))
        state = "stalled" if self.stopped else "serving"
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


def state_before(signals: TargetSignals | None, kinds: Collection[str]) -> Before:
    """Return the state before a restart, as far as one scrape shows it."""
    return before(signals, kinds, Process.of(None, signals))


class World:
    """A real board over one server's folder: whoever asks for the last look has one taken."""

    def __init__(
        self, server: Server, settings: RestartSettings = SETTINGS, *,
        fresh_ratio: float | None = 1.0, look_seconds: float = 0.02,
    ) -> None:  # fmt: skip
        """`fresh_ratio`: throughput of a server that runs; None: too little traffic."""
        self.server = server
        self.servers = {TARGET.name: server}  # by target; of others it is the same one
        self.fresh_ratio = fresh_ratio
        self.look_seconds = look_seconds  # from one look to the next
        self.seen = True
        self.told: list[str] = []  # what was done, in order
        self.change = asyncio.Event()
        self.board = Board()
        self.gates = Gates(Journal(server.folder))
        self.targets = LookedAt(self)
        self.evidence = Evidence(self)
        self.watch(TARGET, settings)
        self.incident()

    def add_mate(self, server: Server, **settings: Any) -> None:
        """Another rank of the server's gang, whose hook is called `mate`."""
        own = self.targets.managed[TARGET.name]
        own.target = replace(TARGET, gang="ranks")
        mate = replace(TARGET, name=MATE, url="http://127.0.0.1:8", gang="ranks")
        self.servers[MATE] = server
        self.watch(mate, own.settings.model_copy(update={"hook": "mate", **settings}))

    def watch(self, target: Target, settings: RestartSettings = SETTINGS) -> None:
        """One more target, whose server is the same."""
        self.board.add_target(target, 5.0)
        self.targets.managed[target.name] = ManagedTarget(target, settings)

    @property
    def settings(self) -> RestartSettings:
        return self.targets.managed[TARGET.name].settings

    @settings.setter
    def settings(self, settings: RestartSettings) -> None:
        self.targets.managed[TARGET.name].settings = settings

    def incident(self, name: str = "i1", **changed: Any) -> None:
        """Show an incident as it is now; `changed` is what differs from one whose restart is advised."""
        self.board.tell([IncidentEvent("updated", 1.0, replace(STALL, id=name, **changed))])

    def no_incidents(self) -> None:
        """Nothing is known of any incident."""
        self.board.incidents = Incidents()
        for entry in self.board.all_entries():
            entry.incidents.open.clear()

    def look(self, name: str) -> None:
        """Publish what /proc says of the server now."""
        entry = self.board.targets.get(name)
        if entry is None:
            return
        if not self.seen:
            entry.signals = entry.looked = None
            return
        server = self.servers.get(name, self.server)
        signals = replace(server.signals(self.fresh_ratio), target=name)
        if not signals.up:  # what answered last is known, if anything ever did
            known_t = None if entry.signals is None else entry.signals.process_start_time
            engines = {} if known_t is None else signals.engines
            signals = replace(signals, process_start_time=known_t, engines=engines)
        fires = {"stalled": "engine_stalled", "down": "engine_down"}.get(signals.state)
        self.board.publish(signals, looked=Looked.now().ended(5.0, 4.0))
        self.gates.scraped(signals)
        for kind in ("engine_stalled", "engine_down"):
            found = replace(
                STALL, id=f"{kind} {name}", target=name, kind=kind, restart_advised=False
            )
            if kind != fires:
                found = replace(found, firing=False, resolved_t=2.0, resolution="healthy")
            self.board.tell([IncidentEvent("updated", 1.0, found)])


class LookedAt(Targets):
    """The real targets; what is done to them is noted."""

    def __init__(self, world: World) -> None:
        super().__init__(world.board, world.gates)
        self._world = world

    def signals(self, name: str) -> TargetSignals | None:
        self._world.look(name)
        return super().signals(name)

    def firing_kinds(self, name: str) -> frozenset[str]:
        """Of what the server does; the incident that asks fires as long as the test says so."""
        self._world.look(name)
        ours = (each for each in self.incidents() if each.id == f"{each.kind} {name}")
        return frozenset(each.kind for each in ours if each.firing)

    async def next_scrape(self, name: str, timeout_seconds: float) -> bool:
        await asyncio.sleep(self._world.look_seconds)
        self._world.look(name)
        return self._world.seen

    def restarting(self, name: str, attempt: Attempt | None = None) -> None:
        self._world.told.append(f"restarting {'on' if attempt is None else 'off'}")
        super().restarting(name, attempt)

    def draining(self, name: str, *, on: bool) -> None:
        self._world.told.append(f"draining {'on' if on else 'off'}")
        super().draining(name, on=on)

    def mark_changed(self, name: str) -> None:
        super().mark_changed(name)
        self._world.change.set()


class Evidence(EvidenceStore):
    """What /proc says of the server is kept of it."""

    def __init__(self, world: World) -> None:
        super().__init__(world.server.folder / "evidence", self)
        self._world = world

    async def keep(self, attempt: Attempt) -> str | None:
        self._world.told.append("evidence")
        return await super().keep(attempt)

    def parts(self, target: str) -> Any:
        status = Path(f"/proc/{self._world.server.pid}/status")

        async def read() -> Any:
            yield status.read_bytes()

        return {"status.txt": read()}


@dataclass
class Lent:
    """A lock that says what a test wants it to, and notes how it is given back."""

    acquired: Held = OURS
    renewed: Held | None = OURS  # None: it does not answer
    ours: bool = True
    ttl_seconds: float = 3600.0
    done: list[str] = field(default_factory=list)

    async def acquire(self, *_: object) -> Held:
        return self.acquired

    async def renew(self, *_: object) -> Held:
        if self.renewed is not None:
            return self.renewed
        try:
            await asyncio.Event().wait()
        finally:
            self.done.append("renewed no more")
        raise AssertionError

    def still_ours(self) -> bool:
        return self.ours

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        self.done.append(
            f"{ended.state if ended else 'given back'}, {'used' if used else 'unused'}"
        )

    async def given_back(self, times: int = 1) -> None:
        """Wait until it is."""
        async with asyncio.timeout(10):
            while sum("used" in each for each in self.done) < times:
                await asyncio.sleep(0.01)


def command(server: Server, script: str, timeout_seconds: float = 20.0) -> CommandHook:
    """The real command hook, with one of the scripts."""
    argv = ("/bin/sh", "-c", f"cd {server.folder}; {SCRIPTS.get(script, script)}")
    settings = CommandSettings(name="script", argv=argv, timeout_seconds=timeout_seconds)
    return CommandHook(settings, Tools())


class Backends:
    """One hook, one lock and some blockers, in place of what a configuration names."""

    def __init__(
        self, hook: Callable[[], Hook | None], lock: Callable[[], Lock | None] = lambda: None,
        answers: Callable[[], Iterable[Answer]] = tuple, holder: str = "test",
    ) -> None:  # fmt: skip
        self._hook, self._lock, self._answers, self.holder = hook, lock, answers, holder
        self._made: Hook | None = None  # one object, as long as a reload does not change it
        self.others: dict[str, Hook] = {}  # by the name of the hook

    def hook(self, name: str) -> Hook | None:
        hook = self._hook()
        if getattr(hook, "_settings", hook) != getattr(self._made, "_settings", self._made):
            self._made = hook
        return self.others.get(name) or self._made

    def lock(self, settings: LockSettings) -> Lock | None:
        return self._lock()

    async def ask_blockers(self, settings: BlockersSettings) -> tuple[Answer, ...]:
        return tuple(self._answers())


class Forking:
    """A program that forks another of itself for each line that it reads, which saves each the import."""

    def __init__(self, *words: Any, **environ: str) -> None:
        self._process = python(
            *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environ,
            start_new_session=True,
        )  # fmt: skip

    def tell(self, line: str) -> None:
        print(line, file=self._process.stdin, flush=True)

    def asked(self, **words: Any) -> int:
        """Tell it in JSON; return the number that it answers."""
        assert self._process.stdout is not None
        self.tell(json.dumps(words))
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=END_SECONDS)


@contextmanager
def hanging(folder: Path) -> "Iterator[Server]":
    """A server that hangs, of which nothing outlives the block."""
    folder.mkdir(exist_ok=True)
    server = Server(folder)
    server.start()
    server.hang()
    try:
        yield server
    finally:
        server.end_all()


def python(*words: str, **how: Any) -> subprocess.Popen[str]:
    """Another Python that can import the tests."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)} | how.pop("env", {})
    return subprocess.Popen([sys.executable, *words], text=True, env=environ, **how)
