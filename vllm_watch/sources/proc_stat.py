"""Parse /proc/PID files. Source: proc(5); Linux fs/proc/array.c, kernel/cgroup/cgroup.c."""

from dataclasses import dataclass

KERNEL_THREAD = 0x00200000  # PF_KTHREAD in `stat`: a process cannot set it itself


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
