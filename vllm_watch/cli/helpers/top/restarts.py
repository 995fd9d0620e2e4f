"""Describe restarts in the status page's sentences."""

from datetime import UTC, datetime

from vllm_watch.board.restarts import AttemptShown, RestartPlan, Waiting
from vllm_watch.cli.helpers.top import text
from vllm_watch.story.restart_steps import step_of

_TRIGGERS = {
    "incident": "for its incident", "schedule": "on schedule", "manual": "by hand", "alertmanager": "for an alert",
}  # fmt: skip


def lines(plan: RestartPlan | None, t: float, incident: str | None = None) -> list[str]:
    """Return sentences about restarts, the most urgent first. If `incident` is given, dry runs for other incidents are omitted."""
    if plan is None:
        return []
    if plan.under_way is not None:
        attempt = plan.under_way
        who = f"by {attempt.actor} " if attempt.trigger == "manual" else ""
        began = text.age(max(0.0, t - attempt.began_timestamp_seconds))
        return [f"A restart {who}has been under way for {began}: {_ended(attempt.text)}"]
    told = [line for wish in plan.waiting for line in _wished(wish)]
    of_breaker = any(gate.gate == "breaker" for wish in plan.waiting for gate in wish.gates)
    if plan.last is not None and not of_breaker and _concerns(plan.last, incident):
        told.append(_past(plan.last, t))
    return told


def _concerns(attempt: AttemptShown, incident: str | None) -> bool:
    return attempt.state != "dry_run" or incident in (None, attempt.incident_id)


def _wished(wish: Waiting) -> list[str]:
    who = _TRIGGERS.get(wish.trigger, wish.trigger)
    if wish.verdict == "approve":
        approve = f": vllm-watch approve {wish.incident_id}" if wish.incident_id else ""
        return [f"A restart {who} waits for approval{approve}"]
    by = f" (approved by {wish.approved_by})" if wish.approved_by else ""
    first = f"No restart {who} now{by}: {_ended(wish.text)}{_until(wish.text, wish.until_timestamp_seconds)}"
    return [
        first,
        *(
            f"Also: {_ended(gate.text)}{_until(gate.text, gate.until_timestamp_seconds)}"
            for gate in wish.gates[1:]
        ),
    ]


def _until(said: str, t: float | None) -> str:
    if t is None or "Z" in said:
        return ""
    return f" Next check {datetime.fromtimestamp(t, UTC):%H:%M}Z."


def _past(attempt: AttemptShown, t: float) -> str:
    if attempt.state == "dry_run":
        return "A restart was advised and left to you (observe mode)."
    ended_t, payoff = attempt.ended_timestamp_seconds, attempt.payoff_ratio
    when = "" if ended_t is None else f", {text.age(max(0.0, t - ended_t))} ago,"
    why = f" ({attempt.text})" if attempt.text else ""
    gave = ""
    if payoff is not None:
        gave = (
            f" It recovered {text.percent(payoff)} of baseline throughput."
            if payoff > 0
            else " It recovered no throughput."
        )
    ends = step_of(attempt.state).ended
    return f"The last restart{when} {ends}{why}.{gave}".replace(", now ago,", " just now")


def _ended(said: str) -> str:
    return said if said.endswith((".", "!", "?")) else f"{said}."
