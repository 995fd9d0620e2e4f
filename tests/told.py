"""Incident events in their published form, and made of it: what most tests compare."""

from vllm_watch.incidents.incident import IncidentEvent, from_published, published


def said(events):
    """What was told, as `replay --json` says it."""
    return [published(event) for event in events]


def made(*events, opened_t=None):
    """The events that these were published as. `opened_t`: where one is not the opening itself."""
    known = {}
    found = []
    for each in events:
        if each["event"] == "opened":
            known[each["id"]] = each["t"]
        incident = from_published(each, known.get(each["id"], opened_t))
        found.append(IncidentEvent(each["event"], each["t"], incident))
    return found
