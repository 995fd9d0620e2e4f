"""May we restart this server now? Pure: every refusal is a sentence, and whatever is unknown is a no.

The gates are asked in order and the first that refuses decides; all are told, for a person who asks
"why not now?". What costs a call (the hook, blockers, the lock) is asked last: `decide` says `ask` and is
called again with the answer.
Source of the parts: kured (windows, gate that fails closed, lock), Home Assistant's supervisor (budget),
medik8s (minimum healthy), NVSentinel (dry run, breaker).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from vllm_watch.restart.attempt import Attempt
from vllm_watch.restart.facts import Facts
from vllm_watch.restart.policy import Policy
from vllm_watch.restart.request import RestartRequest
from vllm_watch.settings import windows

ACT, OBSERVE, APPROVE, ASK, WAIT, REFUSE = "act", "observe", "approve", "ask", "wait", "refuse"

HOUR_SECONDS, DAY_SECONDS = 3600.0, 86400.0

NOT_RESTARTABLE = {
    "starting": "it is still loading; a restart would begin that anew",
    "sleeping": "it was put to sleep on purpose",
    "unknown": "its state is not known",
}
"""States in which a restart helps nobody; a person may override none of them but the last."""

UNHURRIED_KINDS = frozenset({"host_memory_growth"})
"""Incidents that a restart cures and that cost nobody anything for hours: for these a restart at the wrong
hour is worse than none, so they wait for a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What one gate has against it."""

    gate: str  # slug, the label of vllm_watch_restarts_blocked_total
    text: str  # a sentence
    until_t: float | None = None  # when asking again makes sense; None: not by time alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done with a request."""

    verdict: str  # ACT | OBSERVE | APPROVE | ASK | WAIT | REFUSE
    gate: (
        str | None
    )  # the gate that decided; for ASK what is to be asked: "hook" | "blockers" | "lock"
    text: str
    until_t: float | None = None
    refusals: tuple[Refusal, ...] = ()  # of every gate, in order


Gate = Callable[[RestartRequest, Policy, Facts], Refusal | None]


def decide(request: RestartRequest, policy: Policy, facts: Facts) -> Decision:
    """Return what is to be done. Never raises; the same input gives the same answer."""
    refusals = tuple(_refusals(request, policy, facts, GATES))
    if not refusals:
        asked = _to_ask(request, policy, facts)
        if asked is not None:
            return Decision(verdict=ASK, gate=asked, text=f"the {asked} must be asked first")
        refusals = tuple(_refusals(request, policy, facts, ASKED_GATES))
    if refusals:
        first = refusals[0]
        verdict = REFUSE if first.until_t is None else WAIT
        return Decision(
            verdict=verdict, gate=first.gate, text=first.text,
            until_t=first.until_t, refusals=refusals,
        )  # fmt: skip
    return _allowed(request, policy)


def _refusals(
    request: RestartRequest, policy: Policy, facts: Facts, gates: Iterable[tuple[str, Gate]]
) -> Iterable[Refusal]:
    return (no for _, gate in gates if (no := gate(request, policy, facts)) is not None)


def _to_ask(request: RestartRequest, policy: Policy, facts: Facts) -> str | None:
    if facts.hook_answer is None:
        return "hook"
    if facts.hook_answer.free is not True:
        return None
    if policy.blockers and facts.blockers is None:
        return "blockers"
    if any(answer.free is not True for answer in facts.blockers or ()):
        return None  # the lock is not taken for nothing
    # What does not act takes no lock: another watcher may need it for an act.
    acts = policy.mode == "auto" or request.person is not None
    if policy.has_lock and acts and facts.lock is None:
        return "lock"
    return None


def _allowed(request: RestartRequest, policy: Policy) -> Decision:
    if policy.mode == "observe" and request.person is None:
        return Decision(verdict=OBSERVE, gate=None, text="it would be restarted now (mode observe)")
    if policy.mode == "approve" and request.person is None:
        return Decision(verdict=APPROVE, gate="approval", text="it waits for a person's approval")
    return Decision(verdict=ACT, gate=None, text="every gate agrees")


# --- the gates, in the order in which they are asked


