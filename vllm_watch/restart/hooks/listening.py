"""Whether a process listens on a port, and which addresses its network namespace has.

Every process has its own view, /proc/PID/net: that of its network namespace. So a server in a container is
found by its port too, and is not taken for one of another container.
"""

import os
from pathlib import Path

from vllm_watch.sources.sockets import listening
from vllm_watch.sources.this_host import NET, is_here


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
    folder = NET if pid is None else procfs / str(pid) / "net"
    return any(is_here(each, folder) for each in addresses)
