"""Map NVML's PIDs to processes without guessing, because a wrong process could be killed. For a
worker, find out if the program that started it is still alive.

The driver's version decides to which PID namespace NVML's PIDs belong:
- up to R530: the host's namespace, even if the caller is inside a container;
- 535.0 to 535.112: the numbering differs by branch, so nothing is assumed;
- from 535.113: the caller's namespace; processes outside it are left out. In a container, memory
  is unknown before driver 565 and utilization before 570, because the driver reports both with the
  host's PIDs.
Source: NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/gpu_rmapi.c (_gpuConvertPid,
_gpuMatchClientPid) and gpu/perf/kern_perf_ctrl.c (osFindNsPid).

A PID in /proc is valid only in the PID namespace of that procfs tree:
- /proc/self/ns/pid is *our* namespace in any tree; the initial one (the host's) has a fixed inode.
- NSpid in /proc/self/status lists our PIDs, from the tree's namespace to our own. If /proc/self is
  missing, we are outside the tree's namespace.
- kthreadd is process 2 of the initial namespace only; a container cannot fake its kernel thread flag.
Source: Linux include/linux/proc_ns.h, fs/proc/array.c, pid_namespaces(7).
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_watch.sources.processes import (
    KERNEL_THREAD,
    ProcessFacts,
    ProcReader,
    parse_stat,
    parse_status,
)

ANCESTORS_MAX = 12
"""At most this many ancestors are read. A long chain, from the engine's core to systemd, has seven."""

ARGUMENTS_MAX = 6
"""At most this many arguments of a command are read. The program is the fourth argument in `python -u -m vllm.entrypoints.openai.api_server`."""

_TITLES = ("vllm", "worker", "multiprocessing")

Kin = tuple[tuple[str, ...] | None, bool | None]  # the ancestors' commands, and True if orphaned

_HOSTS_BEFORE = (535,)
_OURS_FROM = (535, 113)
_MEMORY_TRANSLATED_FROM = (565,)
_UTILIZATION_TRANSLATED_FROM = (570,)


class Ancestry:
    """Finds the ancestors of a process. If one cannot be read, all are unknown."""

    def __init__(self, processes: ProcReader) -> None:
        self._processes = processes
        self._read: dict[int, ProcessFacts | None] = {}
        self._chains: dict[int, tuple[str, ...] | None] = {}

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(pid for pid, facts in self._read.items() if facts)

    def begin(self) -> None:
        self._read.clear()
        self._chains.clear()

    def of(self, facts: ProcessFacts) -> Kin:
        if not is_worker(facts) or not facts.ppid:
            return None, None
        if facts.ppid not in self._chains:
            self._chains[facts.ppid] = self._chain(facts.ppid)
        chain = self._chains[facts.ppid]
        if chain is None:
            return None, None
        return chain, self._left_behind(facts)

    def _chain(self, pid: int | None) -> tuple[str, ...] | None:
        commands: list[str] = []
        while pid and len(commands) < ANCESTORS_MAX:
            facts = self._facts(pid)
            if facts is None:
                return None
            commands.append(command(facts))
            pid = facts.ppid
        return tuple(commands)

    def _left_behind(self, facts: ProcessFacts) -> bool | None:
        parent = self._facts(facts.ppid or 0)
        for _ in range(ANCESTORS_MAX):
            if parent is None or not parent.title.startswith("VLLM::"):  # vLLM sets such titles
                break
            facts, parent = parent, self._facts(parent.ppid or 0)
        if parent is None or not facts.pgid:  # 0: the group is in another namespace
            return None
        if facts.pgid in (facts.pid, parent.pgid):
            return False
        leader = self._facts(facts.pgid)
        return leader is None or leader.has_ended  # it no longer supervises its children

    def _facts(self, pid: int) -> ProcessFacts | None:
        if pid not in self._read:
            self._read[pid] = self._processes.read(pid)
        return self._read[pid]


def is_worker(facts: ProcessFacts) -> bool:
    """Return True if this may be a worker."""
    text = f"{facts.name or ''} {' '.join((facts.cmdline or ())[:ARGUMENTS_MAX])}".lower()
    return any(title in text for title in _TITLES)


def command(facts: ProcessFacts) -> str:
    """Return the command without its options, which may hold secrets."""
    words = []
    for word in (facts.cmdline or ())[:ARGUMENTS_MAX]:
        if word.startswith("--"):
            break
        words.append(word[:200])
    return " ".join(words) or facts.name or ""


