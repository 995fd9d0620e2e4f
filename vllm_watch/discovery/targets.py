"""Collect the targets from the configuration, this host, file_sd files and Kubernetes.

If a source fails, its known targets are kept. A server on this host remains a target after its
process has ended, because the process may have crashed.
"""

import asyncio
import contextlib
import ipaddress
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from vllm_watch.config import Config
from vllm_watch.discovery.files import FileTargets
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.settings.target import (
    TARGETS_MAX,
    KubernetesDiscovery,
    TargetConfig,
    named,
    qualified,
)
from vllm_watch.sources.engine_processes import PORT_DEFAULT
from vllm_watch.sources.host_servers import (
    CONSUMER,
    NONE_FOUND,
    PRODUCER,
    REMEDY,
    HostServer,
    servers,
    shown,
)
from vllm_watch.sources.processes import ProcessListing

if TYPE_CHECKING:
    from vllm_watch.discovery.kubernetes import KubernetesTargets

_log = structlog.get_logger()

_NONE_SECONDS = 5.0  # search interval without known targets, because vLLM may be starting
_CLOSE_SECONDS = 2.0
# Seconds to wait for other changes, because pods change in batches.
_BATCH_SECONDS = 0.1

_NO_KEY = ScrapeSettings.model_validate({"api_key_file": None})


