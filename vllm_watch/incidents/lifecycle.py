"""What verdicts mean over time: one problem is one incident, from its first sign to its end.

A finding opens an incident at once (detectors know how long they must look), unless it is the effect
of one that is open. It is resolved when nothing was found for a while, so that a problem that comes
and goes is one incident. A cause may sharpen. `unknown` changes nothing.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_watch.detectors.base import CLEAR, FIRING, Verdict
from vllm_watch.incidents import incident, relations
from vllm_watch.incidents.incident import (
    OPENED,
    RESOLVED,
    SEVERITIES,
    UPDATED,
    Incident,
    IncidentEvent,
    Key,
    identity,
)
from vllm_watch.signals import stored

STATE_VERSION = 2
"""Of what `export_state` gives; what was kept in another form is left out."""

QUIET_SECONDS = 30.0
"""An incident ends when nothing has been found for so long: users' retries and drained queues make a
problem flicker for some seconds as it ends. Far within the five minutes in which an end must be told."""

QUIET_SECONDS_OF = {"throughput_collapse": 60.0}
"""A collapse is seen in the rates of a minute, which random load makes flicker about any limit."""

QUIET_LOOKS = 3.0
"""... and for at least so many usual intervals: one look alone proves no recovery."""

QUIET_SECONDS_MAX = 180.0
"""... but never longer than this, so that the end is told within five minutes of it."""

FLAPPING_SECONDS = 900.0
"""An incident that comes back this soon after its end ended too early: next time we wait twice as long."""

SETTLED_LOOKS = 3
"""A known cause gives way to another only when so many looks in a row said so: near a boundary between
two causes verdicts alternate. That an advice is withdrawn, too. To learn a cause takes no time."""

Life = tuple[float | None, int]  # of a process: its start, and how often counters began anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One look at what is followed, as far as incidents depend on it."""

    t: float  # Unix seconds
    at_s: float  # on a timeline that never steps
    up: bool = False  # did a server answer?
    process_start_time: float | None = None  # Unix seconds
    restarts: Mapping[str, int] = field(
        default_factory=dict
    )  # by engine: how often counters began anew


@dataclass(slots=True)
class _Followed:
    """An open incident and what is needed to follow it."""

    incident: Incident
    life: Life  # of the engine or server when it opened
    found_life: Life  # ... when it was last found
    quiet_s: float = 0.0  # for how long nothing was found
    quiet_needed_s: float = QUIET_SECONDS
    rival: tuple[str, bool] | None = None  # a cause and advice that would replace the present ones
    rival_looks: int = 0
    rival_since_s: float = 0.0


