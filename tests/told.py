"""Incident events in their published form, and made of it: what most tests compare."""

from dataclasses import replace

from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents.incident import IncidentEvent, from_published, published


def told(event="opened", t=1_763_700_000.0, **more):
    """A stall's event in its published form."""
    evidence = {"name": "steps_per_second", "value": 0.0, "unit": "", "expected": 31.0, "text": ""}
    return {
        "t": t, "event": event, "id": "engine_stalled-1", "target": "chat", "engine": "0", "kind": "engine_stalled",
        "cause": "hang", "severity": "page", "summary": "No step for 42 s.", "restart_advised": False,
        "evidence": {"for": [evidence], "against": []},
    } | ({"resolution": "healthy"} if event == "resolved" else {}) | more  # fmt: skip


def said(events):
    """What was told, as `replay --json` says it."""
    return [published(event) for event in events]


def made(*events, opened_t=None):
    """The events that these were published as; their evidence may hold numbers that JSON has not.

    `opened_t`: where one is not the opening itself.
    """
    known = {}
    found = []
    for each in events:
        if each["event"] == "opened":
            known[each["id"]] = each["t"]
        bare = from_published({**each, "evidence": None}, known.get(each["id"], opened_t))
        sides = each.get("evidence", {})
        incident = replace(
            bare,
            evidence_for=tuple(Evidence(**one) for one in sides.get("for", ())),
            evidence_against=tuple(Evidence(**one) for one in sides.get("against", ())),
        )
        found.append(IncidentEvent(each["event"], each["t"], incident))
    return found
