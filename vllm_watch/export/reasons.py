"""The cost of an incident, why it is not critical, and the conditions that a restart lacks. Pure."""

from collections.abc import Mapping

from vllm_watch.incidents.incident import Incident
from vllm_watch.story.kinds import story_of

_PAGE_NEEDS, _RESTART_NEEDS = "a page needs ", "a restart needs "
_LOWERED = "→ ticket"
_UNHARMED = "no user is known to wait longer or to get less than before"
_BY_KIND: Mapping[str, str] = {
    "overload": "the engine works as fast as usual; there is more work than it can do",
    "stale_vram": "it wastes GPU memory, and no engine is known to be slower because of it",
    "gpu_fault": "no engine on this GPU is known to be slower or to fail because of it",
    "host_memory_growth": "users notice nothing until the memory of the host is used up",
    "engine_down": "it has not lasted long enough to be certain",
}
_BY_CAUSE: Mapping[str, str] = {
    "waits_for_peer": "the server that it waits for has the trouble",
    "peer_wait": "the server that it waits for has the trouble",
}


def of_cost(incident: Incident) -> str:
    """Return the effect on users while it lasts, and the number of requests lost if known."""
    lost = incident.requests_lost
    counted = "" if lost is None else f"{lost or 'No'} request{'s' * (lost != 1)} lost"
    if not incident.open or incident.recovering:
        return counted and f"{counted}."
    effect = story_of(incident.kind, incident.target).cost_of(incident.cause)
    return f"{effect} {counted} so far." if lost else effect


def of_severity(incident: Incident) -> str:
    """Return why an active warning is not critical, else ""."""
    if incident.severity != "ticket" or not incident.open or incident.recovering:
        return ""
    last = incident.way[-1] if incident.way else None
    lowered = [each for each in last.changes if _LOWERED in each] if last else []
    if lowered:
        why = lowered[-1].rstrip(".")
    elif last and last.next_rule.startswith(_PAGE_NEEDS):
        why = f"that needs {last.next_rule.removeprefix(_PAGE_NEEDS)}"
    else:
        why = _BY_CAUSE.get(incident.cause) or _BY_KIND.get(incident.kind, _UNHARMED)
    return f"A warning, not critical: {why}."


def of_restart(incident: Incident) -> str:
    """Return what the advice lacks; "" if unknown or advised."""
    last = incident.way[-1] if incident.way else None
    if incident.restart_advised or not last or not last.next_rule.startswith(_RESTART_NEEDS):
        return ""
    return f" That needs {last.next_rule.removeprefix(_RESTART_NEEDS)}."
