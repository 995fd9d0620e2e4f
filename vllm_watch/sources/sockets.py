"""Read TCP sockets from /proc, and decide if an address belongs to this host. Source: proc(5), Linux Documentation/networking/proc_net_tcp.rst, net/ipv4/fib_trie.c ."""

import ipaddress
import os
import re
import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_watch.support import threads

_LISTEN = "0A"  # TCP_LISTEN in the column "st"
_INODE_COLUMN = 9
_TABLE_BYTES_MAX = 64 << 20  # a host with 400,000 sockets
_FDS_MAX = 65536
_BYTES_OF_WORD = 4
_SOCKET = re.compile(r"socket:\[(\d+)\]")

NET = Path("/proc/self/net")
ADDRESSES_SECONDS = 2.0


class Listening(NamedTuple):
    """A socket that accepts connections."""

    address: str
    port: int
    inode: int


def listening(net: Path) -> list[Listening]:
    """Return the sockets in a folder like /proc/PID/net; none if the folder is gone. Raises PermissionError."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in lines(net / table)[1:]:
            columns = line.split()
            if len(columns) > _INODE_COLUMN and columns[3] == _LISTEN:
                address, _, port = columns[1].rpartition(":")
                found.append(Listening(_kernel_address(address), int(port, 16), int(columns[_INODE_COLUMN])))  # fmt: skip
    return found


def held(procfs: Path, pid: int) -> set[int]:
    """Return the inodes of a process' open sockets; empty if the process is gone. Raises PermissionError."""
    found = set()
    try:
        with os.scandir(procfs / str(pid) / "fd") as entries:
            for entry in islice(entries, _FDS_MAX):
                if match := _SOCKET.fullmatch(_link(entry.path)):
                    found.add(int(match[1]))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def lines(path: Path) -> list[str]:
    """Return the file's lines; none if it does not exist. Raises PermissionError."""
    try:
        with path.open() as file:
            return file.read(_TABLE_BYTES_MAX).splitlines()
    except PermissionError:
        raise
    except OSError:  # no IPv6, or gone
        return []


def local_v4(net: Path) -> set[str]:
    """Return the IPv4 addresses of the network namespace. Raises PermissionError."""
    found: set[str] = set()
    last = ""
    for line in lines(net / "fib_trie"):
        text = line.strip()
        if text.startswith("|-- "):
            last = text.removeprefix("|-- ")
        elif text == "/32 host LOCAL":
            found.add(last)
    return found


def local_v6(net: Path) -> set[str]:
    """Return the IPv6 addresses of the network namespace. Raises PermissionError."""
    return {
        str(ipaddress.ip_address(bytes.fromhex(line.split()[0])))
        for line in lines(net / "if_inet6")
        if line
    }


def _kernel_address(text: str) -> str:
    """The kernel writes 32-bit words in native byte order."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        words = [raw[at : at + _BYTES_OF_WORD] for at in range(0, len(raw), _BYTES_OF_WORD)]
        raw = b"".join(word[::-1] for word in words)
    return str(ipaddress.ip_address(raw))


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_loopback(host: str) -> bool:
    """Return True for a name or address that means this machine in any network."""
    if host.lower().removesuffix(".") == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_here(host: str, net: Path = NET) -> bool:
    """Return False for names other than localhost, because they may move to another host. Raises PermissionError."""
    if is_loopback(host):
        return True
    address = _address(host)
    return address is not None and str(address) in local_v4(net) | local_v6(net)


async def serves_here(url: str, net: Path = NET) -> bool:
    """Return True if the URL's host is here; False if the kernel is too slow."""
    host = urlsplit(url).hostname or ""
    try:
        return await threads.run(lambda: is_here(host, net), ADDRESSES_SECONDS)
    except (OSError, MemoryError):
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
