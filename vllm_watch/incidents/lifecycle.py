"""Turns verdicts into incidents, one for each problem from its first sign to its end.

A verdict that fires opens an incident at once, unless an active incident explains it. At the first
poll without that verdict, the incident is recovering. It resolves when the recovery has lasted long
enough, or when an incident of another kind replaces it.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from vllm_watch.detectors.base import CLEAR, FIRING, Verdict
from vllm_watch.incidents import incident, relations
from vllm_watch.incidents.followed import Followed, Life, family_of, worst_of
from vllm_watch.incidents.incident import Incident, IncidentEvent, Key, identity, stepped
from vllm_watch.incidents.lost import LostRequests
from vllm_watch.incidents.recurrence import QUIET_SECONDS_MAX, Recurrence
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.scales import FEW

STATE_VERSION = 3


@record
class Moment:
    """Data of a poll that incidents depend on."""

    t: float  # Unix seconds
    at_s: float  # on a timeline without clock steps
    up: bool
    process_start_time: float | None = None
    restarts: Mapping[str, int] = field(default_factory=dict)  # engine → counter resets
    samples: Sequence[EngineSample] = ()


class Lifecycle:
    """Follows the incidents of one target or host."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._followed: dict[Key, Followed] = {}
        self._found_since_s: dict[Key, float] = {}  # start of findings without an incident
        self._over: dict[Key, float] = {}  # time of the last published finding
        self._recurrence = Recurrence()
        self._lost = LostRequests()
        self._at_s: float | None = None
        self._usual_s = 0.0
        self._beside: tuple[Incident, ...] = ()
        self._meanwhile: dict[Key, str] = {}  # findings that an open incident explains
        self.opened: dict[str, int] = {}

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return tuple([followed.incident for followed in self._followed.values()])

    def update(
        self, moment: Moment, verdicts: Iterable[Verdict], beside: Iterable[Incident] = ()
    ) -> list[IncidentEvent]:
        """`beside` are the open incidents of the target's host and peers, or of the host's targets."""
        passed_s = 0.0
        if self._at_s is not None:
            passed_s = moment.at_s - self._at_s
            self._usual_s += (passed_s - self._usual_s) / (8.0 if self._usual_s else 1.0)
        self._at_s, self._beside = moment.at_s, tuple(beside)
        self._meanwhile = {}
        self._lost.look(moment.at_s, moment.samples, moment.restarts, well=not self._followed)
        for each in self._followed.values():
            each.lost(self._lost.since(each.lost_mark, moment.at_s))
        events: list[IncidentEvent] = []
        told = tuple(verdicts)
        if not (self._followed or self._found_since_s):
            told = told if FIRING in [verdict.state for verdict in told] else ()
        for verdict in sorted(told, key=lambda each: relations.rank(each.kind)):
            key = verdict.kind, verdict.engine
            if verdict.state == FIRING and verdict.present:
                events += self._found(moment, key, verdict)
                continue
            self._found_since_s.pop(key, None)
            followed = self._followed.get(key)
            if followed is None:
                continue
            if verdict.state in (FIRING, CLEAR):
                quiet_s = passed_s if verdict.state == CLEAR else 0.0
                events += self._recovered(moment, followed, quiet_s)
            else:
                followed.unseen()
        for key, followed in self._followed.items():
            followed.note(meanwhile=self._meanwhile.get(key, ""))
        if self._followed and moment.up:
            events += self._without_engine(moment, passed_s)
        return events + self._link(moment.t)

    def note_stacks(self, name: str, sentence: str) -> None:
        for each in self._followed.values():
            if each.incident.id == name:
                each.note(stacks=sentence)

    def close(self, t: float, resolution: str = "target_gone") -> list[IncidentEvent]:
        return [self._end(key, t, resolution) for key in tuple(self._followed)]

    def _found(self, moment: Moment, key: Key, verdict: Verdict) -> list[IncidentEvent]:
        followed = self._followed.get(key)
        if followed is not None and followed.is_of(verdict):
            self._over[key] = moment.at_s
            return self._renew(moment, followed, verdict)
        if followed is not None:
            return self._open(moment, key, verdict)
        seen = [each for each in self.incidents if each.phase == incident.ACTIVE]
        since_s = self._found_since_s.setdefault(key, moment.at_s)
        ago = ((other, moment.at_s - over_s) for other, over_s in self._over.items())
        after = (ago_s < relations.aftermath_seconds(*key, other) for other, ago_s in ago)
        if any(relations.covers(outer, *key) for outer in seen) or any(after):
            return []
        held_by = relations.held_by(*key, seen, moment.at_s - since_s)
        if held_by is not None:
            self._meanwhile[held_by.key] = verdict.summary
            return []
        return self._open(moment, key, verdict)

    def _open(self, moment: Moment, key: Key, verdict: Verdict) -> list[IncidentEvent]:
        t, open_ = moment.t, self.incidents
        lasted_s = max(0.0, verdict.since_seconds)
        lost_mark = self._lost.at(verdict.engine, moment.at_s - lasted_s)
        opened = Incident(
            id=identity(self._target, verdict.engine, verdict.kind, t),
            target=self._target,
            engine=verdict.engine,
            kind=verdict.kind,
            **incident.told(verdict),
            family=family_of(verdict),
            severity=verdict.severity,
            opened_t=t,
            updated_t=t,
            began_t=t - lasted_s,
            worst=worst_of(verdict, t),
            requests_lost=self._lost.since(lost_mark, moment.at_s),
        )
        ends = [each for each in open_ if each.key == key or relations.outlives(opened, each)]
        events = [self._end(each.key, t, "superseded", opened.id) for each in ends]
        known = (*(each for each in open_ if each not in ends), *self._beside)
        beside = (each.id for each in known if relations.linked(opened, each))
        times, quiet_needed_s = self._recurrence.begun(opened.trouble, moment.at_s, lasted_s)
        severity, why = relations.severity_beside(opened, verdict.severity, known)
        related = (*(each.id for each in ends), *beside)
        opened = replace(opened, related=related, severity=severity, times=times)
        opened = replace(opened, recurring=self._recurrence.recurring(opened, moment.at_s))
        opened = stepped(opened, t, incident.OPENED, why)
        life = _life(moment, verdict.engine)
        self._followed[key] = Followed(opened, life, quiet_needed_s, lost_mark)
        self._found_since_s.pop(key, None)
        self._over[key] = moment.at_s
        self.opened[verdict.kind] = self.opened.get(verdict.kind, 0) + 1
        return [*events, IncidentEvent(incident.OPENED, t, opened)]

    def _renew(self, moment: Moment, followed: Followed, verdict: Verdict) -> list[IncidentEvent]:
        known = followed.incident
        followed.renew(verdict, moment.t, moment.at_s)
        now = followed.incident
        if now.times != known.times:
            times, followed.quiet_needed_s = self._recurrence.begun(known.trouble, moment.at_s)
            now = replace(now, times=times)
        if now.trouble != known.trouble:
            times, followed.quiet_needed_s = self._recurrence.renamed(
                known.trouble, now.trouble, moment.at_s
            )
            now = replace(now, times=times)
        self._recurrence.seen(now.trouble, moment.at_s, active=True)
        now = replace(now, recurring=self._recurrence.recurring(now, moment.at_s))
        severity, why = relations.severity_beside(
            now, now.severity, (*self.incidents, *self._beside)
        )
        now = replace(now, severity=severity)
        changed = _notified_fields(now) != _notified_fields(known)
        if changed:
            milder = verdict.severity != "page" == severity
            keeps = "stays critical: people were notified, and it has not ended" if milder else ""
            now = stepped(now, moment.t, incident.UPDATED, why, keeps)
        followed.incident = now
        return [IncidentEvent(incident.UPDATED, moment.t, now, known)] if changed else []

    def _link(self, t: float) -> list[IncidentEvent]:
        events = []
        for followed in self._followed.values():
            known = followed.incident
            others = self._beside if relations.is_cause(known) else (*self.incidents, *self._beside)
            new = [
                each.id
                for each in others
                if each.id not in known.related and relations.linked(known, each)
            ]
            if new:
                severity, why = relations.severity_beside(known, known.severity, others)
                now = replace(known, related=(*known.related, *new), severity=severity)
                linked = f"linked to {', '.join(new)}"
                followed.incident = stepped(now, t, incident.UPDATED, linked, why)
                events.append(IncidentEvent(incident.UPDATED, t, followed.incident, known))
        return events

    def _recovered(
        self, moment: Moment, followed: Followed, quiet_s: float, *, gone: bool = False
    ) -> list[IncidentEvent]:
        begins = followed.recover(moment.t, moment.at_s)
        followed.quiet_s += 0.0 if begins else quiet_s
        looks_s = min(FEW * self._usual_s, QUIET_SECONDS_MAX)
        left_s = max(followed.quiet_needed_s, looks_s) - followed.quiet_s
        followed.close_at(moment.t + max(0.0, left_s))
        if begins:
            known = followed.incident
            self._recurrence.seen(known.trouble, moment.at_s, active=False)
            recurring = self._recurrence.recurring(known, moment.at_s)
            followed.incident = stepped(
                replace(known, recurring=recurring), moment.t, incident.RECOVERING
            )
            return [IncidentEvent(incident.UPDATED, moment.t, followed.incident, known)]
        if left_s > 0.0:
            return []
        key = followed.incident.key
        anew = _life(moment, key[1]) != followed.life
        resolution = "target_gone" if gone else "restarted" if anew else "healthy"
        return [self._end(key, moment.t, resolution)]

    def _without_engine(self, moment: Moment, passed_s: float) -> list[IncidentEvent]:
        engines = moment.restarts
        gone = [key for key in self._followed if key[1] is not None and key[1] not in engines]
        return [
            event
            for key in gone
            for event in self._recovered(moment, self._followed[key], passed_s, gone=True)
        ]

    def _end(self, key: Key, t: float, resolution: str, follower: str = "") -> IncidentEvent:
        followed = self._followed.pop(key)
        if self._at_s is not None:
            self._recurrence.seen(followed.incident.trouble, self._at_s, active=False)
        over = incident.ended(followed.incident, t, resolution)
        if follower:
            over = replace(over, related=(*over.related, follower))
        return IncidentEvent(incident.RESOLVED, t, stepped(over, t, incident.RESOLVED))

    def export_state(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "followed": [each.export_state() for each in self._followed.values()],
            "found_since_s": [[*key, since_s] for key, since_s in self._found_since_s.items()],
            "over_s": [[*key, over_s] for key, over_s in self._over.items()],
            "recurrence": self._recurrence.export_state(),
            "lost": self._lost.export_state(),
            "usual_s": self._usual_s,
            "opened": dict(self.opened),
        }

    def restore(self, state: stored.Stored, kinds: Container[str]) -> None:
        """Restore incidents of `kinds`.

        If the state is damaged, change nothing and raise one of stored.DAMAGE. Unwatched time does
        not count as quiet.
        """
        stored.version(state, STATE_VERSION)
        followed = [Followed.restored(each) for each in state["followed"]]
        since = {_key_of(each): stored.number(each[2]) for each in state["found_since_s"]}
        over = {_key_of(each): stored.number(each[2]) for each in state["over_s"]}
        opened = stored.counts(state["opened"])
        usual_s = stored.number(state["usual_s"], 0.0)
        lost = LostRequests.restored(state.get("lost", ()))
        self._recurrence.restore(state["recurrence"])
        self._lost = lost
        ours = [each for each in followed if each.incident.kind in kinds]
        self._followed = {each.incident.key: each for each in ours}
        self._found_since_s, self._over, self._usual_s = since, over, usual_s
        self.opened, self._at_s = opened, None


def _key_of(state: Sequence[Any]) -> Key:
    return stored.text(state[0]), stored.text_or_none(state[1])


def _notified_fields(known: Incident) -> Sequence[object]:
    return known.phase, known.cause, known.severity, known.restart_advised, known.restart_targets


def _life(moment: Moment, engine: str | None) -> Life:
    counted = moment.restarts
    restarts = sum(counted.values()) if engine is None else counted.get(engine, 0)
    return moment.process_start_time, restarts
