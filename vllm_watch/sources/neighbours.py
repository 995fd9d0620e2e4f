"""Find the vLLM servers of this host by their processes; uncertain ones are confirmed over HTTP."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from vllm_watch.errors import ExpositionError
from vllm_watch.samples.observation import Call
from vllm_watch.sources import host_servers, http
from vllm_watch.sources.host_servers import HostServer
from vllm_watch.sources.http import Session
from vllm_watch.sources.process_listing import ProcessListing
from vllm_watch.sources.reading import Reader
from vllm_watch.support import threads

NONE_FOUND = "no vLLM server runs on this host"
REMEDY = "start vLLM, or name a server: vllm-watch run --target HOST:PORT"

_SEARCH_SECONDS = 5.0  # reading a process stuck in the kernel may block
_NEIGHBOURS_SECONDS = 30.0
_ASK = http.Limits(1.0, 3.0, 8 << 20)


class Neighbours:
    """Finds this host's other vLLM servers after a refused connection. Searches at most twice a minute."""

    def __init__(self, listing: ProcessListing, procfs: Path) -> None:
        self._listing, self._procfs = listing, procfs
        self._due_s = float("-inf")
        self._seen: list[HostServer] | None = None
        self._answered: set[str] = set()  # URLs of local targets that answered last time

    def answered(self, url: str) -> None:
        self._answered.add(url)

    async def explain(self, call: Call, url: str) -> Call:
        """Add the other servers to the call's error.

        The error stays as it is if the target's own process is visible, or if this container cannot
        see the host's processes.
        """
        self._answered.discard(url)
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _NEIGHBOURS_SECONDS
            self._seen = await _search(self._listing, self._procfs)
        if self._seen is None:
            return call
        sure = [each for each in self._seen if each.sure]
        if not sure and self._answered:
            return call
        port = urlsplit(url).port
        if any(urlsplit(each.url).port == port for each in sure):
            return call
        seen = f"other vLLM servers on this host: {', '.join(map(shown, sure))}" if sure else "no vLLM API server is seen on this host"  # fmt: skip
        return replace(call, error=f"{call.error} ({seen})")


async def servers(
    listing: ProcessListing, procfs: Path, known: dict[str, HostServer] | None = None
) -> list[HostServer] | None:
    """Return the running servers except the `known` URLs, or None if reading took too long."""
    found = await _search(listing, procfs)
    if found is None:
        return None
    async with http.new_session() as session:
        yes = await asyncio.gather(
            *(_confirm(each, session) for each in found if each.url not in (known or {}))
        )
    return [each for each in yes if each is not None]


async def _search(listing: ProcessListing, procfs: Path) -> list[HostServer] | None:
    def search() -> list[HostServer]:
        return host_servers.find(listing.processes(time.monotonic()), procfs)

    try:
        return await threads.run(search, _SEARCH_SECONDS)
    except (TimeoutError, MemoryError):
        return None


async def _confirm(server: HostServer, session: Session) -> HostServer | None:
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


def shown(server: HostServer) -> str:
    """Return the server's model and address as part of a sentence."""
    parts = urlsplit(server.url)
    host = "" if parts.hostname == "127.0.0.1" else parts.hostname
    return f"{server.model} at {host}:{parts.port}".removeprefix(" at ")
