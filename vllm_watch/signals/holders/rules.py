"""The rules that judge one holder of GPU memory at one poll.

A healthy core may be a child of process 1, and an idle engine computes nothing for hours, so the
parent's death must be proved. Source: vLLM #55510, #42017, #34643, #43060.

Engines map memory of lenders, and end if the lender ends. Examples are vLLM's weight daemon,
NVIDIA's GPU Memory Service, and the KV servers of LMCache and Mooncake. Neither /proc nor NVML shows
such mappings, so command lines are the only sign. Source: vLLM #54921, #56680, #57577;
ai-dynamo/dynamo #6818.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.samples.record import record
from vllm_watch.signals.holders import records, roles
from vllm_watch.signals.holders.records import Judged, Limits
from vllm_watch.signals.holders.track import (
    DEAD_STATES,
    Track,
    in_user_session,
    is_deleted,
    place_of,
)
from vllm_watch.signals.loading import SAME_START_SECONDS
from vllm_watch.support.quantities import cores, seconds


@record
class Case:
    """One holder of GPU memory, with its history."""

    t: float
    at_s: float
    track: Track
    others: Sequence[ProcessSample]  # vLLM processes on the host's GPUs
    served: bool | None  # a vLLM of this host answers
    placed: bool  # every answering vLLM has a known engine on the host's GPUs
    limits: Limits
    borrowed_here: bool  # an engine on this GPU maps another process's memory

    @property
    def process(self) -> ProcessSample:
        return self.track.process

    @property
    def role(self) -> str | None:
        return self.track.role


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
    return Judged(verdict=records.UNKNOWN, evidence=(text,), remedy=remedy)


def dead(case: Case) -> Judged | None:
    """Judge an ended process that the driver still lists with memory."""
    process, track = case.process, case.track
    if process.state not in DEAD_STATES:
        return None
    gone = process.state == "X"
    if track.idle_s > track.state_s and not gone:
        text = "its first thread has ended, but others still work"
        return Judged(verdict=records.ACTIVE, evidence=(text,))
    dead_s = case.at_s - track.state_s
    what = "the process has been gone" if gone else "the process has been a zombie"
    text = f"{what} for at least {seconds(dead_s)}, and the driver still counts its memory as held"
    if dead_s < case.limits.dead_seconds:
        return Judged(verdict=records.UNKNOWN, evidence=(text, "the driver may be freeing it"))
    child = not gone and process.ppid not in (None, 0, 1)
    remedy = _PARENT_REMEDY.format(ppid=process.ppid) if child else _REMEDY
    return _stale(records.ZOMBIE_CONTEXT, (text,), remedy, track.state_s)


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
    return _stale(records.ZOMBIE_CONTEXT, (text,), _REMEDY, since_s)


def container_gone(case: Case) -> Judged | None:
    """Judge a process that outlived its container."""
    track, process = case.track, case.process
    if not is_deleted(process.cgroup):
        return None
    idle_s = track.gpu_idle_for_s()
    if idle_s < case.limits.orphan_seconds:
        return None
    text = f"its {place_of(process.cgroup) or 'control group'} has been removed, but it still runs"
    if case.role in roles.VLLM_ROLES:
        text += "; no server can reach it"
    remedy = f"end it: vllm-watch gpus --reclaim {process.pid}, or kill {process.pid}, and kill -9 {process.pid} if it stays"
    return _stale(records.CONTAINER_GONE, (text,), remedy, track.gpu_idle_s)


def _stale(reason: str, evidence: tuple[str, ...], remedy: str, since_s: float) -> Judged:
    return Judged(
        verdict=records.STALE, reason=reason, evidence=evidence, remedy=remedy, since_s=since_s
    )  # fmt: skip


_BORROWS = re.compile(r"--load[-_]format[= ](ipc_cache|gms)\b|--gms-shadow-mode\b")

_LENDS = "it holds GPU memory that engines map: ending it ends all of these engines"
_MAY_LEND = "an engine on this GPU maps memory of another process (--load-format ipc_cache or gms), which may be this one"
_LENDER_REMEDY = "stop the engines that map its memory first, then stop it where it was started"


def borrows(processes: Iterable[ProcessSample]) -> bool:
    """Return True if an engine among these maps another process's memory."""
    return any(
        _borrows(command)
        for process in processes
        for command in (" ".join(process.cmdline or ()), *(process.ancestors or ()))
    )


@lru_cache(roles.COMMANDS_KEPT)
def _borrows(command: str) -> bool:
    return bool(_BORROWS.search(command))


def lends(case: Case) -> Judged | None:
    """Judge a process that may hold weights or KV for engines. It is never stale."""
    if case.role == roles.LENDER:
        return Judged(verdict=records.ACTIVE, evidence=(_LENDS,), remedy=_LENDER_REMEDY)
    if case.borrowed_here and case.role in (None, roles.POOL_WORKER):
        return Judged(verdict=records.UNKNOWN, evidence=(_MAY_LEND,), remedy=_LENDER_REMEDY)
    return None


