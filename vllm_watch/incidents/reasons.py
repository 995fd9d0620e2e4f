"""Explains an incident's cost, its severity and whether a restart helps, in one sentence each."""

from vllm_watch.incidents.incident import Incident
from vllm_watch.incidents.way import LOWERED, NEXT_RULE, RAISED, RULE
from vllm_watch.signals.scales import FIVE_MINUTES_SECONDS, TWICE
from vllm_watch.story.kinds import story_of
from vllm_watch.support.quantities import in_words


def of_cost(incident: Incident) -> str:
    """Return the effect on users during the incident, and the number of requests lost if known."""
    lost = incident.requests_lost
    counted = (
        "" if lost is None else f"{f'{lost:,}' if lost else 'No'} request{'s' * (lost != 1)} lost"
    )
    if not incident.open or incident.recovering:
        return counted and f"{counted}."
    effect = story_of(incident.kind, incident.target).cost_of(incident.cause)
    return f"{effect} {counted} so far." if lost else effect


def of_severity(incident: Incident) -> str:
    """Return why the incident is critical or a warning, and why people are not notified again."""
    if not incident.open:
        return "It is over."
    if incident.recovering:
        return "It is recovering, and closes if the engine stays healthy."
    if incident.severity == "page":
        cost = story_of(incident.kind, incident.target).cost_of(incident.cause).rstrip(".")
        why = _decided_by(incident) or f"{cost[:1].lower()}{cost[1:]}"
        return f"Critical: {why}.{_not_notified(incident)}"
    rank = "Info only" if incident.severity == "info" else "A warning, not critical"
    return f"{rank}: {_warning(incident)}."


def on_card(incident: Incident) -> str:
    """Return the reason to show on a card. It is empty if the incident is over or recovering, or critical by its kind alone."""
    known = notifies(incident) and not _decided_by(incident)
    return "" if not incident.open or incident.recovering or known else of_severity(incident)


def notifies(incident: Incident) -> bool:
    """Return True if an active incident is critical and people are notified of it."""
    active = incident.open and not incident.recovering
    return incident.severity == "page" and active and not _not_notified(incident)


def of_restart(incident: Incident, story: str) -> str:
    """Return whether a restart helps. `story` is the sentence for an active incident."""
    if not incident.open:
        return "It is over: no restart is needed."
    if incident.recovering:
        return "It is recovering: no restart is needed now."
    following = _rule(incident, NEXT_RULE, "restart")  # missing if a restart cannot help
    return f"{story} {following[0].upper()}{following[1:]}." if following else story


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
        return incident.evidence_against[0].text.removesuffix(".")
    if incident.kind == "throughput_collapse" and incident.family == "stuck":
        return "the other requests are served"
    if incident.related and incident.kind == "gpu_fault":
        return "its effect on the engine is reported as a separate incident"
    return story_of(incident.kind, incident.target).warning_of(incident.cause)


def _decided_by(incident: Incident) -> str:
    changes = incident.way[-1].changes if incident.way else ()
    raised = [each.removeprefix(RAISED) for each in changes if each.startswith(RAISED)]
    return (
        raised[-1] if raised else _rule(incident, RULE, "page") or _rule(incident, RULE, "restart")
    )


def _not_notified(incident: Incident) -> str:
    recurring = incident.recurring
    if recurring is None or not recurring.told:
        return ""
    return (
        f" People are not notified again ({recurring.text}): incident {recurring.earlier} notified them. The next notification"
        f" comes after {TWICE:.0f} times as many occurrences or {TWICE:.0f} times the duration, or once it lasts {in_words(FIVE_MINUTES_SECONDS)}."
    )


def _rule(incident: Incident, name: str, consequence: str) -> str:
    every = (*incident.evidence_for, *incident.evidence_against)
    found = (each.text for each in every if (each.name, each.value) == (name, consequence))
    return next(found, "")
