"""Who listens on a port of this host, from /proc and nothing else: no connection is made."""

import os
from contextlib import suppress
from pathlib import Path

from vllm_watch.export.status import public_arguments
from vllm_watch.preflight.facts import Listener
from vllm_watch.sources import sockets
from vllm_watch.sources.processes import ProcReader

_PIDS_MAX = 100_000
_PORTS_TRIED = 100
_COMMAND_CHARACTERS = 60


def find_listeners(port: int, procfs: Path = Path("/proc")) -> tuple[tuple[Listener, ...] | None, int | None]:  # fmt: skip
    """Who listens on the port, and the next port on which nobody does; None: cannot be read."""
    try:
        found = sockets.listening(procfs / "net")
    except PermissionError:
        return None, None
    if not (procfs / "net" / "tcp").exists():
        return None, None
    taken = {each.port for each in found}
    free = next((each for each in range(port + 1, port + _PORTS_TRIED) if each not in taken), None)
    here = [each for each in found if each.port == port]
    owners = _owners({each.inode for each in here}, procfs) if here else {}
    reader = ProcReader(procfs)
    return tuple(
        Listener(address=address, port=at, pid=owners.get(inode), command=_command(reader, owners.get(inode)))
        for address, at, inode in here
    ), free  # fmt: skip


def _owners(inodes: set[int], procfs: Path) -> dict[int, int]:
    """Socket's inode → the first process that has it open, of those whose files may be read."""
    found: dict[int, int] = {}
    for pid in sorted(int(each) for each in os.listdir(procfs) if each.isdecimal())[:_PIDS_MAX]:
        with suppress(OSError):
            for inode in sockets.held(procfs, pid) & inodes:
                found.setdefault(inode, pid)
    return found


def _command(reader: ProcReader, pid: int | None) -> str | None:
    facts = reader.read(pid) if pid is not None else None
    if facts is None:
        return None
    said = " ".join(public_arguments(facts.cmdline) or ()) or facts.name or ""
    return said if len(said) <= _COMMAND_CHARACTERS else f"{said[:_COMMAND_CHARACTERS]}…"
