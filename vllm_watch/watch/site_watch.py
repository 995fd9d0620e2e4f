"""Judge all targets of a recording and their hosts, as the daemon does."""

from collections.abc import Callable
from urllib.parse import urlsplit

from vllm_watch.detectors.base import Around
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.samples.observation import Observation
from vllm_watch.watch.host_watch import HostWatch, ServerScrape
from vllm_watch.watch.watch import Watch


def host_of(url: str) -> str:
    """Return the URL's host. Targets of one host share GPUs."""
    return urlsplit(url).hostname or url


class SiteWatch:
    """Judges every target that has an observation."""

    def __init__(
        self,
        make_watch: Callable[[str], Watch] = Watch,
        host_of: Callable[[str], str] = host_of,
        make_host: Callable[[str], HostWatch] = HostWatch,
    ) -> None:
        self._make_watch = make_watch
        self._host_of, self._make_host = host_of, make_host
        self.watches: dict[str, Watch] = {}
        self.hosts: dict[str, HostWatch] = {}

    @property
    def failures(self) -> dict[str, str]:
        every: list[Watch | HostWatch] = [*self.watches.values(), *self.hosts.values()]
        return {slug: error for each in every for slug, error in each.failures.items()}

    def look(self, observation: Observation) -> list[IncidentEvent]:
        target = observation.target
        if target not in self.watches:
            self.watches[target] = self._make_watch(target)
        name, watch = self._host_of(target), self.watches[target]
        if name not in self.hosts:
            self.hosts[name] = self._make_host(name)
        host, events = self.hosts[name], []
        if observation.gpus is not None:
            servers = {
                each.target: ServerScrape.of(each.signals, each.incidents)
                for url, each in self.watches.items()
                if self._host_of(url) == name
            }
            t, monotonic_s = observation.t, observation.monotonic_s
            events = host.look(t, monotonic_s, observation.gpus, servers)
        around = Around(
            others_gpus=host.others_gpus(watch.target),
            core=host.core_of(watch.target),
            left_core=host.left_core_of(watch.target),
        )
        return events + watch.observe(
            observation, beside=host.concerning(watch.target), around=around
        )
