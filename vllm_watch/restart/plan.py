"""What is shown of one target's restarts, from what the dispatcher, the journal and the guard know."""

from collections.abc import Sequence
from dataclasses import replace

from vllm_watch.board.restarts import (
    PAST_MAX,
    AttemptShown,
    Gate,
    Paused,
    RestartCounts,
    RestartPlan,
    Waiting,
)
from vllm_watch.restart import guard
from vllm_watch.restart.attempt import Attempt
from vllm_watch.restart.dispatcher import Dispatcher, Wish
from vllm_watch.restart.facts import Facts, Pause
from vllm_watch.restart.guard import DAY_SECONDS, HOUR_SECONDS
from vllm_watch.restart.policy import Policy
from vllm_watch.restart.request import RestartRequest
from vllm_watch.samples.target import Target


def shown(
    target: Target, *, policy: Policy, hook: str, dispatcher: Dispatcher, now_t: float,
    attempts: Sequence[Attempt] | None, breaker_reset_t: float, pause: Pause | None,
    journal_trouble: str | None, draining: bool, next_t: float | None,
) -> RestartPlan:  # fmt: skip
    """Return the plan; `attempts` are those of the target's group, oldest first, None: not known."""
    own = [each for each in attempts or () if each.target == target.name]
    past = [each for each in reversed(own) if not each.open][:PAST_MAX]
    payoffs = [each.payoff_ratio for each in own if each.payoff_ratio is not None]
    return RestartPlan(
        mode=policy.mode,
        hook=hook,
        waiting=tuple(_waiting(each) for each in dispatcher.of_target(target.name)),
        under_way=_under_way(dispatcher, target.name),
        last=attempt_shown(past[0], past[0].text) if past else None,
        past=tuple(attempt_shown(each, each.text) for each in past),
        draining=draining,
        paused=paused(pause),
        journal_trouble=journal_trouble,
        breaker=_breaker(target, policy, attempts, breaker_reset_t, now_t),
        budget_remaining=budget_remaining(policy, attempts, now_t),
        payoff_ratio=payoffs[-1] if payoffs else None,
        next_scheduled_timestamp_seconds=next_t,
    )


def counts(dispatcher: Dispatcher, target: str) -> RestartCounts:
    """Return what was counted of a target."""
    outcomes = dispatcher.attempts.outcomes.items()
    blocked = dispatcher.blocked.items()
    return RestartCounts(
        outcomes={(trigger, end): n for (name, trigger, end), n in outcomes if name == target},
        blocked={gate: n for (name, gate), n in blocked if name == target},
    )


def paused(pause: Pause | None) -> Paused | None:
    """Return a pause as it is shown."""
    if pause is None:
        return None
    return Paused(actor=pause.actor, reason=pause.reason, until_timestamp_seconds=pause.until_t)


def attempt_shown(attempt: Attempt, text: str) -> AttemptShown:
    """Return an attempt as it is shown; `text` is what it does now, or how it ended."""
    return AttemptShown(
        id=attempt.id, state=attempt.state, trigger=attempt.trigger, reason=attempt.reason,
        actor=attempt.actor, hook=attempt.hook, text=text, incident_id=attempt.incident_id,
        began_timestamp_seconds=attempt.began_t, called_timestamp_seconds=attempt.called_t,
        ended_timestamp_seconds=attempt.ended_t, payoff_ratio=attempt.payoff_ratio,
    )  # fmt: skip


def budget_remaining(
    policy: Policy, attempts: Sequence[Attempt] | None, now_t: float
) -> int | None:
    """Return how many restarts the budgets of hour and day leave; None where nobody knows."""
    if attempts is None:
        return None
    times = [
        each.began_t if each.called_t is None else each.called_t for each in attempts if each.spent
    ]
    limits = ((policy.budget_per_hour, HOUR_SECONDS), (policy.budget_per_day, DAY_SECONDS))
    left = (limit - sum(t > now_t - seconds for t in times) for limit, seconds in limits)
    return max(0, min(left))


def _breaker(
    target: Target, policy: Policy, attempts: Sequence[Attempt] | None, reset_t: float, now_t: float
) -> str | None:
    """What the guard would say to whoever is no person."""
    if attempts is None:
        return None
    request = RestartRequest(
        target=target.name, group=target.group, trigger="incident", reason="", asked_t=now_t
    )
    facts = Facts(t=now_t, state=None, hook=None, attempts=tuple(attempts), breaker_reset_t=reset_t)
    refusal = guard.breaker(request, policy, facts)
    return None if refusal is None else refusal.text


def _under_way(dispatcher: Dispatcher, name: str) -> AttemptShown | None:
    known = dispatcher.attempts.last(name)
    if known is None or not known[0].open:
        return None
    return attempt_shown(*known)


def _waiting(wish: Wish) -> Waiting:
    request, decision = wish.request, wish.decision
    asked = Waiting(
        trigger=request.trigger,
        reason=request.reason,
        asked_timestamp_seconds=request.asked_t,
        incident_id=request.incident_id,
        schedule=request.schedule,
        approved_by=request.approved_by,
        expires_timestamp_seconds=request.expires_t,
    )
    if decision is None:
        return asked
    return replace(
        asked, verdict=decision.verdict, gate=decision.gate, text=decision.text,
        until_timestamp_seconds=decision.until_t, gates=gates(decision),
    )  # fmt: skip


def gates(decision: guard.Decision) -> tuple[Gate, ...]:
    """Return all that refuse, in order."""
    return tuple(
        Gate(gate=each.gate, text=each.text, until_timestamp_seconds=each.until_t)
        for each in decision.refusals
    )