def mode(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Is anything to be done at all, and is there something to do it with?"""
    if policy.mode == "off":
        return Refusal(gate="mode", text="restarts are off (restart.mode)")
    if facts.hook is None:
        return Refusal(gate="mode", text="no hook is configured (restart.hook)")
    return None


def trigger(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Is this asker heard, and is what it asks about still so?"""
    if request.trigger != "manual" and request.trigger not in policy.triggers:
        return Refusal(gate="trigger", text=f"a restart by {request.trigger} is switched off")
    if request.trigger != "incident" and request.incident_id is None:
        return None
    incident = facts.incident
    if incident is None:
        return Refusal(gate="trigger", text="the incident that asked is not known any more")
    if not incident.open:
        return Refusal(gate="trigger", text="the incident has ended by itself")
    if request.person is not None:
        return None
    if not incident.restart_advised:
        return Refusal(gate="trigger", text=f"no restart is known to cure {_what(request)}")
    if incident.silenced:
        return Refusal(gate="trigger", text="the incident was silenced by a person")
    if incident.outlived:
        return Refusal(
            gate="trigger", text="another process answers since, in which it was not found"
        )
    return None


def _what(request: RestartRequest) -> str:
    return f"{request.kind or 'this'} ({request.cause or 'unknown cause'})"


def pause(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Has a person said that nothing is to happen?"""
    held = facts.pause
    if held is None or (held.until_t is not None and held.until_t <= facts.t):
        return None
    return Refusal(
        gate="pause", text=f"paused by {held.actor}: {held.reason}", until_t=held.until_t
    )


def freeze(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Dated freezes and windows that forbid beat all but a named person with a reason."""
    if request.person is not None and request.override_reason:
        return None
    held = windows.frozen(policy.freezes, facts.t)
    if held is not None:
        text = f"frozen until {clock(held.end_t)}: {held.reason or 'no reason given'}"
        return Refusal(gate="freeze", text=text, until_t=held.end_t)
    end_t = windows.open_until(policy.deny_windows, policy.zone, facts.t, longer=True)
    if end_t is not None:
        text = f"no restarts in this window, until {clock(end_t)}"
        return Refusal(gate="freeze", text=text, until_t=end_t)
    return None


def window(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Is this one of the hours in which restarts may happen?"""
    if request.person is not None and request.override_reason:
        return None
    if not policy.windows:
        return _unhurried(request, policy)
    opens_t = windows.next_open(policy.windows, policy.zone, facts.t)
    if opens_t is None:
        return Refusal(gate="window", text="no window for restarts ever opens")
    if opens_t > facts.t:
        text = f"outside the windows for restarts; the next opens {clock(opens_t)}"
        return Refusal(gate="window", text=text, until_t=opens_t)
    return None


def _unhurried(request: RestartRequest, policy: Policy) -> Refusal | None:
    """What costs nobody anything yet is not cured at any hour: a restart costs users right now."""
    by_itself = request.trigger == "incident" and request.person is None
    if not by_itself or policy.mode == "approve" or request.kind not in UNHURRIED_KINDS:
        return None
    text = f"{_what(request)} is no emergency: it waits for a window (restart.windows), and there is none"
    return Refusal(gate="window", text=text)


def engine_state(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Would a restart only begin anew what is under way, or undo what somebody wanted?"""
    state = facts.state or "unknown"
    if state in NOT_RESTARTABLE and not (state == "unknown" and request.person is not None):
        return Refusal(gate="engine_state", text=f"the engine is {state}: {NOT_RESTARTABLE[state]}")
    waits = facts.supervisor_waits_until_t
    if waits is not None and waits > facts.t:
        text = f"its supervisor will start it by itself at {clock(waits)}"
        return Refusal(gate="engine_state", text=text, until_t=waits)
    return None


def journal(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """What cannot be written down is not done."""
    if facts.journal_refusal is not None:
        return Refusal(
            gate="journal", text=f"the journal cannot be written: {facts.journal_refusal}"
        )
    if facts.attempts is None:
        return Refusal(gate="journal", text="the journal of former attempts cannot be read")
    return None


def under_way(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """One attempt at a time on one server, be it that one is only verified."""
    if facts.busy is not None:
        text = f"attempt {facts.busy} is not yet seen to have helped or not"
        return Refusal(gate="under_way", text=text)
    for attempt in facts.attempts or ():
        if attempt.open and attempt.target == request.target:
            text = f"attempt {attempt.id} is under way since {clock(attempt.began_t)}"
            return Refusal(gate="under_way", text=text)
    return None


def cooldown(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Time for the last restart to show what it did, in this engine's own load times."""
    last_t = max((_touched_t(each) for each in _spent(facts)), default=None)
    if last_t is None:
        return None
    loads = policy.cooldown_load_times * (facts.load_seconds or 0.0)
    until_t = last_t + max(policy.cooldown_seconds, loads)
    if facts.t >= until_t:
        return None
    text = f"last restarted {clock(last_t)}; the next may come {clock(until_t)}"
    return Refusal(gate="cooldown", text=text, until_t=until_t)


def budget(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """So many in an hour and in a day, whatever asks: a restart that is needed again is no cure."""
    limits = (
        (policy.budget_per_hour, HOUR_SECONDS, "hour"),
        (policy.budget_per_day, DAY_SECONDS, "day"),
    )
    for limit, seconds, name in limits:
        times = sorted(t for each in _spent(facts) if (t := _touched_t(each)) > facts.t - seconds)
        if len(times) >= limit:
            until_t = times[len(times) - limit] + seconds if limit else None
            text = f"{len(times)} of {limit} restarts in the last {name} are spent"
            return Refusal(gate="budget", text=text, until_t=until_t)
    return None


def breaker(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Did the last one help? Only a person may try again where it did not, or for the same incident."""
    ended = [each for each in facts.attempts or () if each.spent and not each.open]
    if not ended or request.person is not None:
        return None
    last = max(ended, key=_touched_t)
    if last.opens_breaker and _touched_t(last) > facts.breaker_reset_t:
        text = f"the last restart ({clock(_touched_t(last))}) {_ended(last)}; a person must decide"
        return Refusal(gate="breaker", text=text)
    served = [each for each in ended if _served(request, each)]
    if served and _touched_t(served[-1]) > facts.breaker_reset_t:
        text = f"this incident has had its restart ({clock(_touched_t(served[-1]))}); another is for a person"
        return Refusal(gate="breaker", text=text)
    return None


def _served(request: RestartRequest, attempt: Attempt) -> bool:
    """Was this one made for the very incident that asks, and may it have touched the server?"""
    same = (request.target, request.incident_id) == (attempt.target, attempt.incident_id)
    return same and request.incident_id is not None and attempt.state != "failed"


def start_failure(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """A start that can not succeed is not tried again."""
    if facts.start_failure is None:
        return None
    text = f"it cannot start as it is configured: {facts.start_failure}"
    return Refusal(gate="start_failure", text=text)


def new_version(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """A new version of the watcher looks on for a while before it acts by itself."""
    if request.person is not None or policy.mode != "auto":
        return None
    if facts.version_first_t is None:
        return Refusal(gate="new_version", text="it is not known since when this version runs")
    until_t = facts.version_first_t + policy.new_version_seconds
    if facts.t >= until_t:
        return None
    text = f"this version of vllm-watch is new here and only looks on until {clock(until_t)}"
    return Refusal(gate="new_version", text=text, until_t=until_t)


def protection(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Acting by itself needs something that keeps two engines from being restarted at once."""
    if request.person is not None or policy.mode != "auto":
        return None
    if policy.blockers or policy.has_lock or not policy.peers_matter:
        return None
    text = "mode auto needs a blocker query, a lock, or an explicit peers: none"
    return Refusal(gate="protection", text=text)


def peers(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Would enough of the group be left to serve?"""
    if not policy.peers_matter:
        return None
    seen = facts.peers
    if seen is None:
        return Refusal(gate="peers", text="it is not known how its peers are")
    if seen.total <= 1:
        return None
    needed = policy.peers_healthy_ratio_min * seen.total
    if seen.healthy >= needed:
        return None
    unknown = f", {seen.unknown} unknown" if seen.unknown else ""
    text = (
        f"{seen.healthy} of {seen.total} in the group would be left healthy{unknown};"
        f" {policy.peers_healthy_ratio_min:.0%} must be"
    )
    return Refusal(gate="peers", text=text)


def hook(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Would the hook restart this very server, and would anything start it again?"""
    answer = facts.hook_answer
    if answer is not None and answer.free is not True:
        return Refusal(gate="hook", text=f"the hook {answer.name} refuses: {answer.text}")
    return None


def blockers(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """An answer that could not be had blocks like a no."""
    for answer in facts.blockers or ():
        if answer.free is not True:
            return Refusal(gate="blockers", text=f"{answer.name}: {answer.text}")
    return None


def lock(request: RestartRequest, policy: Policy, facts: Facts) -> Refusal | None:
    """Does whoever may restart one of this group's or fleet's servers now let us be the one?"""
    if facts.lock is not None and facts.lock.free is not True:
        return Refusal(gate="lock", text=f"{facts.lock.name}: {facts.lock.text}")
    return None


GATES: tuple[tuple[str, Gate], ...] = tuple(
    (gate.__name__, gate)
    for gate in (
        mode, trigger, pause, freeze, window, engine_state, journal, under_way, cooldown, budget,
        breaker, start_failure, new_version, protection, peers,
    )
)  # fmt: skip
ASKED_GATES: tuple[tuple[str, Gate], ...] = (
    ("hook", hook), ("blockers", blockers), ("lock", lock),
)  # fmt: skip
SLUGS = (*(name for name, _ in (*GATES, *ASKED_GATES)), "approval")
"""Every value of the label `blocker`."""


def _spent(facts: Facts) -> list[Attempt]:
    """What counts: an intent, too, until it is cancelled, or two of a group could pass at once."""
    return [attempt for attempt in facts.attempts or () if attempt.spent or attempt.open]


def _touched_t(attempt: Attempt) -> float:
    return attempt.began_t if attempt.called_t is None else attempt.called_t


def _ended(attempt: Attempt) -> str:
    words = {
        "did_not_help": "did not help",
        "failed": "failed",
        "uncertain": "may not have happened",
    }
    return words[attempt.state] + (f" ({attempt.text})" if attempt.text else "")


def clock(t: float) -> str:
    """Return a Unix time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S}Z"