class Discovery:
    """Searches for targets every `discovery.refresh_seconds`, and watches pods."""

    def __init__(self, config: Config, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._config = config
        self._files: FileTargets | None = None
        self._host: HostTargets | None = None
        self._pods: list[KubernetesTargets] = []
        self._ending: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._seen: tuple[list[TargetConfig], dict[str, str]] = ([], {})
        self.problems: Mapping[str, str] = {}
        self._targets: tuple[TargetConfig, ...] | None = None
        self._key_warned = False
        self._left_out: tuple[str, ...] = ()  # URLs found but not allowed
        self._due_s = 0.0
        self._one_at_a_time = asyncio.Lock()
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Apply `config`. Files and pods that are still configured keep their state."""
        settings = config.discovery
        followed = {pods.settings: pods for pods in self._pods}
        wanted = tuple(dict.fromkeys(settings.kubernetes))
        self._pods = [followed.get(each) or self._follow(each) for each in wanted]
        self._ending = [task for task in self._ending if not task.done()]
        left = followed.keys() - set(wanted)
        self._ending += [task for each in left for task in followed[each].close()]
        self._config = config
        self._files = (self._files or FileTargets(())) if settings.file_sd else None
        if self._files is not None:
            self._files.patterns = settings.file_sd
        self._host = HostTargets(config.procfs) if settings.host else None
        self._due_s = float("-inf")
        self._targets = None  # their API key may have changed

    def _follow(self, entry: KubernetesDiscovery) -> "KubernetesTargets":
        from vllm_watch.discovery import kubernetes  # noqa: PLC0415 - loads a client of its own

        return kubernetes.KubernetesTargets(entry, self._environ, self._news.set)

    @property
    def nothing_found(self) -> str | None:
        searched = self._host and self._host.found == {}
        return f"{NONE_FOUND}: {REMEDY}" if searched and not self._targets else None

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
                await asyncio.sleep(_BATCH_SECONDS)
        self._news.clear()

    async def refresh(self, now_monotonic: float) -> tuple[TargetConfig, ...] | None:
        """Return all targets, or None if nothing changed or no search is due."""
        async with self._one_at_a_time:
            due = now_monotonic >= self._due_s
            if not due and not any(pods.changed for pods in self._pods):
                return None
            config = self._config
            if due:
                none_yet = config.discovery.host and not self._targets
                seconds = config.discovery.refresh_seconds
                self._due_s = now_monotonic + (min(seconds, _NONE_SECONDS) if none_yet else seconds)
                self._seen = await self._search()
            found, problems = await self._found()
            if config is not self._config:
                return None  # reconfigured meanwhile: the result is outdated
            targets = self._joined(found, problems)
            self._log_changes(problems)
            if targets == self._targets:
                return None
            self._targets = targets
            return targets

    async def close(self) -> None:
        ending = [*self._ending, *(task for pods in self._pods for task in pods.close())]
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_SECONDS)

    async def _found(self) -> tuple[list[TargetConfig], dict[str, str]]:
        found, problems = list(self._seen[0]), dict(self._seen[1])
        several, entries = qualified(self._config.discovery.kubernetes), tuple(self._pods)
        read = await asyncio.gather(*(pods.read(qualified=several) for pods in entries))
        for pods, targets in zip(entries, read, strict=True):
            found += self._without_key(targets)
            problems |= pods.problems
        return self._within(found), problems

    async def _search(self) -> tuple[list[TargetConfig], dict[str, str]]:
        found: list[TargetConfig] = []
        problems: dict[str, str] = {}
        if self._files is not None:
            found, problems = await asyncio.to_thread(self._files.read)
            found = self._without_key(found)
        if self._host is not None:
            found += await self._host.read()
        return found, problems

    def _within(self, found: list[TargetConfig]) -> list[TargetConfig]:
        allow = self._config.discovery.allow
        allowed = [each for each in found if not allow or is_allowed(each.url, allow)]
        left_out = tuple(sorted({each.url for each in found} - {each.url for each in allowed}))
        if left_out and left_out != self._left_out:
            remedy = "add their hosts to discovery.allow if they are yours"
            _log.warning("targets_not_allowed", count=len(left_out), first=left_out[0], remedy=remedy)  # fmt: skip
        self._left_out = left_out
        return allowed

    def _without_key(self, found: list[TargetConfig]) -> list[TargetConfig]:
        """Return copies that never get our API key, unless `discovery.allow` limits the hosts."""
        if self._config.discovery.allow:
            return found
        if found and self._config.scrape.api_key_file is not None and not self._key_warned:
            self._key_warned = True
            remedy = "list their hosts in discovery.allow"
            _log.warning("api_key_withheld", targets=len(found), because="files or pods named them", remedy=remedy)  # fmt: skip
        return [each.model_copy(update={"scrape": _NO_KEY}) for each in found]

    def _joined(
        self, found: list[TargetConfig], problems: dict[str, str]
    ) -> tuple[TargetConfig, ...]:
        static = self._config.targets
        by_url = {target.url: target for target in reversed(found)}  # the first of a URL wins
        for target in static:
            by_url.pop(target.url, None)
        room = TARGETS_MAX - len(static)
        if len(by_url) > room:
            problems["discovery"] = (
                f"{len(by_url) + len(static)} targets are more than {TARGETS_MAX}: "
                f"{len(by_url) - room} are left out"
            )
        # Sorted by URL, so that the same servers always get the same names.
        discovered = [by_url[url] for url in sorted(by_url)][:room]
        return static + named(discovered, {one.name for one in static})

    def _log_changes(self, problems: dict[str, str]) -> None:
        for place, problem in problems.items():
            if self.problems.get(place) != problem:
                _log.warning("discovery_problem", place=place, problem=problem)
        for place in self.problems.keys() - problems.keys():
            _log.info("discovery_well_again", place=place)
        self.problems = problems


def is_allowed(url: str, allow: Sequence[str]) -> bool:
    """Return True if the host matches a name (`*.` matches subdomains), an address or a network of `allow`."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return any(_names(host, each.lower()) for each in allow)
    return any(_holds(each, address) for each in allow)


def _names(host: str, pattern: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _holds(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False  # a name may resolve to any address


class HostTargets:
    """All servers found so far in one procfs tree."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._listing = ProcessListing(procfs)
        self.found: dict[str, HostServer] | None = None  # by URL; None: not searched yet

    async def read(self) -> list[TargetConfig]:
        seen = await servers(self._listing, self._procfs, known=self.found or {})
        if seen is None:  # not read in time
            return targets_of(self.found or {})
        new = [each for each in seen if each.url not in (self.found or {})]
        if new:
            found = ", ".join(shown(each) for each in new)
            text = f"found {len(new)} vLLM server{'s' * (len(new) > 1)}: {found}"
            _log.info("vllm_found", servers=[each.url for each in new], text=text)
        elif self.found is None:
            _log.warning("no_vllm_found", because=NONE_FOUND, remedy=REMEDY)
        self.found = (self.found or {}) | {each.url: each for each in new}
        return targets_of(self.found)


def targets_of(found: Mapping[str, HostServer]) -> list[TargetConfig]:
    """Return the targets. A decode server gets the prefill servers of its model as peers."""
    producers: dict[str, list[str]] = defaultdict(list)
    for each in found.values():
        if each.kv_role == PRODUCER:
            producers[each.model].append(_target(each.url).name)
    return [
        _target(each.url, producers[each.model] if each.kv_role == CONSUMER else ())
        for each in found.values()
    ]


def _target(url: str, peers: Sequence[str] = ()) -> TargetConfig:
    """The server at the default port has the name `vllm` for compatibility."""
    parts = urlsplit(url)
    name = f"vllm-{parts.port}" if parts.hostname == "127.0.0.1" else ""
    name = "vllm" if name == f"vllm-{PORT_DEFAULT}" else name
    return TargetConfig(url=url, name=name, peers=tuple(peers))
