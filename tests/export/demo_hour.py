"""The demo in virtual time: its own script and simulated engines, judged and published as by the daemon, dry-run restarts too."""

import asyncio
import sys

from benchmarks.detection.sequences import Told, Trouble, demo_day, mark_ends
from benchmarks.lab.virtual import EPOCH, observe
from vllm_watch.board.board import Board, Looked
from vllm_watch.cli.demo import dry_run
from vllm_watch.config import Config
from vllm_watch.export.evidence import Evidence
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.lab.gpus import SimulatedGpuSource
from vllm_watch.restart.restarts import Restarts
from vllm_watch.restart.targets import Targets
from vllm_watch.samples.target import Target
from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.vllm import Look
from vllm_watch.watch.host_watch import HostWatch, ServerScrape
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.watch import Watch

ILL = "batch"
"""The target on which the demo's script acts; the others are healthy all the time."""

LATE_SECONDS = 10.0
"""So long after the end of a trouble nobody can know of it: rates are those of some seconds."""


class VirtualTime:
    """Stands for the module `time` where the watcher asks for it."""

    def __init__(self) -> None:
        self.s = 0.0

    def time(self) -> float:
        return EPOCH + self.s

    def monotonic(self) -> float:
        return self.s

    def set_for(self, monkeypatch, *packages: str) -> None:
        """Let these packages ask here, from now on."""
        for name, module in list(sys.modules.items()):
            if name.startswith(packages) and hasattr(module, "time"):
                monkeypatch.setattr(module, "time", self)


class DemoHour:
    """Four servers, one of which runs into one trouble after the other."""

    def __init__(self, monkeypatch, interval_s: float = 5.0) -> None:
        self.told = Told("demo", interval_s)
        self.board = Board()
        self._scene = demo_day(self.told)
        self._scene.begin_at(EPOCH)
        self._time = VirtualTime()
        self._gpus = SimulatedGpuSource(self._scene.rack, self._time.time)
        self._watches = {name: Watch(name) for name in self._scene.servers}
        self._host = HostWatch("localhost")
        recorder = FlightRecorder(seconds=60)
        named = [
            TargetConfig(name=name, url=f"http://127.0.0.1:{8000 + i}", group=name)
            for i, name in enumerate(self._scene.servers)
        ]
        config = Config(targets=named, **dry_run())
        self._restarts = Restarts(config, self.board, Evidence(self.board, recorder, {}), None)
        self._targets: dict[str, Target] = {each.name: each.identity() for each in named}
        for each in self._targets.values():
            self.board.add_target(each, interval_s)
        self._restarts.follow((each.identity(), config.restart_for(each)) for each in named)
        memory = Memory(None, self.board)
        self._publisher = Publisher(self.board, Fleet(), recorder, memory, [self._restarts])
        self._looks = 0
        # Nobody is suspended here, however fast time goes.
        monkeypatch.setattr(Targets, "tick", lambda _self: asyncio.sleep(0))
        monkeypatch.setattr("vllm_watch.restart.plan.SHOW_PAUSE_SECONDS", 0.0)
        packages = ("vllm_watch.restart", "vllm_watch.board", "vllm_watch.export.status")
        self._time.set_for(monkeypatch, *packages)

    async def __aenter__(self) -> "DemoHour":
        await self._restarts.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._restarts.stop()

    @property
    def t(self) -> float:
        """Seconds since the demo began, at the last scrape."""
        return self._time.s

    def trouble_at(self, s: float) -> Trouble | None:
        """What is wrong at this second of the demo."""
        for each in self.told.troubles:
            if each.begin_s <= s and (each.end_s is None or s <= each.end_s):
                return each
        return None

    def healthy_at(self, s: float) -> bool:
        """Is nothing wrong, and has been for so long that it must be known?"""
        return all(self.trouble_at(s - ago) is None for ago in (0.0, LATE_SECONDS))

    async def advance(self, until_s: float) -> None:
        """Look at everything at its interval, up to this second."""
        while (t := self._looks * self.told.interval_s) <= until_s:
            self._looks += 1
            self._time.s = t
            self._scene.advance(t)
            mark_ends(self.told, self._scene[ILL], t)
            await self._look()
            await asyncio.sleep(0)  # what waits for a look goes on

    async def _look(self) -> None:
        looked = Looked(self._time.time(), self.t, 2.0 * self.told.interval_s)
        reading = await self._gpus.read()
        servers = {
            name: ServerScrape.of(each.signals, each.incidents)
            for name, each in self._watches.items()
        }
        events = self._host.look(reading.t, self.t, reading.gpus, servers)
        self._publisher.host(reading, self._host, events, looked)
        for name, watch in self._watches.items():
            seen = observe(self._scene[name], reading.gpus)
            events = watch.observe(seen, beside=self._host.concerning(name))
            look = Look(seen, None, (("metrics", seen.scrape), ("health", seen.health)))
            target = self._targets[name]
            self._publisher.look(target, watch, look, watch.signals, events, looked, 0.0)
            assert watch.failures == {}
