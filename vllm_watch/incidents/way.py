"""Records the history (`way`) of an incident: its changes, each with rule and evidence."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from vllm_watch.signals.scales import FEW, PAST_KEPT

if TYPE_CHECKING:
    from vllm_watch.incidents.incident import Incident

LOWERED, RAISED = "critical → warning: ", "raised to critical, because "
"""Prefixes of reasons in `Step.changes`."""

RULE, NEXT_RULE = "rule", "next_rule"
"""Evidence with these names gives the rule that applied, and the next rule."""


TEXT_MAX = 400

_CHANGED_BY = {
    "missed_by": f"{RAISED}others wait for it",
    "restart": "critical without advice, because our own restart did not bring it back",
}
"""The changes after the detector's verdict, by the name of the evidence that caused them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of an incident, and its reason."""

    t: float  # Unix seconds
    event: str  # "opened" | "updated" | "recovering" | "resolved"
    severity: str
    cause: str
    restart_advised: bool
    summary: str
    rule: str = ""
    next_rule: str = ""
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # changes after the detector's verdict


def extended(one: "Incident", t: float, event: str, *changes: str) -> tuple[Step, ...]:
    """Return the incident's history with its current state as a new step."""
    every = (*one.evidence_for, *one.evidence_against)
    named = {each.name: each.text[:TEXT_MAX] for each in every if each.name in (RULE, NEXT_RULE)}
    after = [f"{why}: {each.text[:TEXT_MAX]}" for each in one.evidence_for if (why := _CHANGED_BY.get(each.name))]  # fmt: skip
    told = one.recurring and one.recurring.told
    repeated = [f"not notified again: {one.recurring.earlier} notified people ({one.recurring.text})"] if one.recurring and told else []  # fmt: skip
    step = Step(
        t, event, one.severity, one.cause, one.restart_advised, one.summary[:TEXT_MAX],
        named.get(RULE, ""), named.get(NEXT_RULE, ""), _texts(one.evidence_for), _texts(one.evidence_against),
        (*after, *filter(None, changes), *repeated),
    )  # fmt: skip
    return (*one.way[:1], *one.way[1:][-(PAST_KEPT - 2) :], step)


def _texts(evidence: Sequence[Any]) -> tuple[str, ...]:
    said = (each.text[:TEXT_MAX] for each in evidence if each.text and each.name not in (RULE, NEXT_RULE))  # fmt: skip
    return tuple(said)[:FEW]


def plain(way: Sequence[Step]) -> list[dict[str, Any]]:
    """Return plain values."""
    return [asdict(step) for step in way]


def from_plain(said: Any) -> tuple[Step, ...]:
    """Restore a history."""
    return _steps().validate_python(said) if said else ()


@cache
def _steps() -> TypeAdapter[tuple[Step, ...]]:
    return TypeAdapter(tuple[Step, ...])
