"""Whether a process listens on a port, and which addresses its network namespace has.

Every process has its own view, /proc/PID/net: that of its network namespace. So a server in a container is
found by its port too, and is not taken for one of another container.
"""

import os
from ipaddress import ip_address
from pathlib import Path

from vllm_watch.sources.sockets import lines, listening, local_v4


def sockets(procfs: Path, pid: int, port: int) -> set[int]:
    """Return the inodes of the TCP sockets that listen on the port in the process's network namespace."""
    return {each.inode for each in listening(procfs / str(pid) / "net") if each.port == port}


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
    local = local_v4(folder) | _local_v6(folder)
    return any(ip_address(each).is_loopback or each in local for each in addresses)


def _local_v6(folder: Path) -> set[str]:
    return {
        str(ip_address(bytes.fromhex(line.split()[0])))
        for line in lines(folder / "if_inet6")
        if line
    }
