"""What the board shows, as matters that people may be told of: incidents, steps of restarts, unreadable targets."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from vllm_watch.board.board import Board, TargetEntry
from vllm_watch.board.restarts import AttemptShown, RestartPlan, Waiting
from vllm_watch.incidents.fleet import KIND as FLEET_KIND
from vllm_watch.incidents.incident import Incident
from vllm_watch.notify.matter import INCIDENT, RESTART, UNREADABLE, Matter

BLIND_INTERVALS = 10.0
"""A look is bounded by its interval: after ten without one it is the watcher that does not look."""

FORGOTTEN_SECONDS = 600.0
"""An incident that somebody was told of, and of which the board has known nothing since the start for so long,
is over: a target that is still watched is found within two minutes."""

_QUIET = frozenset(("starting", "sleeping", "down"))
"""States in which nobody can read it, and that are no trouble or told as an incident."""

_TICKETS = frozenset(("approval", "breaker", "did_not_help", "failed", "uncertain"))
_ENDS = ("helped", "did_not_help", "failed", "uncertain", "cancelled", "dry_run")
_STEP_OF_VERDICT = {"approve": "approval", "refuse": "refused", "wait": "refused"}


class Facts:
    """Reads the board. `silenced` says of an incident's id whether a person wants to hear no more of it."""

    def __init__(
        self, board: Board, silenced: Callable[[str], bool], unreadable_seconds: float
    ) -> None:
        self._board = board
        self._silenced = silenced
        self.unreadable_seconds = unreadable_seconds
        self._began_t = time.time()

    def matters(self, lasting: Mapping[str, Matter]) -> list[Matter]:
        """All that is so now. `lasting`: what somebody was told is open."""
        now_t = time.time()
        common = {
            each.id for each in self._board.own.incidents.open.values() if each.kind == FLEET_KIND
        }
        told_unreadable = {m.target: m for m in lasting.values() if m.about == UNREADABLE}
        shared = (self._board.own, self._board.host)
        found = [
            self._incident(each, None, ()) for of in shared for each in of.incidents.open.values()
        ]
        for name, entry in self._board.targets.items():
            found += [self._incident(each, entry, common) for each in entry.incidents.open.values()]
            if entry.restart is not None:
                found += _steps(entry, entry.restart, now_t)
            blind = self._unreadable(entry, told_unreadable.get(name), now_t)
            found += [] if blind is None else [blind]
        return found

    def ended(self, matter: Matter) -> Matter | None:
        """How a matter that is not open stands; None: not known yet."""
        if matter.about == UNREADABLE:
            entry = self._board.targets.get(matter.target)
            if entry is None and time.time() - self._began_t < FORGOTTEN_SECONDS:
                return None  # it may not have been found yet
            if entry is not None and entry.signals is None:
                return None  # not looked at yet
            resolution = "target_gone" if entry is None else "healthy"
            return replace(matter, ended_t=time.time(), resolution=resolution)
        known = self._board.incidents.find(matter.id)
        if known is not None and known.resolved_t is not None:
            end_t, resolution = known.resolved_t, known.resolution or ""
            return replace(matter, ended_t=end_t, resolution=resolution, summary=known.summary)
        if known is None and time.time() - self._began_t >= FORGOTTEN_SECONDS:
            return replace(matter, ended_t=time.time(), resolution="unknown")
        return None

    def _incident(
        self, incident: Incident, entry: TargetEntry | None, common: Collection[str]
    ) -> Matter:
        evidence = [each.text for each in incident.evidence_for]
        held = incident.severity != "page" and any(each in common for each in incident.related)
        return Matter(
            id=incident.id, about=INCIDENT,
            t=incident.opened_t,
            target=incident.target, group="" if entry is None else entry.target.group,
            engine=incident.engine, kind=incident.kind, cause=incident.cause,
            severity=incident.severity, summary=incident.summary,
            evidence=tuple(filter(None, evidence)), restart_advised=incident.restart_advised,
            restart="" if entry is None else _restart_words(incident, entry.restart),
            silenced=self._silenced(incident.id), held=held,
        )  # fmt: skip

    def _unreadable(self, entry: TargetEntry, told: Matter | None, now_t: float) -> Matter | None:
        """The target that cannot be read for long, or at which nobody looks, without an incident that says why."""
        why = _why_unreadable(entry, now_t)
        if why is None or any(each.kind == FLEET_KIND for each in entry.incidents.open.values()):
            return None
        cause, summary = why
        metrics = entry.sources.get("metrics")
        last_t = metrics.last_success_timestamp_seconds if metrics else None
        since_t = told.t if told is not None else last_t or self._began_t
        if told is None and now_t - since_t < self.unreadable_seconds:
            return None
        name = entry.target.name
        return Matter(
            id=f"unreadable-{since_t:.0f}-{name}", about=UNREADABLE,
            t=since_t, target=name, group=entry.target.group, kind="target_unreadable", cause=cause,
            severity="ticket", summary=summary,
        )  # fmt: skip


