"""Identify the PID namespace of a procfs tree, because a PID in /proc is valid only in that namespace.

- /proc/self/ns/pid is *our* namespace in any tree; the initial one (the host's) has a fixed inode.
- NSpid in /proc/self/status lists our PIDs, from the tree's namespace to our own. If /proc/self is
  missing, we are outside the tree's namespace.
- kthreadd is process 2 of the initial namespace only; a container cannot fake its kernel thread flag.
Source: Linux include/linux/proc_ns.h, fs/proc/array.c, pid_namespaces(7).
"""

import os
from dataclasses import dataclass
from pathlib import Path

from vllm_watch.sources.processes import KERNEL_THREAD, parse_stat, parse_status

INITIAL_INODE = 0xEFFFFFFC  # PROC_PID_INIT_INO


@dataclass(frozen=True, slots=True)
class PidNamespace:
    """The namespace of the PIDs in a procfs tree."""

    initial: bool  # proven to be the host's
    levels_above_ours: int | None  # 0 if ours; None if we are not in it, or unknown


def of_tree(procfs: Path) -> PidNamespace:
    """Return the namespace of a tree; an unreadable file proves nothing."""
    try:
        pids = parse_status((procfs / "self" / "status").read_bytes()).pids
    except OSError:
        pids = None
    levels = len(pids) - 1 if pids else None
    ours_is_initial = levels == 0 and _inode(procfs / "self" / "ns" / "pid") == INITIAL_INODE
    return PidNamespace(
        initial=ours_is_initial or _has_kthreadd(procfs),
        levels_above_ours=levels,
    )


def we_are_initial(own_procfs: Path) -> bool:
    """Return True if this process runs in the host's PID namespace."""
    return _inode(own_procfs / "self" / "ns" / "pid") == INITIAL_INODE


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _has_kthreadd(procfs: Path) -> bool:
    try:
        stat = parse_stat((procfs / "2" / "stat").read_bytes())
    except OSError:
        return False
    return stat is not None and stat.name == "kthreadd" and bool(stat.flags & KERNEL_THREAD)
