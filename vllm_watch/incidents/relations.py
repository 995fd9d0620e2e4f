"""Defines causes and effects among incidents.

Kinds that are not listed have no effects and set no engine state.
"""

from collections.abc import Iterable

from vllm_watch.incidents.incident import RECOVERING, Incident, Key
from vllm_watch.incidents.way import LOWERED

STATE_OF = {
    "engine_down": "down", "engine_stalled": "stalled", "engine_failing": "failing", "throughput_collapse": "collapsed", "overload": "overloaded",
}  # fmt: skip
"""States shown during an active incident, worst first."""

SUBSUMES: dict[str, tuple[str, ...]] = {
    "engine_down": ("engine_stalled", "engine_failing", "throughput_collapse", "overload"),
    "engine_stalled": ("throughput_collapse", "overload"),
    "engine_failing": ("throughput_collapse", "overload"),
    "throughput_collapse": ("overload",),
}
"""Kind → effects on the same engine."""

ORDER = tuple(STATE_OF)
"""Order in which incidents open: causes before effects."""

CAUSES_BESIDE = ("gpu_fault", "stale_vram", "host_memory_growth")
"""Causes that a new effect does not end, because the cause may outlast it."""

_EFFECTS = ("engine_down", "engine_stalled", "engine_failing", "throughput_collapse")

WAITS_FOR_A_PEER = (
    ("engine_stalled", "peer_wait"), ("engine_stalled", "rank_wait"), ("engine_failing", "kv_transfer"),
    ("throughput_collapse", "peer_wait"), ("overload", "peer_wait"),
)  # fmt: skip
"""Findings explained by a peer's incident (`targets[].peers`, `targets[].gang`)."""

_HOLD_SECONDS = {("engine_stalled", "throughput_collapse"): 30.0, ("engine_down", "throughput_collapse"): 60.0}  # fmt: skip
"""The first kind replaces the second after this many seconds. A collapsed engine makes few steps, and
its server is probably being restarted, as advised."""

AFTERMATH_SECONDS = {"overload": 150.0, "throughput_collapse": 20.0}
"""For this many seconds after another incident, a queue or slowness counts as its effect. All
clients return together."""

EXPLAINED_BY: dict[str, tuple[str, ...]] = {
    "slow_engine": ("thermal_throttle", "neighbour_contention"),
}
"""Causes that `slow_engine` replaces only after five minutes without them. Averages lag behind the GPU's
temperature."""


def rank(kind: str) -> int:
    """Return the position of a kind in ORDER."""
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def covers(outer: Incident, kind: str, engine: str | None) -> bool:
    """Return True if a finding of `kind` on `engine` is an effect of `outer`."""
    return kind in _effects_of(outer) and outer.engine in (None, engine)


def _effects_of(incident: Incident) -> tuple[str, ...]:
    """Failures of only some requests have no effect on the others."""
    if incident.kind == "engine_failing" and incident.severity != "page":
        return ()
    return SUBSUMES.get(incident.kind, ())


def held_by(
    kind: str, engine: str | None, seen: Iterable[Incident], lasted_s: float
) -> Incident | None:
    """Return the active incident that delays a finding which has lasted for `lasted_s`."""
    for each in seen:
        hold_seconds = _HOLD_SECONDS.get((kind, each.kind), 0.0)
        if lasted_s < hold_seconds and (engine is None or each.engine in (None, engine)):
            return each
    return None


def aftermath_seconds(kind: str, engine: str | None, ended: Key) -> float:
    """Return for how many seconds after `ended` a finding of `kind` counts as its effect."""
    ended_kind, ended_engine = ended
    if kind in SUBSUMES.get(ended_kind, ()) and ended_engine in (None, engine):
        return AFTERMATH_SECONDS.get(kind, 0.0)
    return 0.0


def waits(incident: Incident) -> bool:
    """Return True if the incident waits for another server or rank."""
    return (incident.kind, incident.cause) in WAITS_FOR_A_PEER


def is_cause(incident: Incident) -> bool:
    """Return True if a new effect does not end the incident."""
    return incident.kind in CAUSES_BESIDE


def outlives(opened: Incident, other: Incident) -> bool:
    """Return True if `other` ends because `opened` has opened.

    An incident ends its effects. It also ends its cause, if the cause is already recovering.
    """
    if other.kind in _effects_of(opened) and opened.engine in (None, other.engine):
        return True
    return other.phase == RECOVERING and covers(other, opened.kind, opened.engine)


def of_ranks(one: Incident, other: Incident) -> bool:
    """Return True if two ranks of one server have the same trouble."""
    ranks = one.target == other.target and None not in (one.engine, other.engine) and one.engine != other.engine  # fmt: skip
    same = one.family == other.family if one.family else one.cause == other.cause
    return ranks and same and one.kind == other.kind and one.kind in _EFFECTS


def linked(one: Incident, other: Incident) -> bool:
    """Return True if one of the incidents causes the other, or if two ranks have the same trouble."""
    if of_ranks(one, other):
        return True
    peer = other if waits(one) else one
    elsewhere = (one.target, one.engine) != (other.target, other.engine)
    if waits(one) != waits(other) and elsewhere and peer.kind in _EFFECTS:
        return True
    if elsewhere and one.kind == other.kind == "engine_down":
        return True  # a dead rank stops the others
    if is_cause(one) == is_cause(other):
        return False
    cause, effect = (one, other) if is_cause(one) else (other, one)
    hits = effect.target == cause.target or effect.target in cause.concerns
    return hits and effect.kind in _EFFECTS


def severity_beside(
    incident: Incident, severity: str, open_: Iterable[Incident]
) -> tuple[str, str]:
    """Return the severity, and the reason for its change or "".

    An effect opens as a ticket if another incident already pages: its cause, or that of a peer or another rank.
    """
    for each in open_ if severity == "page" else ():
        causes = is_cause(each) or of_ranks(incident, each)
        gone = each.kind in ("engine_down", "engine_stalled") and each.firing
        peer = waits(incident) and not waits(each) and (gone or each.severity == "page")
        if ((causes and each.severity == "page") or peer) and linked(incident, each):
            who = "its cause is a separate incident"
            if of_ranks(incident, each):
                who = "another rank has the same trouble and is critical"
            return "ticket", f"{LOWERED}{who}: {each.summary.rstrip('.')} ({each.id})"
    return severity, ""
