"""Judge the GPUs of one host, and the processes that hold their memory.

`SiteWatch` judges all targets of a recording and their hosts, as the daemon does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from vllm_watch.detectors.base import Around, HostDetector, HostServer, HostView
from vllm_watch.detectors.stale_vram import KIND as STALE_VRAM
from vllm_watch.detectors.stale_vram import Settings as StaleVramSettings
from vllm_watch.incidents.incident import Incident, IncidentEvent
from vllm_watch.incidents.lifecycle import Moment
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.record import record
from vllm_watch.samples.target import host_target
from vllm_watch.settings.detectors import DetectorsSettings
from vllm_watch.signals import stored
from vllm_watch.signals.holders import roles
from vllm_watch.signals.holders.gpu_users import GpuUsers, Place, Server
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.holders.records import STALE, VLLM, GpuHolders
from vllm_watch.signals.records import TargetSignals
from vllm_watch.watch.watch import Judge, Watch, all_detectors

VERSION = 1
"""Version of the format. State in another format is ignored."""


@record
class ServerScrape(Server):
    """The last scrape of one server of the host."""

    up: bool = False
    serves: bool = False  # it exports an engine's metrics
    asleep: bool = False  # weights and cache are not on the GPU
    incidents: tuple[Incident, ...] = ()  # open

    @classmethod
    def of(
        cls,
        signals: TargetSignals | None,
        incidents: tuple[Incident, ...],
        pids: frozenset[int] = frozenset(),
    ) -> "ServerScrape":
        if signals is None or not signals.up:
            return cls(incidents=incidents)
        serves = bool(signals.engines)
        asleep = serves and all(e.sleep_level for e in signals.engines.values())
        start_time = signals.process_start_time if serves else None
        return cls(
            up=True, serves=serves, asleep=asleep, start_time=start_time, pids=pids, incidents=incidents
        )  # fmt: skip


class HostWatch(Judge[HostDetector]):
    """Judges one host's polls. Its incidents have the target `host:NAME`."""

    def __init__(self, name: str, thresholds: DetectorsSettings | None = None) -> None:
        thresholds = thresholds or DetectorsSettings()
        super().__init__(host_target(name), all_detectors(thresholds, "HostDetector"))
        self.holders: tuple[GpuHolders, ...] = ()
        stale = StaleVramSettings.model_validate(thresholds.of(STALE_VRAM))
        self._judge = HolderJudge(stale.limits())
        self._users = GpuUsers()
        self._places: Mapping[str, Place] = {}
        self._used_gpus: frozenset[str] = frozenset()  # UUIDs

    def concerning(self, target: str) -> tuple[Incident, ...]:
        return tuple([each for each in self.incidents if target in each.concerns])

    def around(self, target: str) -> Around:
        """Return the facts of this host about the processes and GPUs near `target`."""
        cores, left = self._cores(target, VLLM), self._cores(target, STALE)
        return Around(
            others_gpus=self._used_gpus - frozenset(self._places.get(target, ())),
            core=cores[0] if len(cores) == 1 else None,
            left_core=left[0] if left else None,  # the lowest PID
        )

    def _cores(self, target: str, verdict: str) -> list[str]:
        pids = {
            each.process.pid
            for held in self.holders if held.targets == (target,)
            for each in held.holders or () if each.role == roles.CORE and each.judged.verdict == verdict
        }  # fmt: skip
        return [f"VLLM::EngineCore (PID {pid})" for pid in sorted(pids)]

    def look(
        self,
        t: float,
        monotonic_s: float | None,
        gpus: tuple[GpuSample, ...],
        servers: Mapping[str, ServerScrape],
    ) -> list[IncidentEvent]:
        """Judge one poll at Unix time `t`, and return the events in order. A late poll is ignored."""
        if self._timeline.is_late(t, monotonic_s):
            return []
        at_s, _ = self._timeline.advance(t, monotonic_s)
        answering = [each.pids for each in servers.values() if each.serves] if servers else None
        self.holders = self._judge.look(at_s, t, gpus, answering=answering)
        places = self._places = self._users.look(self.holders, servers)
        self._used_gpus = frozenset().union(*places.values())
        self.holders = tuple(_placed(each, places) for each in self.holders)
        view = HostView(
            at_s=at_s,
            gpus=gpus,
            holders=self.holders,
            servers=tuple(
                HostServer(name=name, up=each.up, gpus=places[name], asleep=each.asleep)
                for name, each in servers.items()
            ),
        )
        beside = [incident for each in servers.values() for incident in each.incidents]
        verdicts = self._verdicts(lambda _, each: [each.update(view)])
        return self._lifecycle.update(Moment(t=t, at_s=at_s, up=False), verdicts, beside)

    def export_state(self) -> dict[str, Any] | None:
        clock = self._timeline.export_state()
        if clock is None:
            return None
        return {
            "version": VERSION,
            "target": self.target,
            **clock,
            "lifecycle": self._lifecycle.export_state(),
            "users": self._users.export_state(),
        }

    def restore(self, state: stored.Stored) -> list[str]:
        """Restore the state, before the first poll. Return errors of lost parts."""
        try:
            stored.version(state, VERSION)
            self._timeline.restore(state)
            self._users.restore(state["users"])
            self._lifecycle.restore(state["lifecycle"], self._detectors)
        except stored.DAMAGE as error:
            return [f"all: {error!r}"]
        return []


def _placed(held: GpuHolders, places: Mapping[str, Place]) -> GpuHolders:
    here = (name for name, place in places.items() if held.gpu.uuid in place)
    return replace(held, targets=tuple(sorted(here)))


def host_of(url: str) -> str:
    """Return the URL's host. Targets of one host share GPUs."""
    return urlsplit(url).hostname or url


@dataclass(slots=True, eq=False)
class SiteWatch:
    """Judges every target that has an observation."""

    make_watch: Callable[[str], Watch] = Watch
    host_of: Callable[[str], str] = host_of
    make_host: Callable[[str], HostWatch] = HostWatch
    watches: dict[str, Watch] = field(default_factory=dict)
    hosts: dict[str, HostWatch] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        every: list[Watch | HostWatch] = [*self.watches.values(), *self.hosts.values()]
        return {slug: error for each in every for slug, error in each.failures.items()}

    def look(self, observation: Observation) -> list[IncidentEvent]:
        target = observation.target
        if target not in self.watches:
            self.watches[target] = self.make_watch(target)
        name, watch = self.host_of(target), self.watches[target]
        if name not in self.hosts:
            self.hosts[name] = self.make_host(name)
        host, events = self.hosts[name], []
        if observation.gpus is not None:
            servers = {
                each.target: ServerScrape.of(each.signals, each.incidents)
                for url, each in self.watches.items()
                if self.host_of(url) == name
            }
            t, monotonic_s = observation.t, observation.monotonic_s
            events = host.look(t, monotonic_s, observation.gpus, servers)
        beside, around = host.concerning(watch.target), host.around(watch.target)
        return events + watch.observe(observation, beside=beside, around=around)
