"""The guard's checks. Each returns why a server must not be restarted now, or None.

Sources: kured, Home Assistant's supervisor, medik8s, NVSentinel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from vllm_watch.incidents.incident import ACTIVE, Incident
from vllm_watch.restart.facts import Facts, RestartRequest
from vllm_watch.settings import restart_times
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.state.attempt import Attempt

HOUR_SECONDS, DAY_SECONDS = 3600.0, 86400.0

NOT_RESTARTABLE = {
    "starting": "it is still loading; a restart would begin the load again",
    "sleeping": "it serves no requests on purpose, or until an operation in progress ends",
    "unknown": "its state is not known",
}
"""States in which a restart does not help. A person may override only the state `unknown`."""

WORKS = frozenset(("serving", "prefilling", "overloaded", "collapsed"))
"""States in which an engine makes progress. `idle` is left out, because an idle rank proves
nothing about its gang."""

NOT_URGENT_KINDS = frozenset({"host_memory_growth"})
"""Incidents of these kinds do no harm for hours, so their restart waits for a window."""

_ENDED = {
    "did_not_help": "did not help",
    "failed": "failed",
    "uncertain": "may not have happened",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one check refuses."""

    text: str
    until_t: float | None = None


Check = Callable[[RestartRequest, RestartSettings, Facts], Refusal | None]


