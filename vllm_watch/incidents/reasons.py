"""The cost of an incident, its severity and whether a restart helps, in one sentence each. Pure.

The page, `top`, `explain`, messages and the API use these sentences, so that they cannot disagree.
"""

from collections.abc import Mapping

from vllm_watch.incidents.incident import Incident
from vllm_watch.incidents.recurrence import DOUBLED, UNTOLD_SECONDS_MAX
from vllm_watch.incidents.way import NEXT_RULE, RULE
from vllm_watch.story.kinds import story_of
from vllm_watch.support.durations import in_words

LOWERED, RAISED = "critical → warning: ", "raised to critical, because "
"""Prefixes of the `Step.changes` that changed the severity after the detector's verdict."""

_WAITS = "the server that it waits for has the trouble"
_WARNING_BY_CAUSE: Mapping[str, str] = {
    "waits_for_peer": _WAITS,
    "peer_wait": _WAITS,
    "rank_wait": _WAITS.replace("server", "rank"),
}
_WARNING: Mapping[str, str] = {
    "overload": "more requests arrive than it can serve, and it is not known to be slower than usual",
    "stale_vram": "users notice nothing until an engine starts and lacks this memory",
    "gpu_fault": "no critical incident is known to follow from it",
    "host_memory_growth": "users notice nothing until the memory of the host is used up",
    "engine_down": "it has not lasted long enough to be certain",
    "engine_failing": "other requests are answered",
    "engine_stalled": "it is not certain yet that users wait for it",
    "throughput_collapse": "no user is known to wait longer or to get less than before",
}
_WARNING_IF_STUCK = "the other requests are served"


def of_cost(incident: Incident) -> str:
    """Return the effect on users while it lasts, and the number of requests lost if known."""
    lost = incident.requests_lost
    counted = "" if lost is None else f"{lost or 'No'} request{'s' * (lost != 1)} lost"
    if not incident.open or incident.recovering:
        return counted and f"{counted}."
    effect = story_of(incident.kind, incident.target).cost_of(incident.cause)
    return f"{effect} {counted} so far." if lost else effect


def of_severity(incident: Incident) -> str:
    """Return why the incident is critical or a warning and, if people are not notified again, the reason for that."""
    if not incident.open:
        return "It is over."
    if incident.recovering:
        return "It is recovering, and closes if the engine stays healthy."
    if incident.severity == "page":
        again = incident.recurring is not None and incident.recurring.told
        return f"Critical: {_critical(incident)}.{_not_notified(incident) if again else ''}"
    return f"A warning, not critical: {_warning(incident)}."


def on_card(incident: Incident) -> str:
    """Return the reason to show on a card; "" if the incident is over, or critical by its kind alone."""
    known = notifies(incident) and not _decided_by(incident)
    return "" if not incident.open or incident.recovering or known else of_severity(incident)


def notifies(incident: Incident) -> bool:
    """Return True if an active incident is critical and people are notified of it."""
    told = incident.recurring is not None and incident.recurring.told
    return incident.severity == "page" and incident.open and not incident.recovering and not told


def of_restart(incident: Incident, story: str) -> str:
    """Return whether a restart helps. `story`: the sentence for this kind and cause while an incident is active."""
    if not incident.open:
        return "It is over: no restart is needed."
    if incident.recovering:
        return "It is recovering: no restart is needed now."
    following = _rule(incident, NEXT_RULE, "restart")
    yet = story.startswith("No restart is advised yet") and not incident.restart_advised
    return f"{story} {following[0].upper()}{following[1:]}." if yet and following else story


def _warning(incident: Incident) -> str:
    last = incident.way[-1] if incident.way else None
    lowered = [each for each in last.changes if each.startswith(LOWERED)] if last else []
    if lowered:
        return lowered[-1].removeprefix(LOWERED)
    if last and last.severity == "page":
        pages = incident.related[-1] if incident.related else "one incident"
        return f"many targets fell silent at once, and {pages} is critical for all of them"
    if following := _rule(incident, NEXT_RULE, "page"):
        return f"it {following}"
    if incident.kind == "engine_down" and incident.evidence_against:
        return incident.evidence_against[0].text
    if incident.kind == "throughput_collapse" and incident.family == "stuck":
        return _WARNING_IF_STUCK
    if incident.related and incident.kind == "gpu_fault":
        return "its effect on the engine is reported as an incident of its own"
    default = _WARNING.get(incident.kind, _WARNING["throughput_collapse"])
    return _WARNING_BY_CAUSE.get(incident.cause, default)


def _critical(incident: Incident) -> str:
    cost = story_of(incident.kind, incident.target).cost_of(incident.cause).rstrip(".")
    return _decided_by(incident) or f"{cost[:1].lower()}{cost[1:]}"


def _decided_by(incident: Incident) -> str:
    """Return the rule, or the change after the detector, that made it critical; "" if its kind alone did."""
    changes = incident.way[-1].changes if incident.way else ()
    raised = [each.removeprefix(RAISED) for each in changes if each.startswith(RAISED)]
    return (
        raised[-1] if raised else _rule(incident, RULE, "page") or _rule(incident, RULE, "restart")
    )


def _not_notified(incident: Incident) -> str:
    assert incident.recurring is not None  # noqa: S101 - for the type checker
    return (
        f" Nobody is notified again, {incident.recurring.text}: people were notified of {incident.recurring.earlier}."
        f" They are notified again when it has happened {DOUBLED:.0f} times as often or lasted {DOUBLED:.0f} times as long, or lasts {in_words(UNTOLD_SECONDS_MAX)}."
    )


def _rule(incident: Incident, name: str, consequence: str) -> str:
    every = (*incident.evidence_for, *incident.evidence_against)
    found = (each.text for each in every if (each.name, each.value) == (name, consequence))
    return next(found, "")