SUCCESSOR_FACTOR = 5.0
"""A core with unknown ancestors is reported after this many times `orphan_seconds` without GPU work, if it has a younger successor."""


def orphan_sign(track: Track, others: Sequence[ProcessSample], limits: Limits) -> str | None:
    """Return the evidence that the process's server is gone, or None. `others` are the vLLM processes on the host's GPUs."""
    process = track.process
    if process.ancestors is not None and any(map(roles.is_vllm_command, process.ancestors)):
        return None
    if track.reparented_s is not None:
        return (
            f"its parent, process {track.ppid}, died; it is now a child of process {process.ppid}"
        )
    if (text := _by_ancestors(process)) is not None:
        return text
    younger = _successor(process, others)
    if younger is None or track.gpu_idle_for_s() < SUCCESSOR_FACTOR * limits.orphan_seconds:
        return None
    return (
        f"it is a child of process 1, while process {younger.pid} of the same unit or container, "
        "started later, has a server of its own"
    )


def is_superseded(process: ProcessSample, others: Sequence[ProcessSample]) -> bool:
    """Return True if a younger engine with another parent may have replaced this one."""
    return any(
        other.pid != process.pid
        and other.ppid != process.ppid
        and _is_younger(other, process)
        for other in others
    )  # fmt: skip


def _by_ancestors(process: ProcessSample) -> str | None:
    ancestors = process.ancestors
    if ancestors is None:
        return None
    parts = (roles.CORE, roles.WORKER)
    outside = next((each for each in ancestors if roles.of_command(each) not in parts), None)
    if outside is None:
        return "it has no parent process left" if not ancestors else None
    if roles.is_reaper(outside):
        return f"its server is gone: it now runs under “{outside[:60]}”, which does not start engine cores"
    if process.left_behind:
        return f"the program that started it is gone; it now runs under “{outside[:60]}”"
    return None


def _successor(process: ProcessSample, others: Sequence[ProcessSample]) -> ProcessSample | None:
    if process.ppid != 1 or process.cgroup is None or process.ancestors is not None:
        return None
    for other in others:
        alike = other.cgroup == process.cgroup and roles.role(other) == roles.role(process)
        if alike and other.ppid not in (None, 1) and _is_younger(other, process):
            return other
    return None


def _is_younger(other: ProcessSample, process: ProcessSample) -> bool:
    if other.create_time is None or process.create_time is None:
        return False
    return other.create_time > process.create_time + SAME_START_SECONDS


LAG_SECONDS = 20.0
"""For this long after the parent's death, GPU work may still be reported, because the driver's load
sample may be a poll old."""

SPINNING_FACTOR = 5.0
"""If no server answers, an orphan that keeps its GPU busy is stale after this many times the usual limit."""

_WORDS = {
    roles.SERVER: "vLLM's server, by its command line",
    roles.CORE: "a vLLM engine core, by its title",
    roles.WORKER: "a vLLM worker, by its title",
}


def orphan(case: Case) -> Judged | None:
    """Judge an engine core or worker that may have lost its server."""
    if case.role not in (roles.CORE, roles.WORKER):
        return None
    return _orphaned(case, case.limits.orphan_seconds)


def _orphaned(case: Case, patience_s: float) -> Judged | None:
    """Judge a worker of any program that may have lost its parent."""
    track, process = case.track, case.process
    text = orphan_sign(track, case.others, case.limits)
    if text is None:
        track.orphaned_s = None
        return None
    if track.orphaned_s is None:
        track.orphaned_s = case.at_s if track.reparented_s is None else track.reparented_s
    since_s = track.orphaned_s
    gpu_idle_s = track.gpu_idle_for_s()
    # An API server can outlive its launcher, so later GPU work may serve a client.
    idle = (
        min(gpu_idle_s, case.at_s - since_s) >= patience_s
        and track.gpu_idle_s <= since_s + LAG_SECONDS
    )
    spins = case.served is False and case.at_s - since_s >= SPINNING_FACTOR * patience_s
    if not idle and not spins:
        return None
    # A server that answers may own this engine, unless all servers have other engines or a younger
    # engine runs.
    if case.served and not case.placed and not is_superseded(process, case.others):
        return None
    evidence = [text, f"it has used no GPU time for {seconds(gpu_idle_s)}"]
    if gpu_idle_s < patience_s:
        evidence[-1] = "it keeps its GPU busy, although no server answers"
    if track.cpu_share is not None and track.cpu_share > 0.5:  # noqa: PLR2004 - half a core is not sleep
        evidence.append(f"it uses {cores(track.cpu_share)}")
    remedy = f"end it: vllm-watch gpus --reclaim {process.pid}, or kill {process.pid}, and kill -9 {process.pid} if it stays; no request can reach it"
    return _stale(records.ORPHANED_WORKER, tuple(evidence), remedy, since_s)


