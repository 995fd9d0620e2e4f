"""Which incidents are one problem: what is the effect of what, and what stands beside what.

A kind that is not named here is a problem of its own: it explains nothing away, and the state of its engine stays.
"""

from collections.abc import Iterable

from vllm_watch.incidents.incident import RECOVERING, Incident, Key

STATE_OF = {
    "engine_down": "down", "engine_stalled": "stalled", "engine_failing": "failing", "throughput_collapse": "collapsed", "overload": "overloaded",
}  # fmt: skip
"""The word that an engine shows while an incident of that kind is seen on it, the worst first."""

SUBSUMES: dict[str, tuple[str, ...]] = {
    "engine_down": ("engine_stalled", "engine_failing", "throughput_collapse", "overload"),
    "engine_stalled": ("throughput_collapse", "overload"),
    "engine_failing": ("throughput_collapse", "overload"),
    "throughput_collapse": ("overload",),
}
"""What an incident explains away on the same engine: a server that is gone serves nothing, an engine
without steps generates nothing, and the queue before either is no demand of its own."""

ORDER = tuple(STATE_OF)
"""Causes are opened before their effects, so that of one look's verdicts the right one opens."""

CAUSES_BESIDE = ("gpu_fault", "stale_vram", "host_memory_growth")
"""These stay incidents of their own beside what they cause: they have an end and a remedy of their own."""

_EFFECTS = ("engine_down", "engine_stalled", "engine_failing", "throughput_collapse")

WAITS_FOR_A_PEER = (
    ("engine_stalled", "peer_wait"), ("engine_stalled", "rank_wait"), ("engine_failing", "kv_transfer"),
    ("throughput_collapse", "peer_wait"), ("overload", "peer_wait"),
)  # fmt: skip
"""Kinds and causes whose cause is an incident of a peer, where that is known (`targets[].peers`, `targets[].gang`)."""

_STALL_OVER_COLLAPSE_SECONDS = 30.0
"""An engine that has collapsed makes few steps: a pause between two of them is no new problem. A stall
takes over only when it has lasted so long."""

_DOWN_OVER_COLLAPSE_SECONDS = 60.0
"""A restart is what cures most collapses, and people have been told to do it: a server that goes while
it is collapsed is being restarted more likely than it crashes. It is down as well only if it stays so."""

_HOLD_SECONDS = {
    ("engine_stalled", "throughput_collapse"): _STALL_OVER_COLLAPSE_SECONDS,
    ("engine_down", "throughput_collapse"): _DOWN_OVER_COLLAPSE_SECONDS,
}

AFTERMATH_SECONDS = {"overload": 150.0, "throughput_collapse": 20.0}
"""What a stall, a crash or a collapse leaves behind is a queue, and clients that all come back at once:
for so long after its end that is still the same problem. A queue that is still there then is demand."""

EXPLAINED_BY: dict[str, tuple[str, ...]] = {
    "slow_engine": ("thermal_throttle", "neighbour_contention"),
}
"""A cause and the causes of it: what is known of why steps are slow is not lost again because, as it
ends, the heat goes before the delay has left the averages."""

EXPLAINED_SECONDS = 300.0
"""... unless the engine stays slow for so long without it."""


def rank(kind: str) -> int:
    """Causes first."""
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def covers(outer: Incident, kind: str, engine: str | None) -> bool:
    """Is a finding of this kind on this engine an effect of the open incident `outer`?"""
    return kind in _effects_of(outer) and outer.engine in (None, engine)


def _effects_of(incident: Incident) -> tuple[str, ...]:
    """What it explains away. An engine that fails a few of its requests goes on with the others: then nothing."""
    if incident.kind == "engine_failing" and incident.severity != "page":
        return ()
    return SUBSUMES.get(incident.kind, ())


def held_by(
    kind: str, engine: str | None, seen: Iterable[Incident], lasted_s: float
) -> Incident | None:
    """Which incident that is seen itself keeps a finding from being told yet; `lasted_s`: how old the finding is."""
    for each in seen:
        hold_seconds = _HOLD_SECONDS.get((kind, each.kind), 0.0)
        if lasted_s < hold_seconds and (engine is None or each.engine in (None, engine)):
            return each
    return None


def aftermath_seconds(kind: str, engine: str | None, ended: Key) -> float:
    """For how long after the end of `ended` a finding of this kind still belongs to it."""
    ended_kind, ended_engine = ended
    if kind in SUBSUMES.get(ended_kind, ()) and ended_engine in (None, engine):
        return AFTERMATH_SECONDS.get(kind, 0.0)
    return 0.0


def settling_seconds(known: str, rival: str) -> float:
    """How long another cause must have been said before it takes the place of the known one."""
    return EXPLAINED_SECONDS if known in EXPLAINED_BY.get(rival, ()) else 0.0


def waits(incident: Incident) -> bool:
    """Is it the trouble of another server or rank?"""
    return (incident.kind, incident.cause) in WAITS_FOR_A_PEER


def is_cause(incident: Incident) -> bool:
    """Does it stay an incident of its own beside what it causes?"""
    return incident.kind in CAUSES_BESIDE


def outlives(opened: Incident, other: Incident) -> bool:
    """Does one that opens end another: as its cause, or because that only recovers while this is found?"""
    if other.kind in _effects_of(opened) and opened.engine in (None, other.engine):
        return True
    return other.phase == RECOVERING and covers(other, opened.kind, opened.engine)


def of_ranks(one: Incident, other: Incident) -> bool:
    """Do two ranks of one server have the same trouble? A GPU, a clock or a host under both of them has it then."""
    ranks = one.target == other.target and None not in (one.engine, other.engine) and one.engine != other.engine  # fmt: skip
    same = one.family == other.family if one.family else one.cause == other.cause
    return ranks and same and one.kind == other.kind and one.kind in _EFFECTS


def linked(one: Incident, other: Incident) -> bool:
    """Do two incidents belong together: a cause, and its effect on the same target, on one that it hits, or on a peer?"""
    if of_ranks(one, other):
        return True
    peer = other if waits(one) else one
    elsewhere = (one.target, one.engine) != (other.target, other.engine)
    if waits(one) != waits(other) and elsewhere and peer.kind in _EFFECTS:
        return True
    if elsewhere and one.kind == other.kind == "engine_down":
        return True  # of ranks, and of a pair: a rank that dies takes the others with it
    if is_cause(one) == is_cause(other):
        return False
    cause, effect = (one, other) if is_cause(one) else (other, one)
    hits = effect.target == cause.target or effect.target in cause.concerns
    return hits and effect.kind in _EFFECTS


def severity_beside(
    incident: Incident, severity: str, open_: Iterable[Incident]
) -> tuple[str, str]:
    """Only the cause pages: an effect whose cause has paged already is a ticket. A peer that is gone, or stands still,
    pages as soon as it is missed. Of the ranks of a server that have the same trouble one pages.

    Return the severity, and why it is another; empty: it is not."""
    for each in open_ if severity == "page" else ():
        causes = is_cause(each) or of_ranks(incident, each)
        peer = waits(incident) and not waits(each) and _pages(each)
        if ((causes and each.severity == "page") or peer) and linked(incident, each):
            where = "the same rank trouble" if of_ranks(incident, each) else "its cause"
            return "ticket", f"critical → warning: {each.id} pages for {where} ({each.summary})"
    return severity, ""


def _pages(incident: Incident) -> bool:
    gone = incident.kind in ("engine_down", "engine_stalled") and incident.firing
    return gone or incident.severity == "page"
