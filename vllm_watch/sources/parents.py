"""Whose child every process is: one look through /proc, for who must know a whole tree."""

from contextlib import suppress
from pathlib import Path

from vllm_watch.sources.proc_stat import parse_stat

PROCESSES_MAX = 65_536
"""A host has some thousands; more are left out."""


def read(procfs: Path = Path("/proc")) -> dict[int, int]:
    """PID → parent's PID, in the namespace that the tree shows; those that end meanwhile are left out."""
    found: dict[int, int] = {}
    for folder in procfs.iterdir():
        if not folder.name.isdigit() or len(found) >= PROCESSES_MAX:
            continue
        with suppress(OSError):
            stat = parse_stat((folder / "stat").read_bytes())
            if stat is not None:
                found[stat.pid] = stat.ppid
    return found
