"""Judges holders that are dead, stuck, hidden, or without their container."""

from vllm_watch.signals.holders import place, roles
from vllm_watch.signals.holders.case import Case
from vllm_watch.signals.holders.records import (
    ACTIVE,
    CONTAINER_GONE,
    STALE,
    UNKNOWN,
    ZOMBIE_CONTEXT,
    Judged,
)
from vllm_watch.signals.holders.track import DEAD_STATES
from vllm_watch.signals.holders.words import seconds

_REMEDY = (
    "look in the kernel's log (dmesg) for NVRM and Xid, stop the other processes on this GPU, "
    "then reset the GPU (nvidia-smi --gpu-reset) or reboot"
)
_PARENT_REMEDY = (
    "end its parent, process {ppid}, which has not reaped it; if the memory stays: " + _REMEDY
)


def unseen(case: Case) -> Judged | None:
    """Judge a process that /proc does not show."""
    process = case.process
    if any(each is not None for each in (process.name, process.cmdline, process.state)):
        return None
    text = "/proc does not show this process: it belongs to another PID namespace, or is hidden from this user"
    remedy = (
        "run vllm-watch on the host, with hostPID, or with the host's /proc (--procfs), to name it"
    )
    return Judged(verdict=UNKNOWN, evidence=(text,), remedy=remedy)


def dead(case: Case) -> Judged | None:
    """Judge an ended process that the driver still lists with memory."""
    process, track = case.process, case.track
    if process.state not in DEAD_STATES:
        return None
    gone = process.state == "X"
    if track.idle_s > track.state_s and not gone:
        text = "its first thread has ended, but others still work"
        return Judged(verdict=ACTIVE, evidence=(text,))
    dead_s = case.at_s - track.state_s
    what = "the process has been gone" if gone else "the process has been a zombie"
    text = f"{what} for at least {seconds(dead_s)}, and the driver still counts its memory as held"
    if dead_s < case.limits.dead_seconds:
        return Judged(verdict=UNKNOWN, evidence=(text, "the driver may be freeing it"))
    child = not gone and process.ppid not in (None, 0, 1)
    remedy = _PARENT_REMEDY.format(ppid=process.ppid) if child else _REMEDY
    return _stale(ZOMBIE_CONTEXT, (text,), remedy, track.state_s)


def stuck(case: Case) -> Judged | None:
    """Judge a process in uninterruptible sleep (state D)."""
    track = case.track
    if case.process.state != "D":
        return None
    since_s = max(track.state_s, track.idle_s, track.gpu_idle_s)
    stuck_s = case.at_s - since_s
    if stuck_s < case.limits.stuck_seconds:
        return None
    text = (
        f"stuck in the kernel (state D) for {seconds(stuck_s)} without any CPU or GPU time: "
        "it cannot be killed, and keeps its memory"
    )
    return _stale(ZOMBIE_CONTEXT, (text,), _REMEDY, since_s)


def container_gone(case: Case) -> Judged | None:
    """Judge a process that outlived its container."""
    track, process = case.track, case.process
    if not place.is_deleted(process.cgroup):
        return None
    idle_s = track.gpu_idle_for_s()
    if idle_s < case.limits.orphan_seconds:
        return None
    text = f"its {place.describe(process.cgroup) or 'control group'} has been removed, but it still runs"
    if case.role in roles.VLLM_ROLES:
        text += "; no server can reach it"
    remedy = f"end it: vllm-watch gpus --reclaim {process.pid}, or kill {process.pid}, and kill -9 {process.pid} if it stays"
    return _stale(CONTAINER_GONE, (text,), remedy, track.gpu_idle_s)


def _stale(reason: str, evidence: tuple[str, ...], remedy: str, since_s: float) -> Judged:
    return Judged(
        verdict=STALE, reason=reason, evidence=evidence, remedy=remedy, since_s=since_s
    )  # fmt: skip
