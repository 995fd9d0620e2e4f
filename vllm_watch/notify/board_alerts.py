"""Derive alerts from the board's results."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from vllm_watch.board.board import Board, TargetEntry
from vllm_watch.board.restarts import AttemptShown, RestartPlan, Waiting
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents.fleet import KIND as FLEET_KIND
from vllm_watch.incidents.incident import Incident
from vllm_watch.notify.alert import RESTART, UNREADABLE, Alert
from vllm_watch.story.kinds import story_of

BLIND_INTERVALS = 10.0
"""If a target is not scraped for this many intervals, the watcher has failed."""

FORGOTTEN_SECONDS = 600.0
"""Once the watcher has run for this long, incidents missing from the board count as ended. Targets are found within two minutes."""

_QUIET = frozenset(("starting", "sleeping", "down"))
"""In these states, missing metrics are normal or have their own incident."""

_TICKETS = frozenset(("approval", "breaker", "did_not_help", "failed", "uncertain"))
_ENDS = ("helped", "did_not_help", "failed", "uncertain", "cancelled", "dry_run")
_STEP_OF_VERDICT = {"approve": "approval", "refuse": "refused", "wait": "refused"}


@dataclass(slots=True, eq=False)
class BoardAlerts:
    """Reads alerts from the board. `silenced` returns True for the id of a silenced incident."""

    board: Board
    silenced: Callable[[str], bool]
    unreadable_seconds: float
    _began_t: float = field(default_factory=time.time, init=False)

    def now(self, lasting: Iterable[Alert]) -> list[Alert]:
        """Return all current alerts. `lasting` are the alerts that were last reported as open."""
        now_t, board = time.time(), self.board
        common = {each.id for each in board.own.incidents.open.values() if each.kind == FLEET_KIND}
        unreadable = {
            each.incident.target: each.incident for each in lasting if each.about == UNREADABLE
        }
        found = []
        for entry in board.all_entries():
            for each in entry.incidents.open.values():
                inhibited = each.severity != "page" and not common.isdisjoint(each.related)
                # The recurring fault was already reported, and its count has not doubled since.
                inhibited |= each.recurring is not None and each.recurring.told
                found.append(Alert(
                    incident=each, group=entry.target.group, restart=self._restart(each),
                    silenced=self.silenced(each.id), inhibited=inhibited,
                ))  # fmt: skip
        for name, entry in board.targets.items():
            if entry.restart is not None:
                found += _steps(entry, entry.restart, now_t)
            found += self._unreadable(entry, unreadable.get(name), now_t)
        return found

    def ended(self, alert: Alert) -> Alert | None:
        """Return the alert as ended, or None while its end is unknown."""
        now_t, incident = time.time(), alert.incident
        old = now_t - self._began_t >= FORGOTTEN_SECONDS
        if alert.about == UNREADABLE:
            entry = self.board.targets.get(incident.target)
            if (entry is None and not old) or (entry is not None and entry.signals is None):
                return None
            resolution = "target_gone" if entry is None else "healthy"
            return _over(alert, now_t, resolution, incident.summary)
        known = self.board.incidents.find(alert.id)
        if known is None:
            return _over(alert, now_t, "unknown", incident.summary) if old else None
        if known.resolved_t is None:
            return None
        over = _over(alert, known.resolved_t, known.resolution or "", known.summary)
        return replace(over, incident=replace(over.incident, requests_lost=known.requests_lost))

    def _restart(self, incident: Incident) -> str:
        names = incident.restart_targets or (incident.target,)
        entries = {name: self.board.targets[name] for name in names if name in self.board.targets}
        said = {name: _restart_words(incident, entry.restart) for name, entry in entries.items()}
        if len(said) == 1:
            return next(iter(said.values()))
        return " ".join(f"{name}: {words}" for name, words in said.items())

    def _unreadable(
        self, entry: TargetEntry, told: Incident | None, now_t: float
    ) -> Iterator[Alert]:
        why = _why_unreadable(entry, now_t)
        if why is None or any(each.kind == FLEET_KIND for each in entry.incidents.open.values()):
            return
        metrics = entry.sources.get("metrics")
        last_t = metrics.last_success_timestamp_seconds if metrics else None
        since_t = told.opened_t if told is not None else last_t or self._began_t
        if told is not None or now_t - since_t >= self.unreadable_seconds:
            alert_id, (cause, summary) = f"unreadable-{since_t:.0f}-{entry.target.name}", why
            incident = Incident(
                id=alert_id, target=entry.target.name, engine=None, kind="target_unreadable",
                cause=cause, severity="ticket", summary=summary, opened_t=since_t, updated_t=now_t, began_t=since_t,
            )  # fmt: skip
            yield Alert(incident=incident, about=UNREADABLE, group=entry.target.group)


def _over(alert: Alert, t: float, resolution: str, summary: str) -> Alert:
    over = replace(alert.incident, resolved_t=t, resolution=resolution, summary=summary)
    return replace(alert, incident=over)


def _why_unreadable(entry: TargetEntry, now_t: float) -> tuple[str, str] | None:
    signals = entry.signals
    seen_t = None if signals is None else signals.t
    if seen_t is not None and now_t - seen_t > BLIND_INTERVALS * entry.interval_seconds:
        return (
            "not_looked_at",
            "vllm-watch does not scrape this target: the watcher hangs, fails or has no CPU",
        )
    if signals is None or signals.up or signals.state in _QUIET:
        return None
    return signals.outcome, f"its metrics cannot be read: {signals.state_text}"


_TRIGGERS = {
    "incident": "for its incident",
    "schedule": "on schedule",
    "alertmanager": "for an alert",
}


def _restart_words(incident: Incident, plan: RestartPlan | None) -> str:
    if plan is not None and plan.under_way is not None:
        return f"one is under way: {plan.under_way.text}"
    if not incident.restart_advised:
        story = story_of(incident.kind, incident.target)
        return story.restart_of(incident.cause, advised=False, after_s=incident.advised_after_s)
    if plan is None:
        return "advised; do it by hand, because automatic restarts are off."
    wish = next((each for each in plan.waiting if each.incident_id == incident.id), None)
    if wish is None or wish.verdict is None:
        return (
            "advised; do it by hand: vllm-watch is in mode observe and will not."
            if plan.mode == "observe"
            else "advised."
        )
    if wish.verdict == "approve":
        return f"advised, and waiting for approval: vllm-watch approve {incident.id}"
    return f"advised, but blocked by {wish.gate}: {wish.text}"


def _steps(entry: TargetEntry, plan: RestartPlan, now_t: float) -> Iterator[Alert]:
    under_way, last = plan.under_way, plan.last
    if under_way is not None and under_way.called_timestamp_seconds is not None:
        t = under_way.called_timestamp_seconds
        yield _step(entry, under_way.id, "begun", t, _of(under_way), under_way.incident_id)
    if last is not None and last.state in _ENDS:
        t = last.ended_timestamp_seconds or last.began_timestamp_seconds
        step = last.state
        text = _of(last) if step == "dry_run" else f"{last.text} ({_of(last)})"
        yield _step(entry, last.id, step, t, text, last.incident_id)
        if plan.breaker is not None and step in ("did_not_help", "failed", "uncertain"):
            yield _step(entry, last.id, "breaker", t, plan.breaker, last.incident_id)
    for wish in plan.waiting:
        wished = _STEP_OF_VERDICT.get(wish.verdict or "")
        if wished is not None:
            name = f"{_wish(wish)}-{wish.gate}" if wished == "refused" else _wish(wish)
            text = f"{wish.text} ({_asked(wish.trigger, 'hand')}: {wish.reason})"
            yield _step(entry, name, wished, now_t, text, wish.incident_id)


def _step(
    entry: TargetEntry, name: str, step: str, t: float, text: str, incident_id: str | None
) -> Alert:
    of: tuple[str, ...] = () if incident_id is None else (incident_id,)
    incident = Incident(
        id=f"restart-{name}-{step}", target=entry.target.name, engine=None, kind="restart",
        cause=step, severity="ticket" if step in _TICKETS else "info", summary=text,
        evidence_for=tuple(Evidence(name="incident", value=each, text=f"incident {each}") for each in of),
        related=of, opened_t=t, updated_t=t, began_t=t,
    )  # fmt: skip
    return Alert(incident=incident, about=RESTART, group=entry.target.group)


def _wish(wish: Waiting) -> str:
    return wish.incident_id or f"{wish.schedule or wish.trigger}-{wish.asked_timestamp_seconds:.0f}"


def _of(attempt: AttemptShown) -> str:
    return f"{_asked(attempt.trigger, attempt.actor)}: {attempt.reason}"


def _asked(trigger: str, actor: str) -> str:
    return _TRIGGERS.get(trigger) or f"requested by {actor}"