class Lifecycle:
    """Follows the incidents of one target, or of one host, from look to look."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._followed: dict[Key, _Followed] = {}
        self._firing_since_s: dict[Key, float] = {}  # findings that have opened nothing (yet)
        self._ended: dict[Key, tuple[float, float]] = {}  # when, and what quiet time it had needed
        self._at_s: float | None = None
        self._usual_s = 0.0
        self._beside: tuple[Incident, ...] = ()  # what is open elsewhere, at this look
        self.opened: dict[str, int] = {}  # incidents ever opened, by kind

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The open ones, oldest first."""
        return tuple(followed.incident for followed in self._followed.values())

    def update(
        self, moment: Moment, verdicts: Iterable[Verdict], beside: Iterable[Incident] = ()
    ) -> list[IncidentEvent]:
        """Take one look's verdicts; return the events they lead to, in order.

        `beside`: what is open on the target's host, or on the host's targets.
        """
        passed_s = 0.0 if self._at_s is None else moment.at_s - self._at_s
        self._at_s, self._beside = moment.at_s, tuple(beside)
        if passed_s > 0:
            self._usual_s += (passed_s - self._usual_s) / (8.0 if self._usual_s else 1.0)
        events: list[IncidentEvent] = []
        for verdict in sorted(verdicts, key=lambda verdict: relations.rank(verdict.kind)):
            if verdict.state == FIRING:
                events += self._found(moment, verdict)
            elif verdict.state == CLEAR:
                events += self._cleared(moment, verdict, passed_s)
        if self._followed and moment.up:
            events += self._without_engine(moment, passed_s)
            for (_, engine), followed in self._followed.items():
                _mark(followed, outlived=_is_another(_life(moment, engine), followed.found_life))
        return events + self._link(moment.t)

    def close(self, t: float, resolution: str = "target_gone") -> list[IncidentEvent]:
        """End all that is open, for the target itself is no longer watched."""
        return [self._end(key, t, resolution) for key in tuple(self._followed)]

    def export_state(self) -> dict[str, Any]:
        """Return all that is open, and what recent ends taught, as plain values."""
        return {
            "version": STATE_VERSION,
            "followed": [_followed_state(each) for each in self._followed.values()],
            "firing_since_s": [[*key, since_s] for key, since_s in self._firing_since_s.items()],
            "ended": [[*key, *ended] for key, ended in self._ended.items()],
            "usual_s": self._usual_s,
            "opened": dict(self.opened),
        }

    def restore(self, state: stored.Stored, kinds: Container[str]) -> None:
        """Go on with the incidents of an earlier run whose kind is one of `kinds`, on the same timeline.

        Time that nobody watched is not quiet. Raises one of stored.DAMAGE, and has then changed nothing.
        """
        stored.version(state, STATE_VERSION)
        followed = [_followed(each) for each in state["followed"]]
        since = {_key(each): stored.number(each[2]) for each in state["firing_since_s"]}
        ended = {
            _key(each): (stored.number(each[2]), stored.number(each[3])) for each in state["ended"]
        }
        opened = {
            stored.text(kind): stored.count(count)
            for kind, count in stored.mapping(state["opened"]).items()
        }
        usual_s = stored.number(state["usual_s"], 0.0)
        ours = [each for each in followed if each.incident.kind in kinds]
        self._followed = {each.incident.key: each for each in ours}
        self._firing_since_s, self._ended, self._usual_s = since, ended, usual_s
        self.opened, self._at_s = opened, None

    def _found(self, moment: Moment, verdict: Verdict) -> list[IncidentEvent]:
        key = verdict.kind, verdict.engine
        followed = self._followed.get(key)
        if followed is not None:
            return self._renew(followed, moment, verdict)
        open_ = self.incidents
        since_s = self._firing_since_s.setdefault(key, moment.at_s)
        if any(relations.covers(outer, *key) for outer in open_):
            return []
        if any(
            moment.at_s - ended_s < relations.aftermath_seconds(*key, ended)
            for ended, (ended_s, _) in self._ended.items()
        ):
            return []
        if moment.at_s - since_s < relations.hold_seconds(*key, open_):
            return []
        return self._open(moment, verdict, open_)

    def _open(
        self, moment: Moment, verdict: Verdict, open_: Sequence[Incident]
    ) -> list[IncidentEvent]:
        key = verdict.kind, verdict.engine
        t = moment.t
        effects = [each for each in open_ if verdict.kind != each.kind and _is_effect(each, key)]
        events = [self._end(each.key, t, "superseded") for each in effects]
        known = (*open_, *self._beside)
        opened = Incident(
            id=identity(self._target, verdict.engine, verdict.kind, t),
            target=self._target,
            engine=verdict.engine,
            kind=verdict.kind,
            cause=verdict.cause,
            severity=verdict.severity,
            summary=verdict.summary,
            evidence_for=verdict.evidence_for,
            evidence_against=verdict.evidence_against,
            restart_advised=verdict.restart_advised,
            concerns=verdict.concerns,
            restart_targets=verdict.restart_targets,
            related=tuple(each.id for each in effects),
            opened_t=t,
            updated_t=t,
        )
        beside = (each.id for each in known if relations.linked(opened, each))
        severity = relations.severity_beside(opened, verdict.severity, known)
        opened = replace(opened, related=(*opened.related, *beside), severity=severity)
        life = _life(moment, verdict.engine)
        self._followed[key] = _Followed(
            opened, life, life, quiet_needed_s=self._quiet_needed_s(key, moment.at_s)
        )
        self._firing_since_s.pop(key, None)
        self.opened[verdict.kind] = self.opened.get(verdict.kind, 0) + 1
        events.append(IncidentEvent(OPENED, t, opened))
        return events

    def _link(self, t: float) -> list[IncidentEvent]:
        """What a cause has led to learns of it, and what is elsewhere; if it is the cause that pages, it alone does."""
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
                severity = relations.severity_beside(known, known.severity, others)
                related = (*known.related, *new)
                followed.incident = replace(known, related=related, severity=severity)
                events.append(IncidentEvent(UPDATED, t, followed.incident))
        return events

    def _renew(self, followed: _Followed, moment: Moment, verdict: Verdict) -> list[IncidentEvent]:
        followed.quiet_s, followed.found_life = 0.0, _life(moment, verdict.engine)
        _mark(followed, firing=True, outlived=False)
        known = followed.incident
        if not _takes_over(followed, verdict, moment.at_s):
            return []
        changed_cause = verdict.cause != known.cause
        open_ = (*self.incidents, *self._beside)
        severity = relations.severity_beside(known, verdict.severity, open_)
        if not changed_cause:
            # People were told already: an incident grows no milder but by its end or another cause.
            severity = min(severity, known.severity, key=SEVERITIES.index)
            severity = relations.severity_beside(known, severity, open_)
        followed.incident = replace(
            known,
            cause=verdict.cause,
            severity=severity,
            summary=verdict.summary,
            evidence_for=verdict.evidence_for,
            evidence_against=verdict.evidence_against,
            restart_advised=verdict.restart_advised,
            concerns=verdict.concerns,
            restart_targets=verdict.restart_targets,
            updated_t=moment.t,
        )
        if (verdict.cause, severity, verdict.restart_advised) == (
            known.cause,
            known.severity,
            known.restart_advised,
        ):
            return []
        return [IncidentEvent(UPDATED, moment.t, followed.incident)]

    def _cleared(self, moment: Moment, verdict: Verdict, passed_s: float) -> list[IncidentEvent]:
        key = verdict.kind, verdict.engine
        self._firing_since_s.pop(key, None)
        return self._quieter(key, moment, passed_s, target_gone=False)

    def _without_engine(self, moment: Moment, passed_s: float) -> list[IncidentEvent]:
        """An engine that the server no longer has takes its incidents with it."""
        engines = moment.restarts
        gone = [key for key in self._followed if key[1] is not None and key[1] not in engines]
        return [
            event
            for key in gone
            for event in self._quieter(key, moment, passed_s, target_gone=True)
        ]

    def _quieter(
        self, key: Key, moment: Moment, passed_s: float, *, target_gone: bool
    ) -> list[IncidentEvent]:
        followed = self._followed.get(key)
        if followed is None:
            return []
        # The time from the last sign to the first look without one is not known to be quiet.
        followed.quiet_s += 0.0 if followed.incident.firing else passed_s
        _mark(followed, firing=False)
        needed_s = max(followed.quiet_needed_s, QUIET_LOOKS * self._usual_s)
        if followed.quiet_s < min(needed_s, QUIET_SECONDS_MAX):
            return []
        anew = _life(moment, key[1]) != followed.life
        resolution = "target_gone" if target_gone else "restarted" if anew else "healthy"
        return [self._end(key, moment.t, resolution)]

    def _end(self, key: Key, t: float, resolution: str) -> IncidentEvent:
        followed = self._followed.pop(key)
        if resolution in ("healthy", "restarted") and self._at_s is not None:
            self._ended[key] = self._at_s, followed.quiet_needed_s
            self._ended = {
                each: ended
                for each, ended in self._ended.items()
                if self._at_s - ended[0] <= FLAPPING_SECONDS
            }
        return IncidentEvent(RESOLVED, t, incident.ended(followed.incident, t, resolution))

    def _quiet_needed_s(self, key: Key, at_s: float) -> float:
        usual_s = QUIET_SECONDS_OF.get(key[0], QUIET_SECONDS)
        ended_s, needed_s = self._ended.pop(key, (None, usual_s))
        if ended_s is None or at_s - ended_s > FLAPPING_SECONDS:
            return usual_s
        return min(2.0 * needed_s, QUIET_SECONDS_MAX)


