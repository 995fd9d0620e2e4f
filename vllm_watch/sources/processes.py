"""Read facts of a process from /proc.

Facts that rarely change are cached as soon as two reads agree. They are read again when the name
changes, because exec and setproctitle change the command line, too. Source: proc(5); Linux
fs/proc/array.c, kernel/cgroup/cgroup.c.
"""

import os
import threading
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

KERNEL_THREAD = 0x00200000  # PF_KTHREAD in `stat`: a process cannot set it itself

# `status` is about 1.5 KB; a cgroup path is at most 4 KB per line.
SMALL_FILE_BYTES_MAX = 16 * 1024
# The kernel allows megabytes of arguments; `vllm serve` uses about 1 KB.
CMDLINE_BYTES_MAX = 16 * 1024
# An engine opens its GPUs among its first few hundred descriptors.
FDS_MAX = 4096
GPU_DEVICE = "/dev/nvidia"
LISTED_MAX = 65_536

FRESH_SECONDS = 1.0
"""A listing is cached for this many seconds. A server takes longer to start, so a server that answers is in the listing."""

_GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Stat:
    """Selected fields of /proc/PID/stat."""

    pid: int
    name: str
    state: str
    ppid: int
    pgid: int
    flags: int
    cpu_ticks: int  # user + system
    starttime_ticks: int  # since boot


@dataclass(frozen=True, slots=True)
class Status:
    """Selected fields of /proc/PID/status."""

    uid: int | None  # real
    # NSpid; kernels before 4.1 lack it.
    pids: tuple[int, ...] | None


