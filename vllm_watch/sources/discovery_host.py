"""Targets of this host: the vLLM servers that its processes and sockets show.

One that was found stays a target when its process is gone: that is what a crash looks like. A reload of
the configuration forgets it.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from vllm_watch.errors import ExpositionError
from vllm_watch.samples.observation import Call
from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources import host_servers, http
from vllm_watch.sources.engine_processes import PORT_DEFAULT
from vllm_watch.sources.host_servers import CONSUMER, PRODUCER, HostServer
from vllm_watch.sources.http_session import Session
from vllm_watch.sources.process_listing import ProcessListing
from vllm_watch.sources.reading import Reader
from vllm_watch.support import threads

_log = structlog.get_logger()

NONE_FOUND = "no vLLM server runs on this host"
REMEDY = "start vLLM, or name a server: vllm-watch run --target HOST:PORT"

_LOOK_SECONDS = (
    5.0  # a process that is stuck in the kernel may block whoever asks for its command line
)
_NEIGHBOURS_SECONDS = 30.0
_ASK = http.Limits(1.0, 3.0, 8 << 20)


class HostTargets:
    """The servers of one procfs tree, found so far."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._listing = ProcessListing(procfs)
        self._found: dict[str, HostServer] | None = None  # by URL; None: not looked yet

    @property
    def found_none(self) -> bool:
        """Has a look that ended found nothing?"""
        return self._found == {}

    async def read(self) -> list[TargetConfig]:
        """Look; return all that were found since the start. Never raises for what is found."""
        seen = await servers(self._listing, self._procfs, known=self._found or {})
        if seen is None:  # unknown is not none
            return targets_of(self._found or {})
        new = [each for each in seen if each.url not in (self._found or {})]
        if new:
            told = ", ".join(_shown(each) for each in new)
            text = f"found {len(new)} vLLM server{'s' * (len(new) > 1)}: {told}"
            _log.info("vllm_found", servers=[each.url for each in new], text=text)
        elif self._found is None:
            _log.warning("no_vllm_found", because=NONE_FOUND, remedy=REMEDY)
        self._found = (self._found or {}) | {each.url: each for each in new}
        return targets_of(self._found)


class Neighbours:
    """What of vLLM runs on this host beside a target that refuses connections. Looked for twice a minute at most."""

    def __init__(self, listing: ProcessListing, procfs: Path) -> None:
        self._listing, self._procfs = listing, procfs
        self._due_s = float("-inf")
        self._seen: list[HostServer] | None = None
        self._answered: set[str] = set()  # URLs of this host's targets, until they refuse

    def heard(self, url: str) -> None:
        """A target of this host is a vLLM that answers."""
        self._answered.add(url)

    async def told(self, call: Call, url: str) -> Call:
        """The call, with what else runs here; as it is where the target's own process is seen, and where others answer
        whose processes are not: in a container without the host's PIDs nothing is seen, whatever runs."""
        self._answered.discard(url)
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _NEIGHBOURS_SECONDS
            self._seen = await _look(self._listing, self._procfs)
        if self._seen is None:
            return call
        sure = [each for each in self._seen if each.sure]
        if not sure and self._answered:
            return call
        port = urlsplit(url).port
        if any(urlsplit(each.url).port == port for each in sure):
            return call
        seen = f"other vLLM servers on this host: {', '.join(map(_shown, sure))}" if sure else "no vLLM API server is seen on this host"  # fmt: skip
        return replace(call, error=f"{call.error} ({seen})")


async def servers(
    listing: ProcessListing, procfs: Path, known: dict[str, HostServer] | None = None
) -> list[HostServer] | None:
    """Return those that run now; where it is not sure that one is vLLM's, it is asked (`known` ones are not).

    None: the processes could not be looked through in time.
    """
    found = await _look(listing, procfs)
    if found is None:
        return None
    async with http.new_session() as session:
        yes = await asyncio.gather(
            *(_believed(each, session) for each in found if each.url not in (known or {}))
        )
    return [each for each in yes if each is not None]


async def _look(listing: ProcessListing, procfs: Path) -> list[HostServer] | None:
    """What the processes show; None where they could not be looked through in time."""

    def look() -> list[HostServer]:
        return host_servers.find(listing.processes(time.monotonic()), procfs)

    try:
        return await threads.beside(look, _LOOK_SECONDS)
    except (TimeoutError, MemoryError):
        return None


async def _believed(server: HostServer, session: Session) -> HostServer | None:
    if server.sure:
        return server
    answer = await http.get(session, f"{server.url}/metrics", _ASK, {"Accept": "text/plain;version=0.0.4"})  # fmt: skip
    try:
        reading = Reader().read(answer.body.decode()) if answer.call.outcome == "ok" else None
    except (ExpositionError, UnicodeDecodeError):
        return None
    if reading is None or not reading.vllm:
        return None
    models = [each.model_name for each in reading.engines if each.model_name]
    return HostServer(server.url, server.model or "".join(models[:1]).rpartition("/")[2])


def targets_of(found: Mapping[str, HostServer]) -> list[TargetConfig]:
    """A decode (`kv_consumer`) exchanges KV with the prefills (`kv_producer`) of its model."""
    producers: dict[str, list[str]] = defaultdict(list)
    for each in found.values():
        if each.kv_role == PRODUCER:
            producers[each.model].append(_target(each.url).name)
    return [
        _target(each.url, producers[each.model] if each.kv_role == CONSUMER else ())
        for each in found.values()
    ]


def _target(url: str, peers: Sequence[str] = ()) -> TargetConfig:
    """`vllm` at the usual port, as it was always called there; elsewhere the port tells them apart."""
    parts = urlsplit(url)
    name = f"vllm-{parts.port}" if parts.hostname == "127.0.0.1" else ""
    name = "vllm" if name == f"vllm-{PORT_DEFAULT}" else name
    return TargetConfig(url=url, name=name, peers=tuple(peers))


def _shown(server: HostServer) -> str:
    parts = urlsplit(server.url)
    host = "" if parts.hostname == "127.0.0.1" else parts.hostname
    return f"{server.model} at {host}:{parts.port}".removeprefix(" at ")
