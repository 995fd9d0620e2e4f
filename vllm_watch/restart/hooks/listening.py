"""Which listening sockets a process holds, and which addresses its network namespace has.

Every process has its own view, /proc/PID/net: that of its network namespace. So a server in a container is
found by its port too, and is not taken for one of another container.
Source: proc(5), Linux net/ipv4/tcp_ipv4.c (tcp4_seq_show), net/ipv4/fib_trie.c (fib_trie_seq_show).
"""

import os
import re
from ipaddress import ip_address
from itertools import islice
from pathlib import Path

_LISTEN = "0A"  # TCP_LISTEN in the column "st"
_INODE_COLUMN = 9
_TABLE_BYTES_MAX = 32 << 20  # some 200,000 connections
_FDS_MAX = 65536
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def sockets(procfs: Path, pid: int, port: int) -> set[int]:
    """Return the inodes of the TCP sockets that listen on the port in the process's network namespace."""
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in _lines(procfs / str(pid) / "net" / table)[1:]:
            columns = line.split()
            if len(columns) <= _INODE_COLUMN or columns[3] != _LISTEN:
                continue
            if int(columns[1].rpartition(":")[2], 16) == port:
                found.add(int(columns[_INODE_COLUMN]))
    return found


def held(procfs: Path, pid: int) -> set[int]:
    """Return the inodes of the sockets that the process holds open; empty where it is gone.

    Raises:
        PermissionError: where its descriptors may not be read.
    """
    found: set[int] = set()
    try:
        with os.scandir(procfs / str(pid) / "fd") as entries:
            for entry in islice(entries, _FDS_MAX):
                match = _SOCKET.fullmatch(_link(entry.path))
                if match:
                    found.add(int(match[1]))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def same_network(procfs: Path, pid: int) -> bool:
    """Is the process in our own network namespace?"""
    try:
        return (
            os.stat(procfs / str(pid) / "ns" / "net").st_ino == os.stat("/proc/self/ns/net").st_ino
        )
    except PermissionError:
        raise
    except OSError:
        return False


def is_local(addresses: frozenset[str], procfs: Path, pid: int | None) -> bool:
    """Is one of them an address of the process's network namespace? None: of our own."""
    folder = Path("/proc/self/net") if pid is None else procfs / str(pid) / "net"
    local = _local_v4(folder) | _local_v6(folder)
    return any(ip_address(each).is_loopback or each in local for each in addresses)


def _local_v4(folder: Path) -> set[str]:
    found: set[str] = set()
    last = ""
    for line in _lines(folder / "fib_trie"):
        text = line.strip()
        if text.startswith("|-- "):
            last = text.removeprefix("|-- ")
        elif text == "/32 host LOCAL":
            found.add(last)
    return found


def _local_v6(folder: Path) -> set[str]:
    return {
        str(ip_address(bytes.fromhex(line.split()[0])))
        for line in _lines(folder / "if_inet6")
        if line
    }


def _lines(path: Path) -> list[str]:
    try:
        with path.open() as file:
            return file.read(_TABLE_BYTES_MAX).splitlines()
    except PermissionError:
        raise
    except OSError:  # no IPv6, or gone
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except (FileNotFoundError, ProcessLookupError):
        return ""
