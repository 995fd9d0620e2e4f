"""Judges vLLM's own processes."""

from vllm_watch.signals.holders import orphans, roles
from vllm_watch.signals.holders.case import Case
from vllm_watch.signals.holders.records import ORPHANED_WORKER, STALE, VLLM, Judged
from vllm_watch.signals.holders.words import seconds, size
from vllm_watch.support.counts import cores

LAG_SECONDS = 20.0
"""For this long after the parent's death, GPU work may still be reported, because the driver's load
sample may be a poll old."""

SPINNING_FACTOR = 5.0
"""If no server answers, an orphan that keeps its GPU busy is stale after this many times the usual limit."""

GROWN_BYTES_MIN = 2**30
"""Growth below this is not mentioned. Graphs and workspaces of new shapes add some hundred MiB."""

STEADY_SECONDS = 1800.0
"""Growth is mentioned only if the engine was at least this old when first seen. A younger engine may be loading or warming up."""

_WORDS = {
    roles.SERVER: "vLLM's server, by its command line",
    roles.CORE: "a vLLM engine core, by its title",
    roles.WORKER: "a vLLM worker, by its title",
}


def orphan(case: Case) -> Judged | None:
    """Judge an engine core or worker that may have lost its server."""
    if case.role not in (roles.CORE, roles.WORKER):
        return None
    return orphaned(case, case.limits.orphan_seconds)


def orphaned(case: Case, patience_s: float) -> Judged | None:
    """Judge a worker of any program that may have lost its parent."""
    track, process = case.track, case.process
    text = orphans.sign(track, case.others, case.limits)
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
    if case.served and not case.placed and not orphans.is_superseded(process, case.others):
        return None
    evidence = [text, f"it has used no GPU time for {seconds(gpu_idle_s)}"]
    if gpu_idle_s < patience_s:
        evidence[-1] = "it keeps its GPU busy, although no server answers"
    if track.cpu_share is not None and track.cpu_share > 0.5:  # noqa: PLR2004 - half a core is not sleep
        evidence.append(f"it uses {cores(track.cpu_share)}")
    remedy = f"end it: vllm-watch gpus --reclaim {process.pid}, or kill {process.pid}, and kill -9 {process.pid} if it stays; no request can reach it"
    return Judged(
        verdict=STALE, reason=ORPHANED_WORKER, evidence=tuple(evidence), remedy=remedy, since_s=since_s
    )  # fmt: skip


def living(case: Case) -> Judged | None:
    """Judge a vLLM process that is not shown to be orphaned."""
    if case.role not in roles.VLLM_ROLES:
        return None
    evidence = [_WORDS[case.role]]
    server = next(filter(roles.is_vllm_command, case.process.ancestors or ()), None)
    if server is not None:
        evidence.append(f"its server lives: {server[:80]}")
    evidence += _grown(case)
    if case.process.state in ("T", "t"):
        evidence.append("it is stopped (a signal or a debugger)")
    return Judged(verdict=VLLM, evidence=tuple(evidence))


def _grown(case: Case) -> list[str]:
    track, process = case.track, case.process
    if None in (track.first_bytes, process.used_bytes, process.create_time):
        return []
    grown = (process.used_bytes or 0) - (track.first_bytes or 0)
    watched_s = track.last_s - track.first_s
    steady = case.t - watched_s - (process.create_time or 0.0) >= STEADY_SECONDS
    if grown < GROWN_BYTES_MIN or not steady:
        return []
    return [f"it grew by {size(grown)} in {seconds(watched_s)}, long after it was loaded"]
