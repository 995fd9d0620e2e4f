"""The real daemon over a simulated site, in virtual time: begun, stopped, killed, and asked what it shows."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from benchmarks.soak import hostile
from benchmarks.soak.books import Books, read_metrics
from benchmarks.soak.site import HOOK_SECONDS, SCRAPE_SECONDS, Hook, Site, Source
from benchmarks.soak.size import size_bytes
from benchmarks.soak.truth import Truth
from benchmarks.soak.virtual_time import Loop
from vllm_watch import daemon as wiring
from vllm_watch.config import Config
from vllm_watch.daemon import Daemon
from vllm_watch.export import text
from vllm_watch.incidents.incident import IncidentEvent, published
from vllm_watch.lab.gpus import SimulatedGpuSource
from vllm_watch.restart.hooks import base
from vllm_watch.restart.restarts import Restarts
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.state import file
from vllm_watch.state.attempt import Attempt
from vllm_watch.watch import target_loop


@contextmanager
def joined(site: Site) -> Iterator[None]:
    """Let the daemon look at this site and restart with its hook. Recordings stay in memory."""
    kept = target_loop.VllmSource, wiring.FlightRecorder, base.make

    def source(target: Target, settings: ScrapeSettings, *_: Any) -> Source | hostile.HostileSource:
        if target.name == hostile.NAME:
            return hostile.HostileSource(site.clock, target, settings)
        return Source(site, target, settings)

    target_loop.VllmSource = source  # type: ignore[assignment,misc]
    wiring.FlightRecorder = lambda **how: FlightRecorder(**{**how, "spool_dir": None})  # type: ignore[assignment,misc]
    base.make = lambda *_: Hook(site)  # type: ignore[assignment]
    try:
        yield
    finally:
        target_loop.VllmSource, wiring.FlightRecorder, base.make = kept  # type: ignore[misc]


class _Daemon(Daemon):
    """The daemon, whose news are entered in the books."""

    books: Books
    now: Callable[[], float]

    def saw(self, target: str, events: Sequence[IncidentEvent]) -> None:
        super().saw(target, events)
        self.books.told(map(published, events), self.now())


class Watcher:
    """One watcher through all its runs; each state folder is used by one run after the other."""

    def __init__(self, site: Site, folder: Path, settings: Mapping[str, Any]) -> None:
        self._site = site
        self._folder = folder
        self._settings = settings
        self._daemon: _Daemon | None = None

    @property
    def running(self) -> bool:
        """Does it run?"""
        return self._daemon is not None

    def restarting(self, target: str) -> bool:
        """Is a restart of ours under way there?"""
        managed = self.restarts.targets.managed.get(target) if self._daemon else None
        return managed is not None and managed.restarting

    @property
    def restarts(self) -> Restarts:
        """What it restarts with."""
        assert self._daemon is not None
        found = self._daemon._restarts
        assert found is not None
        return found

    @property
    def state_dir(self) -> Path:
        """Of this run, or of the next."""
        return self._folder / f"state-{self._site.run}"

    async def start(self) -> None:
        """Begin a run."""
        config = Config.model_validate({**self._settings, "state_dir": str(self.state_dir)})
        daemon = _Daemon(config, lambda *_: SimulatedGpuSource(None, self._site.clock.unix))
        daemon.books, daemon.now = self._site.books, lambda: self._site.clock.t
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        loop.working[:] = [_at_work(daemon)]
        self._daemon = daemon
        await daemon.start()

    async def stop(self) -> None:
        """End a run as SIGTERM does; the next one has its folder."""
        assert self._daemon is not None
        daemon, self._daemon = self._daemon, None
        await daemon.stop()
        self._next(self.state_dir)

    async def kill(self) -> None:
        """End a run as SIGKILL does: what is on the disk at this moment is all that the next one has."""
        assert self._daemon is not None
        left, loop = self._folder / "left", asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        while loop.busy():  # or the copy would be of two moments
            await asyncio.sleep(0.001)
        # By another process: to close the file here would give up the locks that SQLite holds on it.
        subprocess.run(["cp", "-r", self.state_dir, left], check=True)
        daemon, self._daemon = self._daemon, None
        daemon.books = Books(Truth(), {})  # what it tells from here on, nobody hears
        await daemon.stop()
        shutil.rmtree(self.state_dir)
        self._next(left)

    def _next(self, left: Path) -> None:
        self._site.run += 1
        left.rename(self.state_dir)

    # --- what it knows

    def shown(self) -> dict[str, float]:
        """What /metrics says of incidents and restarts."""
        assert self._daemon is not None
        return read_metrics(text.render(self._daemon.board, CollectorRegistry()).decode())

    async def attempts(self) -> tuple[Attempt, ...]:
        """The journal's."""
        return await self.restarts.journal.attempts()

    def states(self) -> dict[str, str]:
        """The attempts in the state folder of the next run, by id."""
        with closing(sqlite3.connect(self.state_dir / file.NAME)) as db:
            return dict(db.execute("SELECT id, state FROM attempt"))

    def rows(self) -> dict[str, Mapping[str, Any]]:
        """The incidents in the state folder of the next run, by id."""
        with closing(sqlite3.connect(self.state_dir / file.NAME)) as db:
            return {
                name: json.loads(event)
                for name, event in db.execute("SELECT id, event FROM incident")
            }

    def sizes(self) -> dict[str, int]:
        """Bytes: of each target's judgement, and of all else that is kept."""
        daemon = self._daemon
        assert daemon is not None
        watches = {name: loop.watch for name, loop in daemon._loops.running.items()}
        found = {name: size_bytes(watch) for name, watch in watches.items()}
        shared = (self._site, asyncio.get_running_loop(), *watches.values())
        found["all else"] = size_bytes(
            daemon.board,
            daemon._publisher.fleet,
            daemon._host.watch,
            daemon._memory,
            daemon.recorder,
            self.restarts.dispatcher,
            without=shared,
        )
        return found


