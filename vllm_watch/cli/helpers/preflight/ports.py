"""Who listens on a port of this host, from /proc/net and nothing else: no connection is made.

Source: Linux Documentation/networking/proc_net_tcp.rst.
"""

import ipaddress
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from vllm_watch.export.status import public_arguments
from vllm_watch.preflight.facts import Listener
from vllm_watch.sources.processes import ProcReader

_LISTEN = "0A"
_FIELDS_MIN = 10
_FILE_BYTES_MAX = 64 << 20  # a host with 400,000 sockets
_PIDS_MAX = 100_000
_PORTS_TRIED = 100
_COMMAND_CHARACTERS = 60
_BYTES_OF_WORD = 4


def find_listeners(port: int, procfs: Path = Path("/proc")) -> tuple[tuple[Listener, ...] | None, int | None]:  # fmt: skip
    """Who listens on the port, and the next port on which nobody does; None: cannot be read."""
    found = [
        each for name in ("tcp", "tcp6") for each in _listening(procfs / "net" / name)
    ]  # fmt: skip
    if not (procfs / "net" / "tcp").exists():
        return None, None
    taken = {at for _, at, _ in found}
    free = next((each for each in range(port + 1, port + _PORTS_TRIED) if each not in taken), None)
    here = [each for each in found if each[1] == port]
    owners = _owners({inode for _, _, inode in here}, procfs) if here else {}
    reader = ProcReader(procfs)
    return tuple(
        Listener(address=address, port=at, pid=owners.get(inode), command=_command(reader, owners.get(inode)))
        for address, at, inode in here
    ), free  # fmt: skip


def _listening(path: Path) -> Iterator[tuple[str, int, str]]:
    """(address, port, inode) of each listening socket."""
    try:
        with path.open() as file:
            text = file.read(_FILE_BYTES_MAX)
    except OSError:
        return
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < _FIELDS_MIN or fields[3] != _LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        yield _address(address), int(port, 16), fields[9]


def _address(text: str) -> str:
    """The kernel writes 32-bit words in the machine's own order."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        words = [raw[at : at + _BYTES_OF_WORD] for at in range(0, len(raw), _BYTES_OF_WORD)]
        raw = b"".join(word[::-1] for word in words)
    return str(ipaddress.ip_address(raw))


def _owners(inodes: set[str], procfs: Path) -> dict[str, int]:
    """Socket's inode → a process that has it open, of those whose files may be read."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, int] = {}
    for pid in sorted(int(each) for each in os.listdir(procfs) if each.isdecimal())[:_PIDS_MAX]:
        with suppress(OSError):
            for entry in os.scandir(procfs / str(pid) / "fd"):
                with suppress(OSError):
                    inode = wanted.get(os.readlink(entry.path))
                    if inode is not None:
                        found.setdefault(inode, pid)
    return found


def _command(reader: ProcReader, pid: int | None) -> str | None:
    facts = reader.read(pid) if pid is not None else None
    if facts is None:
        return None
    said = " ".join(public_arguments(facts.cmdline) or ()) or facts.name or ""
    return said if len(said) <= _COMMAND_CHARACTERS else f"{said[:_COMMAND_CHARACTERS]}…"