def _followed_state(followed: _Followed) -> dict[str, Any]:
    rival = followed.rival
    return {
        "incident": incident.export_state(followed.incident),
        "life": list(followed.life),
        "found_life": list(followed.found_life),
        "quiet_s": followed.quiet_s,
        "quiet_needed_s": followed.quiet_needed_s,
        "rival": None if rival is None else list(rival),
        "rival_looks": followed.rival_looks,
        "rival_since_s": followed.rival_since_s,
    }


def _followed(state: stored.Stored) -> _Followed:
    rival = state["rival"]
    return _Followed(
        incident.restore(state["incident"]),
        _kept_life(state["life"]),
        _kept_life(state["found_life"]),
        quiet_s=stored.number(state["quiet_s"], 0.0),
        quiet_needed_s=stored.number(state["quiet_needed_s"], 0.0),
        rival=None if rival is None else (stored.text(rival[0]), stored.flag(rival[1])),
        rival_looks=stored.count(state["rival_looks"]),
        rival_since_s=stored.number(state["rival_since_s"]),
    )


def _mark(followed: _Followed, *, firing: bool | None = None, outlived: bool | None = None) -> None:
    """Set what is given; as long as it is so already nothing is made anew."""
    known = followed.incident
    firing = known.firing if firing is None else firing
    outlived = known.outlived if outlived is None else outlived
    if (firing, outlived) != (known.firing, known.outlived):
        followed.incident = replace(known, firing=firing, outlived=outlived)