def living(case: Case) -> Judged | None:
    """Judge a vLLM process that is not shown to be orphaned."""
    if case.role not in roles.VLLM_ROLES:
        return None
    evidence = [_WORDS[case.role]]
    server = next(filter(roles.is_vllm_command, case.process.ancestors or ()), None)
    if server is not None:
        evidence.append(f"its server lives: {server[:80]}")
    if case.process.state in ("T", "t"):
        evidence.append("it is stopped (a signal or a debugger)")
    return Judged(verdict=records.VLLM, evidence=tuple(evidence))


def stands_by(case: Case) -> Judged | None:
    """Judge the desktop and the MPS server. They are needed even while idle."""
    if case.role == roles.DISPLAY or (case.process.type == "graphics" and case.role is None):
        return Judged(verdict=records.ACTIVE, evidence=("it draws on a display",))
    if case.role == roles.MPS:
        return Judged(
            verdict=records.ACTIVE, evidence=("the MPS server, which other processes use",)
        )
    return None


def pool_worker(case: Case) -> Judged | None:
    """Judge a worker of an unknown multiprocessing program."""
    if case.role != roles.POOL_WORKER:
        return None
    if case.track.idle_for_s() < case.limits.stopped_seconds:
        return None
    return _orphaned(case, case.limits.stopped_seconds)


def stopped(case: Case) -> Judged | None:
    """Judge a process stopped by a signal."""
    stopped_s = case.at_s - max(case.track.state_s, case.track.idle_s)
    if case.process.state != "T" or stopped_s < case.limits.stopped_seconds:
        return None
    text = f"stopped (state T) for {seconds(stopped_s)}: it does nothing until it is continued"
    remedy = f"ask its user; continue it (kill -CONT {case.process.pid}) or end it (kill -9 {case.process.pid})"
    return _stale(records.IDLE_PROCESS, (text,), remedy, max(case.track.state_s, case.track.idle_s))


def notebook(case: Case) -> Judged | None:
    """Judge a notebook kernel."""
    if case.role != roles.NOTEBOOK:
        return None
    remedy = f"ask its user to shut the kernel down, or end it: kill {case.process.pid} (unsaved work is lost)"
    return _idle(
        case, case.limits.notebook_seconds, records.IDLE_NOTEBOOK, "a notebook's kernel", remedy
    )


def process(case: Case) -> Judged | None:
    """Judge a program that was left in a user's session."""
    debugged = case.process.state == "t"
    if debugged or not in_user_session(case.process.cgroup):
        return None
    if roles.may_serve(case.process):
        return None
    remedy = f"ask its user, or end it: kill {case.process.pid}"
    what = "started in a user's session, not as a service"
    return _idle(case, case.limits.process_seconds, records.IDLE_PROCESS, what, remedy)


def _idle(case: Case, limit_s: float, reason: str, what: str, remedy: str) -> Judged | None:
    track = case.track
    idle_s = track.idle_for_s()
    if not track.work_known or idle_s < limit_s:
        return None
    evidence = [what, f"no CPU or GPU work for {seconds(idle_s)}"]
    if not track.worked:
        evidence[-1] += " (since it was first seen)"
    return _stale(reason, tuple(evidence), remedy, track.idle_s)


def works(case: Case) -> Judged:
    """Judge a process by its recent work."""
    track = case.track
    idle_s = track.idle_for_s()
    limit_s = (
        case.limits.notebook_seconds if case.role == roles.NOTEBOOK else case.limits.process_seconds
    )
    if track.worked and idle_s < limit_s:
        last = "it works" if track.idle_s == case.at_s else f"it last worked {seconds(idle_s)} ago"
        return Judged(verdict=records.ACTIVE, evidence=(last,))
    text = f"no work was seen in {seconds(idle_s)}"
    if not track.work_known:
        text = "its CPU and GPU work cannot be read"
    elif roles.may_serve(case.process):
        text += "; it seems to be a server, which may wait for requests"
    elif idle_s < limit_s:
        text += f"; that is significant only after {seconds(limit_s)}"
    return Judged(verdict=records.UNKNOWN, evidence=(text,))


_RULES: tuple[Callable[[Case], Judged | None], ...] = (
    unseen, dead, lends, container_gone,
    orphan, living,
    stuck,
    stands_by, pool_worker, stopped, notebook, process,
    works,
)  # fmt: skip


def judged(case: Case) -> Judged:
    """Judge a holder by the first rule that applies. The last rule always does."""
    return next(filter(None, (rule(case) for rule in _RULES)))