def mode(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """Restarts must be enabled, and a hook must be set."""
    if settings.mode == "off":
        return Refusal("restarts are off (restart.mode)")
    if not settings.hook:
        return Refusal("no hook is configured (restart.hook)")
    return None


def trigger(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """The trigger must be enabled, and its reason must still apply."""
    if request.trigger == "manual":
        return None if facts.revoked is None else Refusal(facts.revoked)
    text = facts.stale
    if request.trigger not in settings.triggers:
        text = f"the trigger {request.trigger} is disabled (restart.triggers)"
    elif request.trigger == "incident":
        text = _incident_refusal(request, facts) or text
    else:
        text = text or facts.replaced or facts.condition
    return None if text is None else Refusal(text)


def _incident_refusal(request: RestartRequest, facts: Facts) -> str | None:
    incident = facts.incident
    if incident is None:
        return "the incident is no longer known"
    over = trouble_over(incident)
    if over is not None:
        return over
    if not incident.firing:
        return "the last scrape no longer shows the incident"
    if request.person is not None:
        return None
    if not incident.advises_restart_of(facts.asker or request.target):
        return f"no restart is known to cure {_what(request)}"
    if facts.silenced:
        return "the incident was silenced by a person"
    return None


def trouble_over(incident: Incident) -> str | None:
    """Return why the incident no longer needs a restart, else None."""
    if not incident.open:
        return "the incident has ended"
    if incident.phase == ACTIVE:
        return None
    since = "" if incident.ended_t is None else f" since {clock(incident.ended_t)}"
    return f"the trouble is over{since}; the incident is recovering"


def _what(request: RestartRequest) -> str:
    return f"{request.kind or 'this'} ({request.cause or 'unknown cause'})"


def pause(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """Restarts must not be paused by a person."""
    held = facts.pause
    if held is None:
        return None
    until_t = held.until_timestamp_seconds
    if until_t is not None and until_t <= facts.t:
        return None
    return Refusal(f"paused by {held.actor}: {held.reason}", until_t)


def freeze(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """Unless a person overrides this check, the time must not be in a freeze or deny_window."""
    if request.person is not None and request.override_reason:
        return None
    holding = (
        (each.end.timestamp(), each.reason)
        for each in settings.freezes
        if each.begin.timestamp() <= facts.t < each.end.timestamp()
    )
    end_t, reason = max(holding, default=(None, ""))
    if end_t is not None:
        return Refusal(f"frozen until {clock(end_t)}: {reason or 'no reason given'}", end_t)
    denied = tuple(map(restart_times.parse_window, settings.deny_windows))
    end_t = restart_times.open_until(denied, settings.zone, facts.t, longer=True)
    if end_t is not None:
        return Refusal(f"no restarts in this window, until {clock(end_t)}", end_t)
    return None


def window(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """If restart.windows is set, the time must be in one of the windows."""
    if request.person is not None and request.override_reason:
        return None
    if not settings.windows:
        return _not_urgent(request, settings)
    allowed = tuple(map(restart_times.parse_window, settings.windows))
    opens_t = restart_times.next_open(allowed, settings.zone, facts.t)
    if opens_t is None:
        return Refusal("no window for restarts ever opens")
    if opens_t > facts.t:
        text = f"outside the windows for restarts; the next opens {clock(opens_t)}"
        return Refusal(text, opens_t)
    return None


def _not_urgent(request: RestartRequest, settings: RestartSettings) -> Refusal | None:
    by_itself = request.trigger == "incident" and request.person is None
    if not by_itself or settings.mode == "approve" or request.kind not in NOT_URGENT_KINDS:
        return None
    text = f"{_what(request)} is not urgent: it needs a window (restart.windows), and none is configured"
    return Refusal(text)


def engine_state(
    request: RestartRequest, settings: RestartSettings, facts: Facts
) -> Refusal | None:
    """The server must not be loading or deliberately inactive."""
    state = facts.state or "unknown"
    if (
        facts.asker is not None
        and request.trigger != "schedule"
        and request.person is None
        and state in WORKS
    ):
        return Refusal(
            f"it is {state}: the gang is not stuck, and a restart would abort its requests"
        )
    if state not in NOT_RESTARTABLE or (state == "unknown" and request.person is not None):
        return None
    return Refusal(f"the engine is {state}: {NOT_RESTARTABLE[state]}")


def journal(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """The journal must work."""
    if facts.journal_refusal is not None:
        return Refusal(f"the journal cannot be written: {facts.journal_refusal}")
    if facts.attempts is None:
        return Refusal("the journal of earlier attempts cannot be read")
    return None


def under_way(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """No other attempt for the server may be running or in verification."""
    if facts.busy is not None:
        return Refusal(f"attempt {facts.busy} is not verified yet")
    for attempt in facts.attempts or ():
        if attempt.open and request.target in attempt.names:
            return Refusal(
                f"attempt {attempt.id} has been under way since {clock(attempt.began_t)}"
            )
    return None


def cooldown(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """The group's last restart must have had time to take effect."""
    last_t = max((each.acted_t for each in _counted(facts)), default=None)
    if last_t is None:
        return None
    startups = settings.cooldown_load_times * (facts.startup_seconds or 0.0)
    until_t = last_t + max(settings.cooldown_seconds, startups)
    if facts.t >= until_t:
        return None
    return Refusal(
        f"last restarted {clock(last_t)}; the next restart is allowed from {clock(until_t)}",
        until_t,
    )


def budget(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """Restarts are limited per hour and per day. A restart that must be repeated does not cure the fault."""
    limits = (
        (settings.budget_per_hour, HOUR_SECONDS, "hour"),
        (settings.budget_per_day, DAY_SECONDS, "day"),
    )
    for limit, seconds, name in limits:
        times = sorted(t for each in _counted(facts) if (t := each.acted_t) > facts.t - seconds)
        if len(times) >= limit:
            until_t = times[len(times) - limit] + seconds if limit else None
            text = f"{len(times)} of {limit} restarts in the last {name} are spent"
            return Refusal(text, until_t)
    return None


def breaker(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """After a restart, only a person may request another for the same incident.

    If it is not known that the last restart helped, only a person may request any restart.
    """
    ended = [each for each in facts.attempts or () if each.spent and not each.open]
    if not ended or request.person is not None:
        return None
    last = max(ended, key=lambda each: each.acted_t)
    if last.opens_breaker and last.acted_t > facts.breaker_reset_t:
        how = _ENDED[last.state] + (f" ({last.text})" if last.text else "")
        return Refusal(f"the last restart ({clock(last.acted_t)}) {how}; a person must decide")
    served = [each for each in ended if _served(request, each)]
    if served and served[-1].acted_t > facts.breaker_reset_t:
        text = f"this incident has already had a restart ({clock(served[-1].acted_t)}); only a person may order another"
        return Refusal(text)
    return None


def _served(request: RestartRequest, attempt: Attempt) -> bool:
    same = (request.target, request.incident_id) == (attempt.target, attempt.incident_id)
    return same and request.incident_id is not None and attempt.state != "failed"


def start_failure(
    request: RestartRequest, settings: RestartSettings, facts: Facts
) -> Refusal | None:
    """The last start must not have failed for a reason that would also make the next start fail."""
    if facts.start_failure is None:
        return None
    return Refusal(f"it cannot start with its configuration: {facts.start_failure}")


def new_version(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """A new version of the watcher only observes at first."""
    if request.person is not None or settings.mode != "auto":
        return None
    if facts.version_first_t is None:
        return Refusal("the time of the first run of this version is unknown")
    until_t = facts.version_first_t + settings.new_version_seconds
    if facts.t >= until_t:
        return None
    text = f"this version of vllm-watch is new here and only observes until {clock(until_t)}"
    return Refusal(text, until_t)


def protection(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """In mode auto, something must prevent two restarts at once."""
    if request.person is not None or settings.mode != "auto" or settings.protected:
        return None
    return Refusal("mode auto needs a blocker query, a lock, or an explicit peers: none")


def peers(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """Enough other servers of the group must be healthy."""
    if settings.peers == "none":
        return None
    seen = facts.peers
    if seen is None:
        return Refusal("the health of its peers is unknown")
    least = settings.peers_healthy_ratio_min
    if seen.total <= 1 or seen.healthy >= least * seen.total:
        return None
    unknown = f", {seen.unknown} unknown" if seen.unknown else ""
    text = (
        f"{seen.healthy} of {seen.total} in the group would stay healthy{unknown}; {least:.0%} must"
    )
    return Refusal(text)


def hook(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """The hook must recognize this server, and know that something starts the server again."""
    answer = facts.hook
    if answer is not None and answer.allows is not True:
        return Refusal(f"the hook {answer.name} refuses: {answer.text}")
    return None


def blockers(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """Every blocker in Prometheus must answer and allow the restart."""
    for answer in facts.blockers or ():
        if answer.allows is not True:
            return Refusal(f"{answer.name}: {answer.text}")
    return None


def gang(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """Every other member of the gang (ranks that step together) must also pass these checks."""
    for answer in facts.gang or ():
        if answer.allows is not True:
            return Refusal(f"{answer.name} of its gang: {answer.text}")
    return None


def lock(request: RestartRequest, settings: RestartSettings, facts: Facts) -> Refusal | None:
    """The lock must be free."""
    if facts.lock is not None and facts.lock.allows is not True:
        return Refusal(f"{facts.lock.name}: {facts.lock.text}")
    return None


CHECKS: tuple[Check, ...] = (
    mode, trigger, pause, freeze, window, engine_state, journal, under_way, cooldown, budget,
    breaker, start_failure, new_version, protection, peers,
)  # fmt: skip
ASKED: tuple[Check, ...] = (hook, blockers, gang, lock)
"""Checks that call other programs. They run after all others have passed."""


def _counted(facts: Facts) -> list[Attempt]:
    """Open attempts also count, so that a second server of the group waits."""
    return [attempt for attempt in facts.attempts or () if attempt.spent or attempt.open]


def clock(t: float) -> str:
    """Format Unix seconds in UTC."""
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S}Z"
