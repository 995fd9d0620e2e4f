"""What must never happen, judged from outside: by what the site has seen, not by what the watcher says of itself."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.restart.virtual import CLOCK
from tests.restart.virtual_engines import Process
from vllm_watch.incidents.incident import Incident
from vllm_watch.restart.hooks.base import FAILED, HookCall
from vllm_watch.restart.restart import RETRIES_MAX
from vllm_watch.state.attempt import Attempt

if TYPE_CHECKING:
    from tests.restart.virtual_site import Made, Site

HOUR_SECONDS = 3600.0
SCHEDULE_SECONDS, UPTIME_SECONDS = 600, 300.0
BUDGET_PER_HOUR, PEERS_RATIO = 3, 0.5
COOLDOWN_SECONDS = 40.0
"""Longer than a verification that helps: until that has ended the lock holds up the next by itself."""

RESTART: dict[str, Any] = {
    "hook": "h", "cooldown_seconds": COOLDOWN_SECONDS, "cooldown_load_times": 0, "budget_per_hour": BUDGET_PER_HOUR,
    "budget_per_day": 10, "peers_healthy_ratio_min": PEERS_RATIO, "new_version_seconds": 0,
    "drain": {"deadline_seconds": 8}, "verify": {"start_seconds": 40, "settle_seconds": 5},
    "lock": {"kind": "file", "ttl_seconds": 30, "restarts_per_hour_max": None},
}  # fmt: skip

FOLLOWS = {
    "intent": ("calling", "cancelled"),
    "calling": ("verifying", "failed", "uncertain", "cancelled", "helped", "did_not_help"),
    "verifying": ("helped", "did_not_help", "uncertain"),
    "uncertain": ("helped", "did_not_help"),
    "helped": (), "did_not_help": (), "failed": (), "cancelled": (), "dry_run": (),
}  # fmt: skip
"""What the journal may have of an attempt after what; the disk may have missed the states between."""


def of_call(site: "Site", call: HookCall, settings: Any, made: "Made") -> Iterator[str]:
    """What is wrong with this call."""
    attempt = site.wrote.get(call.attempt_id)
    if attempt is None or attempt.state != "calling":
        yield f"called without a `calling` on the disk: {attempt}"
        return
    yield from _twice(site, call, made)
    yield from _configured(site, call, settings)
    yield from _another_process(site, call, made)
    yield from _not_found(site, attempt)
    yield from _wanted(site, attempt, made)
    yield from _limits(site, attempt, made)


def _twice(site: "Site", call: HookCall, made: "Made") -> Iterator[str]:
    before = [each for each in site.calls if each.attempt == call.attempt_id]
    alive = all(each.watcher is made.watcher and each.outcome == FAILED for each in before)
    if before and not (alive and len(before) <= RETRIES_MAX):
        yield f"two calls for one intent: {call.attempt_id}"


def _configured(site: "Site", call: HookCall, settings: Any) -> Iterator[str]:
    (hook,) = site.config.hooks.command
    if site.settings.urls.get(call.target) != call.url:
        yield f"called with {call.target} at {call.url}, which is not configured (any more)"
    if settings != hook:
        yield "called with the program of an older configuration"


def _another_process(site: "Site", call: HookCall, made: "Made") -> Iterator[str]:
    decided = site.decided.get(call.attempt_id, {}).get(call.target, [])
    last = site.last.get(call.target)
    if call.target in site.silent[call.attempt_id] and (last is None or last.process is None):
        return  # who is replaced while nothing answers cannot be known
    if made.process is not None and made.process not in decided:
        yield f"called on {_name(made.process)}, decided about {' or '.join(map(_name, decided))}"


def _not_found(site: "Site", attempt: Attempt) -> Iterator[str]:
    last = site.last.get(attempt.target)
    if attempt.trigger != "incident":
        return
    if last is None or not last.sick:
        yield f"called for an incident that the last scrape did not find: {last}"
    if attempt.target in site.common:
        yield f"a common outage restarts {attempt.target}"


def _wanted(site: "Site", attempt: Attempt, made: "Made") -> Iterator[str]:
    trigger, mode, person = attempt.trigger, site.settings.mode, attempt.actor == "anna"
    by_person = trigger == "manual" or (trigger == "incident" and person)
    if mode == "off" or (mode in ("approve", "observe") and not by_person):
        yield f"called in mode {mode} by {trigger}"
    if trigger == "incident" and person and attempt.incident_id not in site.approved:
        yield "called with an approval that nobody gave"
    if trigger == "incident" and not person and attempt.incident_id in site.silenced:
        yield "called for an incident that a person has silenced"
    if site.paused:
        yield "called while a person has paused restarts"
    if trigger == "schedule" and made.process is not None:
        up_s = made.t - made.process.start_t
        if up_s < UPTIME_SECONDS:
            yield f"a schedule called a process of {up_s:.0f} s"
    if trigger == "alertmanager":
        yield from _older_than_a_cure(site, attempt)


def _older_than_a_cure(site: "Site", attempt: Attempt) -> Iterator[str]:
    asked = site.asked.get(attempt.target)
    cured = [
        each.at_s for each in site.calls
        if each.target == attempt.target and each.attempt != attempt.id and site.wrote[each.attempt].state == "helped"
    ]  # fmt: skip
    if asked is not None and any(asked[0] < at_s for at_s in cured):
        yield f"an alert of {asked[0]:.0f} s restarts what was cured at {cured[-1]:.0f} s"


def _limits(site: "Site", attempt: Attempt, made: "Made") -> Iterator[str]:
    # A clock that was set hides nothing and holds nothing up: both must agree that it is too soon.
    ages = {
        each.attempt: max(made.at_s - each.at_s, made.t - each.t)
        for each in reversed(site.calls) if each.attempt != attempt.id
    }  # fmt: skip
    spent = [age_s for age_s in ages.values() if age_s < HOUR_SECONDS]
    if len(spent) >= BUDGET_PER_HOUR:
        yield f"{len(spent) + 1} restarts in an hour, of {BUDGET_PER_HOUR}"
    if any(age_s < COOLDOWN_SECONDS for age_s in ages.values()):
        yield f"called {min(ages.values()):.1f} s after the last restart"
    freeze = site.freeze
    if freeze is not None and freeze[0] <= made.t < freeze[1]:
        yield "called while restarts are frozen"
    yield from _peers(site, attempt.target)
    lost_s, ttl_s = site.lost_s, RESTART["lock"]["ttl_seconds"]
    if site.others_hold and lost_s is not None and made.at_s - lost_s > ttl_s:
        yield "called under a lock that another watcher holds"
    if site.others_hold and lost_s is None:
        yield "called while another watcher holds the lock"


def _peers(site: "Site", target: str) -> Iterator[str]:
    if site.settings.peers == "none":
        return
    own = site.settings.urls.get(target)
    others = {name: url for name, url in site.settings.urls.items() if url != own}
    healthy = sum(
        1 for name in others if (last := site.last.get(name)) is not None and last.process is not None and not last.sick
    )  # fmt: skip
    if others and healthy < PEERS_RATIO * (len(others) + 1):
        yield f"{healthy} of {len(others) + 1} in the group would be left healthy"


def of_write(site: "Site", before: Attempt | None, attempt: Attempt) -> Iterator[str]:
    """What is wrong with this row of the journal."""
    if before is not None and attempt.state not in (before.state, *FOLLOWS[before.state]):
        yield f"{before.state} became {attempt.state}"
    called = [each for each in site.calls if each.attempt == attempt.id]
    if called and attempt.state in ("cancelled", "intent", "dry_run"):
        yield f"what was called is written down as {attempt.state}"
    decided = site.decided.get(attempt.id, {}).get(attempt.target, [None])[0]
    engine = site.of(attempt.target)
    now = None if engine is None else engine.process
    if attempt.state == "helped" and decided and now and decided.model != now.model:
        yield "another model came back, and is said to have helped"


def of_page(site: "Site", incident: Incident) -> Iterator[str]:
    """What is wrong with this page."""
    if incident.target in site.common:
        yield f"a common outage pages for {incident.target} by itself"


def of_board(site: "Site") -> Iterator[str]:
    """What is advised although the last scrape did not find it."""
    if site.watcher is None:
        return
    for name, entry in site.watcher.board.targets.items():
        last = site.last.get(name)
        if entry.looked is None or last is None or last.began_s < entry.looked.monotonic_s:
            continue
        for each in entry.incidents.open.values():
            if each.restart_advised and each.firing and not last.sick:
                yield f"a restart of {name} is advised for what the last scrape did not find: {each.summary}"


def of_the_sick(site: "Site") -> Iterator[str]:
    """Whom nobody has paged for, although nothing stands in the way."""
    assert site.watcher is not None
    board = site.watcher.board
    for name in site.settings.urls:
        engine, busy = (
            site.of(name),
            site.watcher.restarts.dispatcher.attempts.ledger.busy.get(name),
        )
        if engine is None or engine.serves or busy:
            continue  # a restart that is being verified ends in a page where it did not help
        incidents = board.targets[name].incidents.open
        own = board.own.incidents.open.values()
        common = [each for each in own if not incidents.keys().isdisjoint(each.related)]
        told = (*incidents.values(), *common)
        if not any(each.severity == "page" and each.firing for each in told):
            yield f"{name} is sick, and not paged for"


def to_restart(site: "Site") -> Iterator[str]:
    """Who is sick, is advised a restart of, and nothing is against it."""
    assert site.watcher is not None
    now_s, now_t = CLOCK.monotonic_s, CLOCK.time()
    ages = [min(now_s - each.at_s, now_t - each.t) for each in site.calls]
    if any(age_s < COOLDOWN_SECONDS for age_s in ages):
        return
    aged = zip(site.calls, ages, strict=True)
    if len({each.attempt for each, age_s in aged if age_s < HOUR_SECONDS}) >= BUDGET_PER_HOUR:
        return
    since = [each for each in site.calls if each.at_s >= site.resumed_s]
    if any(site.wrote[each.attempt].state != "helped" for each in since):
        return  # the breaker is open, or it is not known yet
    for name in site.settings.urls.keys() - {each.target for each in since}:
        advised = any(
            each.firing and each.restart_advised and each.id not in site.silenced
            for each in site.watcher.board.targets[name].incidents.open.values()
        )
        engine = site.of(name)
        if advised and engine is not None and not engine.serves and not [*_peers(site, name)]:
            yield name


def _name(process: Process | None) -> str:
    return "nobody" if process is None else f"process {process.number} of {process.start_t:.3f}"