def parse_stat(text: bytes) -> Stat | None:
    """Return None if the process was just reaped.

    A process name may contain spaces and parentheses. The name ends at the last closing
    parenthesis, because only numbers follow.
    """
    opening, closing = text.find(b"("), text.rfind(b")")
    fields = text[closing + 1 :].split()
    try:
        return Stat(
            pid=int(text[:opening]),
            name=text[opening + 1 : closing].decode(errors="replace"),
            state=fields[0].decode(),
            ppid=int(fields[1]),
            pgid=int(fields[2]),
            flags=int(fields[6]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            starttime_ticks=int(fields[19]),
        )
    except (ValueError, IndexError):
        return None


def parse_cmdline(text: bytes) -> tuple[str, ...]:
    """Return () for zombies and kernel threads. A process title leaves trailing NULs, which are dropped."""
    stripped = text.rstrip(b"\0")
    return (
        tuple(part.decode(errors="replace") for part in stripped.split(b"\0")) if stripped else ()
    )


def parse_cgroup(text: bytes) -> str | None:
    """Return the longest path, which names the container or pod. cgroup v1 has a path per controller."""
    paths = [
        line.split(":", 2)[2]
        for line in text.decode(errors="replace").splitlines()
        if line.count(":") > 1
    ]
    return max(paths, key=len, default=None)


def parse_status(text: bytes) -> Status:
    """Return the fields; None for missing or malformed ones."""
    lines = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
    uid, pids = _numbers(lines.get(b"Uid")), _numbers(lines.get(b"NSpid"))
    return Status(uid=uid[0] if uid else None, pids=pids)


def _numbers(text: bytes | None) -> tuple[int, ...] | None:
    try:
        return tuple(int(word) for word in (text or b"").split()) or None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """Facts of a process. `None` is unknown. A zombie's command line is ()."""

    pid: int  # in the tree's namespace
    name: str | None = None  # comm: at most 15 bytes
    cmdline: tuple[str, ...] | None = None
    ppid: int | None = None
    pgid: int | None = None  # PID of the process group's leader
    state: str | None = None  # the letter of /proc/PID/stat; X also if proven to be gone
    create_time: float | None = None  # Unix seconds
    start_ticks: int | None = None  # since boot
    cpu_seconds: float | None = None  # user + system
    cgroup: str | None = None  # most specific path, in our cgroup namespace
    uid: int | None = None  # real user, in our user namespace
    pids: tuple[int, ...] | None = None  # NSpid: PIDs from the tree's namespace inwards
    pid_local: int | None = None  # in our own namespace, if proven
    ancestors: tuple[str, ...] | None = None
    left_behind: bool | None = None  # of a worker, see samples.process

    @property
    def title(self) -> str:
        """Return the first argument, which setproctitle replaces, or the name."""
        return (self.cmdline or (self.name or "",))[0]

    @property
    def command(self) -> str:
        """Return the command line as one text, or ""."""
        return " ".join(self.cmdline or ())

    @property
    def has_ended(self) -> bool:
        """Return True for a zombie, and for a process proven to be gone."""
        return self.state in ("Z", "X")


@dataclass(frozen=True, slots=True)
class _Static:
    starttime_ticks: int
    name: str
    cmdline: tuple[str, ...] | None
    cgroup: str | None
    uid: int | None
    pids: tuple[int, ...] | None
    stable: bool  # two reads agreed; during exec they differ


class ProcReader:
    """Reads one procfs tree: our own, or the host's. Caches static facts."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self.procfs = procfs
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._boot_time: float | None = None
        self._static: dict[int, _Static] = {}
        self._gpu_open: dict[int, int] = {}  # PID → start, if seen with a GPU open

    def read(self, pid: int) -> ProcessFacts | None:
        """Return None if the process is gone, hidden (hidepid) or unreadable."""
        try:
            folder = os.open(self.procfs / str(pid), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._forget(pid)
            return None
        # An open folder never shows a later process with the same PID.
        try:
            return self._read(pid, folder)
        except (*_GONE, PermissionError):
            self._forget(pid)
            return None
        finally:
            os.close(folder)

    def forget_others(self, pids: Collection[int]) -> None:
        for pid in self._static.keys() - set(pids):
            self._forget(pid)

    def sees_all(self) -> bool:
        """Return False if hidepid hides process 1. A missing PID may then be hidden."""
        try:
            return bool(read_file(self.procfs / "1" / "stat"))
        except OSError:
            return False

    def has_gpu_open(self, pid: int) -> bool | None:
        """Return None if the process's descriptors are unreadable."""
        static = self._static.get(pid)
        if static and self._gpu_open.get(pid) == static.starttime_ticks:
            return True  # a holder of VRAM keeps its GPU open until it ends
        try:
            with os.scandir(self.procfs / str(pid) / "fd") as entries:
                found = any(_is_gpu(entry.path) for entry in islice(entries, FDS_MAX))
        except OSError:
            return None
        if static and found:
            self._gpu_open[pid] = static.starttime_ticks
        return found

    def _read(self, pid: int, folder: int) -> ProcessFacts:
        stat = parse_stat(read_file("stat", folder))
        if stat is None:
            raise ProcessLookupError(pid)
        known = self._static.get(pid)
        if known is None or not known.stable or not _is_of(known, stat):
            known = self._static[pid] = _read_static(folder, stat, known)
        boot_time = self._boot_seconds()
        return ProcessFacts(
            pid=pid, name=stat.name, cmdline=known.cmdline, ppid=stat.ppid, pgid=stat.pgid, state=stat.state,
            create_time=None if boot_time is None
            else boot_time + stat.starttime_ticks / self._ticks_per_second,
            start_ticks=stat.starttime_ticks,
            cpu_seconds=stat.cpu_ticks / self._ticks_per_second,
            cgroup=known.cgroup, uid=known.uid, pids=known.pids,
        )  # fmt: skip

    def _boot_seconds(self) -> float | None:
        # Read the boot time once. It changes with the wall clock, and all processes would then seem replaced.
        if self._boot_time is None:
            try:
                with (self.procfs / "stat").open("rb") as lines:
                    found = [line for line in lines if line.startswith(b"btime ")]
                self._boot_time = float(found[0].split()[1]) if found else None
            except (OSError, ValueError, IndexError):
                return None
        return self._boot_time

    def _forget(self, pid: int) -> None:
        self._static.pop(pid, None)
        self._gpu_open.pop(pid, None)


def _is_of(known: _Static, stat: Stat) -> bool:
    return (known.starttime_ticks, known.name) == (stat.starttime_ticks, stat.name)


def _read_static(folder: int, stat: Stat, known: _Static | None) -> _Static:
    cmdline = _read_optional("cmdline", folder, CMDLINE_BYTES_MAX)
    cgroup = _read_optional("cgroup", folder)
    status = parse_status(_read_optional("status", folder) or b"")
    arguments = None if cmdline is None else parse_cmdline(cmdline)
    if stat.state == "Z" and known and known.starttime_ticks == stat.starttime_ticks:
        arguments = known.cmdline  # a zombie has lost them
    again = known is not None and _is_of(known, stat) and known.cmdline == arguments
    return _Static(
        starttime_ticks=stat.starttime_ticks,
        name=stat.name,
        cmdline=arguments,
        cgroup=None if cgroup is None else parse_cgroup(cgroup),
        uid=status.uid,
        pids=status.pids,
        stable=again and arguments != (),
    )


def _read_optional(name: str, folder: int, bytes_max: int = SMALL_FILE_BYTES_MAX) -> bytes | None:
    try:
        return read_file(name, folder, bytes_max)
    except _GONE:
        raise
    except OSError:
        return None


def read_file(
    path: str | Path, folder: int | None = None, bytes_max: int = SMALL_FILE_BYTES_MAX
) -> bytes:
    """Read a small file of the kernel's, by its path from `folder` if that is given. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(descriptor, bytes_max)
    finally:
        os.close(descriptor)


def _is_gpu(path: str) -> bool:
    try:
        return os.readlink(path).startswith(GPU_DEVICE)
    except OSError:
        return False


class ProcessListing:
    """Lists one procfs tree; usable from any thread."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._reader = ProcReader(procfs)
        self._lock = threading.Lock()
        self._listed: dict[int, ProcessFacts] = {}
        self._listed_s = float("-inf")

    def processes(self, at_s: float) -> dict[int, ProcessFacts]:
        """Return PID → process; empty if /proc is unreadable. `at_s` is the monotonic time."""
        with self._lock:
            if at_s - self._listed_s > FRESH_SECONDS:
                self._listed, self._listed_s = self._list(), at_s
            return self._listed

    def _list(self) -> dict[int, ProcessFacts]:
        try:
            names = (name for name in os.listdir(self._reader.procfs) if name.isdigit())
        except OSError:
            return {}
        read = ((pid, self._reader.read(pid)) for pid in map(int, islice(names, LISTED_MAX)))
        found = {pid: facts for pid, facts in read if facts is not None}
        self._reader.forget_others(())  # keep no cache for such rare listings
        return found