class GpuPids:
    """Maps PIDs for one driver version and one PID namespace of the watcher."""

    def __init__(self, processes: ProcReader, own_procfs: Path = Path("/proc")) -> None:
        """`processes` reads the host's /proc if it is mounted; `own_procfs` is the watcher's /proc."""
        self._own = processes if processes.procfs == own_procfs else ProcReader(own_procfs)
        self._readers = (processes, self._own) if processes is not self._own else (processes,)
        self._namespaces = {reader: of_tree(reader.procfs) for reader in self._readers}
        self._own_inside = not we_are_initial(own_procfs)
        self._host = next((r for r in self._readers if self._namespaces[r].initial), None)
        self._host_sees_all = self._host is not None and self._host.sees_all()
        self._driver: tuple[int, ...] | None = None
        self._kin = {reader: Ancestry(reader) for reader in self._readers}

    def set_driver(self, version: str | None) -> None:
        """Set the driver's version ("580.65.06"). Without it, PIDs in a container stay unknown."""
        match = re.match(r"(\d+)\.(\d+)", version or "")
        self._driver = (int(match[1]), int(match[2])) if match else None

    @property
    def numbering(self) -> str | None:
        """Return the namespace of NVML's PIDs: "host", "ours", or None if unknown."""
        if not self._own_inside:
            return "host"
        if self._driver is None or _HOSTS_BEFORE <= self._driver < _OURS_FROM:
            return None
        return "host" if self._driver < _HOSTS_BEFORE else "ours"

    @property
    def memory_is_theirs(self) -> bool:
        """Return True if the memory that NVML reports with a PID belongs to that process."""
        return self._are_theirs(_MEMORY_TRANSLATED_FROM)

    @property
    def all_are_listed(self) -> bool | None:
        """Return True if NVML lists the processes of all containers, or None if unknown."""
        numbering = self.numbering
        return None if numbering is None else numbering == "host"

    @property
    def utilization_is_theirs(self) -> bool:
        """Return True if utilization samples carry the same PIDs as the process lists."""
        return self._are_theirs(_UTILIZATION_TRANSLATED_FROM)

    def facts(self, pid: int) -> ProcessFacts | None:
        """Return the process's facts, with state X if it has ended, or None if unknown."""
        if self.numbering == "host":
            return self._on_host(pid)
        if self.numbering == "ours":
            return self._of_ours(pid)
        return None

    def forget_others(self, pids: Collection[int]) -> None:
        for reader in self._readers:
            kin = self._kin[reader]
            reader.forget_others({*pids, *kin.pids})
            kin.begin()

    def _are_theirs(self, translated_from: tuple[int, ...]) -> bool:
        if not self._own_inside or self._driver is None:
            return not self._own_inside
        return not _HOSTS_BEFORE <= self._driver < translated_from

    def _on_host(self, pid: int) -> ProcessFacts | None:
        if self._host is None:
            return None
        facts = self._host.read(pid)
        if facts is None:
            return ProcessFacts(pid=pid, state="X") if self._host_sees_all else None
        return self._with_local(facts, self._kin[self._host].of(facts))

    def _of_ours(self, pid: int) -> ProcessFacts | None:
        # The version does not prove the numbering, so the process must have the GPU open.
        if self._namespaces[self._own].levels_above_ours != 0:
            return None
        facts = self._own.read(pid)
        if facts is None or not self._own.has_gpu_open(pid):
            return None
        return _with(facts, self._kin[self._own].of(facts), pid)

    def _with_local(self, facts: ProcessFacts, kin: Kin) -> ProcessFacts:
        level = self._namespaces[self._host].levels_above_ours if self._host else None
        if level == 0:
            return _with(facts, kin, facts.pid)
        if level is None or facts.pids is None or len(facts.pids) <= level:
            return _with(facts, kin, None)
        local = self._own.read(facts.pids[level])
        same = local is not None and _identity(local) == _identity(facts)
        return _with(facts, kin, facts.pids[level] if same else None)


def _with(facts: ProcessFacts, kin: Kin, pid_local: int | None) -> ProcessFacts:
    ancestors, left_behind = kin
    return replace(facts, pid_local=pid_local, ancestors=ancestors, left_behind=left_behind)


def _identity(facts: ProcessFacts) -> tuple[object, ...]:
    return facts.start_ticks, facts.name, facts.cgroup, facts.cmdline


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
