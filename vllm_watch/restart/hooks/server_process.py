"""Find a target's server process by command line, port, address and start time.

Source: proc(5); vllm/entrypoints; vllm/utils (process titles).
"""

import asyncio
import os
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base
from vllm_watch.samples.target import PORT_OF_SCHEME
from vllm_watch.sources import sockets
from vllm_watch.sources.engine_processes import arguments, descendants, started_at
from vllm_watch.sources.processes import ProcessFacts, ProcReader
from vllm_watch.sources.sockets import NET, is_here

_RESOLVE_SECONDS = 5.0
_GONE = ("Z", "X")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server's process, and all processes at that moment by PID."""

    facts: ProcessFacts
    all: dict[int, ProcessFacts]


async def find(tools: base.Tools, call: base.HookCall) -> Server:
    """Return the target's server. Raises HookError if none or more than one matches."""
    parts = urlsplit(call.url)
    port = parts.port or PORT_OF_SCHEME.get(parts.scheme)
    addresses = await _addresses(parts.hostname or "")
    return await asyncio.to_thread(_find, tools.procfs, call, port, addresses)


def is_server(cmdline: tuple[str, ...] | None) -> bool:
    """Return True for an API server's command line; False for engines and workers."""
    if not cmdline:
        return False
    if cmdline[0].startswith("VLLM::"):
        return cmdline[0].lower().startswith("vllm::api")
    return arguments(cmdline) is not None


def everything(procfs: Path) -> dict[int, ProcessFacts]:
    """Return the facts of all processes. Raises HookError."""
    reader = ProcReader(procfs)
    try:
        pids = [int(name) for name in os.listdir(procfs) if name.isdigit()]
    except OSError as error:
        cause = f"{procfs} cannot be read: {error.strerror}"
        raise HookError(cause, "set procfs to the mount point of /proc") from None
    read = ((pid, reader.read(pid)) for pid in pids)
    return {pid: facts for pid, facts in read if facts is not None}


def _find(
    procfs: Path,
    call: base.HookCall,
    port: int | None,
    addresses: frozenset[str],
) -> Server:
    all_ = everything(procfs)
    candidates = [pid for pid, facts in all_.items() if _is_topmost(facts, all_)]
    if port is not None:
        ours = call.process_start_time is None
        told = {pid: _listens(procfs, pid, all_, port, addresses, ours) for pid in candidates}
        candidates = [pid for pid, listens in told.items() if listens]
        if not candidates and None in told.values():
            cause = f"the owner of port {port} is not visible: servers of other users run here"
            remedy = "run vllm-watch as the server's user, or with CAP_SYS_PTRACE and CAP_KILL"
            raise HookError(cause, remedy)
    if not candidates:
        remedy = "check that it runs on this host and listens on that port"
        raise HookError(f"no vLLM server was found on port {port} ({call.url})", remedy)
    return Server(facts=_observed(call, [all_[pid] for pid in candidates]), all=all_)


def _is_topmost(facts: ProcessFacts, all_: dict[int, ProcessFacts]) -> bool:
    if not is_server(facts.cmdline):  # a zombie has no command line
        return False
    parent = all_.get(facts.ppid or 0)
    return parent is None or not is_server(parent.cmdline)


def _listens(
    procfs: Path,
    pid: int,
    all_: dict[int, ProcessFacts],
    port: int,
    addresses: frozenset[str],
    only_ours: bool,
) -> bool | None:
    try:
        listening = sockets.listening(procfs / str(pid) / "net")
        wanted = {each.inode for each in listening if each.port == port}
        if not wanted or (only_ours and not _same_network(procfs, pid)):
            return False
        if not any(_is_local(addresses, procfs, each) for each in (pid, None)):
            return False
        family = [pid, *(each.pid for each in descendants(pid, all_))]
        return any(wanted & sockets.held(procfs, each) for each in family)
    except PermissionError:
        return None


def _observed(call: base.HookCall, found: list[ProcessFacts]) -> ProcessFacts:
    expected = call.process_start_time
    if expected is not None:
        same = [facts for facts in found if started_at(facts, expected)]
        if not same:
            pids = ", ".join(str(facts.pid) for facts in found)
            which = pids if len(found) == 1 else f"(one of {pids})"
            cause = f"the start time of process {which} is not that of the observed server"
            raise HookError(cause, "wait for the next scrape; it may have been restarted already")
        found = same
    if len(found) > 1:
        pids = ", ".join(str(facts.pid) for facts in found)
        raise HookError(f"several servers were found on its port: {pids}", "stop the other one")
    return found[0]


async def _addresses(host: str) -> frozenset[str]:
    try:
        return frozenset((str(ip_address(host)),))
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        cause = f"{host} cannot be resolved, so it is unknown whether it is this host"
        raise HookError(cause, "give the target's URL by its address") from None
    return frozenset(str(address[4][0]).partition("%")[0] for address in found)


def _same_network(procfs: Path, pid: int) -> bool:
    try:
        return (
            os.stat(procfs / str(pid) / "ns" / "net").st_ino == os.stat("/proc/self/ns/net").st_ino
        )
    except PermissionError:
        raise
    except OSError:
        return False


def _is_local(addresses: frozenset[str], procfs: Path, pid: int | None) -> bool:
    folder = NET if pid is None else procfs / str(pid) / "net"
    return any(is_here(each, folder) for each in addresses)
