"""Judges processes other than vLLM as active, waiting or forgotten."""

from vllm_watch.signals.holders import place, roles, vllm
from vllm_watch.signals.holders.case import Case
from vllm_watch.signals.holders.records import (
    ACTIVE,
    IDLE_NOTEBOOK,
    IDLE_PROCESS,
    STALE,
    UNKNOWN,
    Judged,
)
from vllm_watch.signals.holders.words import seconds


def stands_by(case: Case) -> Judged | None:
    """Judge the desktop and the MPS server. They are needed even while idle."""
    if case.role == roles.DISPLAY or (case.process.type == "graphics" and case.role is None):
        return Judged(verdict=ACTIVE, evidence=("it draws on a display",))
    if case.role == roles.MPS:
        return Judged(verdict=ACTIVE, evidence=("the MPS server, which other processes use",))
    return None


def pool_worker(case: Case) -> Judged | None:
    """Judge a worker of an unknown multiprocessing program."""
    if case.role != roles.POOL_WORKER:
        return None
    if case.track.idle_for_s() < case.limits.stopped_seconds:
        return None
    return vllm.orphaned(case, case.limits.stopped_seconds)


def stopped(case: Case) -> Judged | None:
    """Judge a process stopped by a signal."""
    stopped_s = case.at_s - max(case.track.state_s, case.track.idle_s)
    if case.process.state != "T" or stopped_s < case.limits.stopped_seconds:
        return None
    text = f"stopped (state T) for {seconds(stopped_s)}: it does nothing until it is continued"
    remedy = f"ask its user; continue it (kill -CONT {case.process.pid}) or end it (kill -9 {case.process.pid})"
    return Judged(
        verdict=STALE, reason=IDLE_PROCESS, evidence=(text,), remedy=remedy,
        since_s=max(case.track.state_s, case.track.idle_s),
    )  # fmt: skip


def notebook(case: Case) -> Judged | None:
    """Judge a notebook kernel."""
    if case.role != roles.NOTEBOOK:
        return None
    remedy = f"ask its user to shut the kernel down, or end it: kill {case.process.pid} (unsaved work is lost)"
    return _idle(case, case.limits.notebook_seconds, IDLE_NOTEBOOK, "a notebook's kernel", remedy)


def process(case: Case) -> Judged | None:
    """Judge a program that was left in a user's session."""
    debugged = case.process.state == "t"
    if debugged or not place.in_user_session(case.process.cgroup):
        return None
    if roles.may_serve(case.process):
        return None
    remedy = f"ask its user, or end it: kill {case.process.pid}"
    what = "started in a user's session, not as a service"
    return _idle(case, case.limits.process_seconds, IDLE_PROCESS, what, remedy)


def _idle(case: Case, limit_s: float, reason: str, what: str, remedy: str) -> Judged | None:
    track = case.track
    idle_s = track.idle_for_s()
    if not track.work_known or idle_s < limit_s:
        return None
    evidence = [what, f"no CPU or GPU work for {seconds(idle_s)}"]
    if not track.worked:
        evidence[-1] += " (since it was first seen)"
    return Judged(
        verdict=STALE, reason=reason, evidence=tuple(evidence), remedy=remedy, since_s=track.idle_s
    )


def works(case: Case) -> Judged:
    """Judge a process by its recent work."""
    track = case.track
    idle_s = track.idle_for_s()
    limit_s = (
        case.limits.notebook_seconds if case.role == roles.NOTEBOOK else case.limits.process_seconds
    )
    if track.worked and idle_s < limit_s:
        last = "it works" if track.idle_s == case.at_s else f"it last worked {seconds(idle_s)} ago"
        return Judged(verdict=ACTIVE, evidence=(last,))
    text = f"no work was seen in {seconds(idle_s)}"
    if not track.work_known:
        text = "its CPU and GPU work cannot be read"
    elif roles.may_serve(case.process):
        text += "; it seems to be a server, which may wait for requests"
    elif idle_s < limit_s:
        text += f"; that is significant only after {seconds(limit_s)}"
    return Judged(verdict=UNKNOWN, evidence=(text,))
