"""Decide whether a server may be restarted now.

An unknown fact is a reason to refuse. The first refusal decides, but all are reported. After ASK,
`decide` must be called again with the answer of the hook, blockers, gang or lock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_watch.restart.checks import ASKED, CHECKS, Refusal
from vllm_watch.restart.facts import Facts, RestartRequest
from vllm_watch.restart.verify import Before
from vllm_watch.settings.restart import RestartSettings

ACT, OBSERVE, APPROVE, ASK, WAIT, REFUSE = "act", "observe", "approve", "ask", "wait", "refuse"

CHECK_NAMES = (*(check.__name__ for check in (*CHECKS, *ASKED)), "approval")
"""Every value of the metric label `blocker`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The guard's decision on a request."""

    verdict: str  # ACT | OBSERVE | APPROVE | ASK | WAIT | REFUSE
    check: str | None  # the check that decided; for ASK "hook" | "blockers" | "gang" | "lock"
    text: str
    until_t: float | None = None
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    befores: Mapping[str, Before] = field(default_factory=dict)  # state at the decision, by target


def decide(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Decision:
    """Return the decision. Never raises."""
    for checks in (CHECKS, ASKED):
        found = ((check.__name__, check(request, settings, facts)) for check in checks)
        refusals = {name: refusal for name, refusal in found if refusal is not None}
        if refusals:
            name, first = next(iter(refusals.items()))
            verdict = REFUSE if first.until_t is None else WAIT
            return Decision(verdict, name, first.text, first.until_t, refusals)
        asked = _to_ask(request, settings, facts) if checks is CHECKS else None
        if asked is not None:
            return Decision(ASK, asked, f"the {asked} must answer first")
    return final_decision(request, settings)


def _to_ask(request: RestartRequest, settings: RestartSettings, facts: Facts) -> str | None:
    if facts.hook is None:
        return "hook"
    if facts.hook.allows is not True:
        return None
    if settings.blockers.any and facts.blockers is None:
        return "blockers"
    if any(answer.allows is not True for answer in facts.blockers or ()):
        return None
    if facts.gang is None:
        return "gang"
    if any(answer.allows is not True for answer in facts.gang):
        return None
    # A dry run does not take the lock, because another watcher may need it.
    acts = settings.mode == "auto" or request.person is not None
    if settings.lock.kind != "none" and acts and facts.lock is None:
        return "lock"
    return None


def final_decision(request: RestartRequest, settings: RestartSettings) -> Decision:
    """Return the decision on a request that passed all checks."""
    if settings.mode == "observe" and request.person is None:
        return Decision(OBSERVE, None, "it would be restarted now (mode observe)")
    if settings.mode == "approve" and request.person is None:
        return Decision(APPROVE, "approval", "it waits for a person's approval")
    return Decision(ACT, None, "every check passed")
