"""Find the vLLM servers of this host by their processes.

A server with a hidden process or an unknown port is unsure, and is confirmed over HTTP.
"""

import asyncio
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_watch.errors import ExpositionError
from vllm_watch.samples.observation import Call
from vllm_watch.sources import http, sockets
from vllm_watch.sources.engine_processes import PORT_DEFAULT, Processes, arguments, descendants
from vllm_watch.sources.http import Session
from vllm_watch.sources.processes import ProcessFacts, ProcessListing
from vllm_watch.sources.reading import Reader
from vllm_watch.sources.what_answered import ACCEPT_TEXT
from vllm_watch.support import json_text, threads

SERVERS_MAX = 64  # a host has up to 16 GPUs, which servers may share

_TITLE = re.compile(r"VLLM::(APIServer|EngineCore)")
_ANY = ("0.0.0.0", "::")  # noqa: S104 - the kernel's notation


PRODUCER, CONSUMER = "kv_producer", "kv_consumer"

NONE_FOUND = "no vLLM server runs on this host"
REMEDY = "start vLLM, or name a server: vllm-watch run --target HOST:PORT"
_SEARCH_SECONDS = 5.0  # reading a process stuck in the kernel may block
_NEIGHBOURS_SECONDS = 30.0
_ASK = http.Limits(1.0, 3.0, 8 << 20)


class HostServer(NamedTuple):
    """A server found on this host. `sure` is False if it may not be a vLLM."""

    url: str
    model: str = ""
    sure: bool = True
    kv_role: str = ""  # PRODUCER (prefill), CONSUMER (decode), "kv_both"


def find(all_: Processes, procfs: Path) -> list[HostServer]:
    """Return the servers, each URL once, sorted by port."""
    here = _listening(Path("/proc/self/net"))
    found: dict[str, HostServer] = {}
    for facts in _topmost(all_):
        for server in _of_process(facts, all_, procfs, here):
            found.setdefault(server.url, server)
    usual = _url("127.0.0.1", PORT_DEFAULT)
    if any(each.port == PORT_DEFAULT for each in here):
        found.setdefault(usual, HostServer(usual, sure=False))
    by_port = sorted(found.values(), key=lambda each: (int(each.url.rpartition(":")[2]), each.url))
    return by_port[:SERVERS_MAX]


def _topmost(all_: Processes) -> list[ProcessFacts]:
    fits = {}
    for pid, facts in all_.items():
        command = facts.cmdline or ()
        title = _TITLE.match(command[0]) if command else None
        owner = all_.get(facts.ppid or 0, facts) if title else facts
        if not facts.has_ended and (title or arguments(command) is not None):
            fits[owner.pid if title else pid] = owner
    below = {each.pid for facts in fits.values() for each in descendants(facts.pid, all_)}
    return [facts for pid, facts in fits.items() if pid not in below]


def _of_process(
    facts: ProcessFacts, all_: Processes, procfs: Path, here: list[sockets.Listening]
) -> list[HostServer]:
    words = arguments(facts.cmdline or ())
    flags = _flags(words or ())
    if "uds" in flags:
        return []
    model = flags.get("served-model-name") or flags.get("model") or _positional(words or ())
    secure = "ssl-certfile" in flags or "ssl-keyfile" in flags
    port_known = words is not None and ("port" in flags or "config" not in flags)
    port = flags.get("port", str(PORT_DEFAULT))
    held = _held(facts, all_, procfs)
    at_port = [each for each in held if port_known and str(each.port) == port]
    if port_known and not at_port and port.isdecimal():
        network = _listening(procfs / str(facts.pid) / "net")
        at_port = [each for each in network if str(each.port) == port][:1]
        at_port = at_port or [sockets.Listening(flags.get("host", "127.0.0.1"), int(port), 0)]
    ours = _same_network(facts.pid, procfs, {each.inode for each in here}, at_port or held)
    urls = (_address(each, facts.pid, procfs, ours=ours) for each in at_port or held)
    made = dict.fromkeys(_url(host, number, secure=secure) for host, number in filter(None, urls))
    role = _kv_role(flags.get("kv-transfer-config", ""))
    return [HostServer(url, PurePath(model).name, bool(at_port), role) for url in made]


def _kv_role(text: str) -> str:
    try:
        return str(json_text.read(text)["kv_role"])
    except (ValueError, KeyError, TypeError):
        return ""


def _held(facts: ProcessFacts, all_: Processes, procfs: Path) -> list[sockets.Listening]:
    try:
        inodes = sockets.held(procfs, facts.pid)
        for part in descendants(facts.pid, all_):
            if "EngineCore" not in "".join((part.cmdline or ())[:1]):
                inodes |= sockets.held(procfs, part.pid)
    except OSError:
        return []
    return [each for each in _listening(procfs / str(facts.pid) / "net") if each.inode in inodes]


def _listening(net: Path) -> list[sockets.Listening]:
    try:
        return sockets.listening(net)
    except OSError:
        return []


def _same_network(
    pid: int, procfs: Path, here: set[int], listening: list[sockets.Listening]
) -> bool:
    try:
        own = os.stat("/proc/self/ns/net").st_ino
        return os.stat(procfs / str(pid) / "ns" / "net").st_ino == own
    except OSError:
        return not any(each.inode for each in listening) or any(
            each.inode in here for each in listening
        )


def _address(
    listening: sockets.Listening, pid: int, procfs: Path, *, ours: bool
) -> tuple[str, int] | None:
    address, port = listening.address, listening.port
    if address not in _ANY:
        reachable = ours or not address.startswith(("127.", "::1"))
        return (address, port) if reachable else None
    if ours:
        return "127.0.0.1", port
    outside = sorted(each for each in sockets.local_v4(procfs / str(pid) / "net") if not each.startswith("127."))  # fmt: skip
    return (outside[0], port) if outside else None


def _flags(words: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for word, after in zip(words, (*words[1:], "--"), strict=False):
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            found[name.replace("_", "-")] = value if given or after.startswith("--") else after
    return found


def _positional(words: tuple[str, ...]) -> str:
    return words[0] if words and not words[0].startswith("-") else ""


def _url(host: str, port: int, *, secure: bool = False) -> str:
    return f"http{'s' * secure}://{f'[{host}]' if ':' in host else host}:{port}"


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
    async with http.Session() as session:
        yes = await asyncio.gather(
            *(_confirm(each, session) for each in found if each.url not in (known or {}))
        )
    return [each for each in yes if each is not None]


async def _search(listing: ProcessListing, procfs: Path) -> list[HostServer] | None:
    def search() -> list[HostServer]:
        return find(listing.processes(time.monotonic()), procfs)

    try:
        return await threads.run(search, _SEARCH_SECONDS)
    except (TimeoutError, MemoryError):
        return None


async def _confirm(server: HostServer, session: Session) -> HostServer | None:
    if server.sure:
        return server
    answer = await http.get(session, f"{server.url}/metrics", _ASK, {"Accept": ACCEPT_TEXT})  # fmt: skip
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