def _kept_life(state: Sequence[Any]) -> Life:
    start, restarts = state
    return stored.number_or_none(start), stored.count(restarts)


def _is_another(now: Life, then: Life) -> bool:
    """Is it another process? A start that is not known says nothing."""
    started = None not in (now[0], then[0]) and now[0] != then[0]
    return started or now[1] != then[1]


def _key(state: Sequence[Any]) -> Key:
    return stored.text(state[0]), stored.text_or_none(state[1])


def _is_effect(open_: Incident, key: Key) -> bool:
    kind, engine = key
    return open_.kind in relations.SUBSUMES.get(kind, ()) and engine in (None, open_.engine)


def _takes_over(followed: _Followed, verdict: Verdict, at_s: float) -> bool:
    """Is what this verdict says to be believed over what is known?"""
    known = followed.incident
    claim = (verdict.cause, verdict.restart_advised)
    if verdict.cause == known.cause:
        milder = known.restart_advised and not verdict.restart_advised
        if not milder:
            followed.rival = None
            return True
    elif verdict.cause == "unknown":
        return False
    elif known.cause == "unknown":
        followed.rival = None
        return True
    if followed.rival != claim:
        followed.rival, followed.rival_looks, followed.rival_since_s = claim, 0, at_s
    followed.rival_looks += 1
    settles_s = relations.settling_seconds(known.cause, verdict.cause)
    if followed.rival_looks < SETTLED_LOOKS or at_s - followed.rival_since_s < settles_s:
        return False
    followed.rival = None
    return True


def _life(moment: Moment, engine: str | None) -> Life:
    """What changes when the process behind an engine (None: any of them) is another."""
    counted = moment.restarts
    restarts = sum(counted.values()) if engine is None else counted.get(engine, 0)
    return moment.process_start_time, restarts