def _at_work(daemon: Daemon) -> Callable[[], bool]:
    """Is the thread of the state folder reading, or writing?"""
    assert daemon._state is not None
    worker = daemon._state.worker
    take, waits = worker._next, [False]

    def waited() -> Any:
        waits[0] = True
        try:
            return take()
        finally:
            waits[0] = False

    worker._next = waited  # type: ignore[method-assign]

    def at_work() -> bool:
        if worker._thread is not None and not worker._thread.is_alive():
            return False
        waiting = bool(worker._rows or worker._learnt) and worker._failing is None
        return not waits[0] or bool(worker._jobs) or waiting

    return at_work


GROUPS = {"chat-0": "chat", "chat-1": "chat", "search": "search", "batch": "batch"}
BUDGETS = {"cooldown_seconds": 900.0, "budget_per_hour": 2, "budget_per_day": 10}


def settings(folder: Path, deny_hours: tuple[int, int], interval_s: float) -> dict[str, Any]:
    """A careful operator's, with budgets that leave something to watch."""
    targets = []
    for name, group in GROUPS.items():
        alone = list(GROUPS.values()).count(group) == 1
        target: dict[str, Any] = {"name": name, "url": f"http://{name}.lab:8000", "group": group}
        targets.append(target | ({"restart": {"peers": "none"}} if alone else {}))
    url = f"http://{hostile.NAME}.lab:8000"
    targets.append({"name": hostile.NAME, "url": url, "restart": {"mode": "off"}})
    return {
        "listen": "127.0.0.1:0", "targets": targets,
        "scrape": {"interval_seconds": interval_s, "timeout_seconds": SCRAPE_SECONDS},
        "canary": {"enabled": False},  # it would ask over real sockets
        "hooks": {"command": [{"name": "lab", "argv": ["/bin/false"], "timeout_seconds": HOOK_SECONDS}]},
        "restart": {
            "mode": "auto", "hook": "lab", **BUDGETS, "new_version_seconds": 600.0,
            "deny_windows": [f"Mon-Sun {deny_hours[0]:02}:00-{deny_hours[1]:02}:00"],
            "lock": {"kind": "file", "path": str(folder / "locks")},
            "schedules": [{"name": "daily", "interval_seconds": 6 * 3600, "jitter_seconds": 600, "uptime_seconds_min": 3600}],
            "verify": {"start_seconds": 900.0},
        },
    }  # fmt: skip