def _why_unreadable(entry: TargetEntry, now_t: float) -> tuple[str, str] | None:
    signals = entry.signals
    seen_t = None if signals is None else signals.t
    if seen_t is not None and now_t - seen_t > BLIND_INTERVALS * entry.interval_seconds:
        return (
            "not_looked_at",
            "vllm-watch itself does not look at it: it hangs, fails or has no CPU",
        )
    if signals is None or signals.up or signals.state in _QUIET:
        return None
    return signals.outcome, f"its metrics cannot be read: {signals.state_text}"


# --- restarts


def _restart_words(incident: Incident, plan: RestartPlan | None) -> str:
    """Is one advised, and what comes of it?"""
    if plan is not None and plan.under_way is not None:
        return f"one is under way: {plan.under_way.text}"
    if not incident.restart_advised:
        return "none is advised: it is not known to cure this."
    if plan is None:
        return "advised. It is not done by itself: restarts are off."
    wish = next((each for each in plan.waiting if each.incident_id == incident.id), None)
    if wish is None or wish.verdict is None:
        only = " Mode observe only says so." if plan.mode == "observe" else ""
        return f"advised.{only}"
    if wish.verdict == "approve":
        return f"advised, and waits for a yes: vllm-watch approve {incident.id}"
    return f"advised, and kept back by {wish.gate}: {wish.text}"


def _steps(entry: TargetEntry, plan: RestartPlan, now_t: float) -> Iterator[Matter]:
    """The steps that restarts of this target have come to; one that was told is known by its id."""
    under_way, last = plan.under_way, plan.last
    if under_way is not None and under_way.called_timestamp_seconds is not None:
        t = under_way.called_timestamp_seconds
        yield _step(entry, under_way.id, "begun", t, _of(under_way), under_way.incident_id)
    if last is not None and last.state in _ENDS:
        t = last.ended_timestamp_seconds or last.began_timestamp_seconds
        step = last.state
        yield _step(entry, last.id, step, t, f"{last.text} ({_of(last)})", last.incident_id)
        if plan.breaker is not None and step in ("did_not_help", "failed", "uncertain"):
            yield _step(entry, last.id, "breaker", t, plan.breaker, last.incident_id)
    for wish in plan.waiting:
        wished = _STEP_OF_VERDICT.get(wish.verdict or "")
        if wished is not None:
            name = f"{_wish(wish)}-{wish.gate}" if wished == "refused" else _wish(wish)
            text = f"{wish.text} (asked by {wish.trigger}: {wish.reason})"
            yield _step(entry, name, wished, now_t, text, wish.incident_id)


def _step(
    entry: TargetEntry, name: str, step: str, t: float, text: str, incident_id: str | None
) -> Matter:
    return Matter(
        id=f"restart-{name}-{step}", about=RESTART, t=t, target=entry.target.name,
        group=entry.target.group, kind="restart", cause=step,
        severity="ticket" if step in _TICKETS else "info", summary=text,
        evidence=() if incident_id is None else (f"incident {incident_id}",),
    )  # fmt: skip


def _wish(wish: Waiting) -> str:
    return wish.incident_id or f"{wish.schedule or wish.trigger}-{wish.asked_timestamp_seconds:.0f}"


def _of(attempt: AttemptShown) -> str:
    return f"asked by {attempt.trigger}, {attempt.actor}: {attempt.reason}"
