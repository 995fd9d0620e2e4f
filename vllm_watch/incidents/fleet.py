"""Combines the incidents of targets that stop answering together.

They probably share a cause, such as the watcher's network, proxy or host. So one common incident
sends the page, and the `engine_down` incidents of its targets become linked tickets without advice.
A target that is still silent after most have answered again gets a page of its own. A target that
answers, even with an error, is left out.

After a restart of the watcher, targets count as silent until they are scraped.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents import incident as record
from vllm_watch.incidents.incident import Incident, IncidentEvent, ended, identity
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.target import WATCHER
from vllm_watch.signals import stored
from vllm_watch.signals.scales import (
    HALF_MINUTE_SECONDS,
    MINUTE_SECONDS,
    SHOWN_MAX,
    TEN_MINUTES_SECONDS,
)

LATE_SECONDS = 2.0
"""A poll that starts at least this many seconds late shows a delayed watcher. Most polls start
within milliseconds."""


@dataclass(slots=True)
class Target:
    """Results of one target's last scrapes."""

    host: str
    answered_s: float | None = None
    silent_s: float | None = None  # first poll without an answer
    fell_s: float = 0.0  # earliest possible start of the silence
    outcome: str = "not scraped yet"
    dead: bool = False


@dataclass(slots=True)
class Common:
    """The open incident of all silent targets."""

    incident: Incident
    moment_s: float  # start of the first silence, or of the incident
    unseen: str  # scrape outcome, or "" if a recent answer preceded the silence
    known: int  # targets with a recent answer, and members without one
    members: dict[str, None]
    back_s: float | None = None  # when most members answered again
    held: dict[str, None] = field(default_factory=dict)  # IDs of the linked incidents

    def export_state(self) -> dict[str, Any]:
        """Leave out `back_s`, because recovery must be seen again."""
        return {
            "incident": record.export_state(self.incident), "moment_s": self.moment_s, "unseen": self.unseen,
            "known": self.known, "members": list(self.members), "held": list(self.held),
        }  # fmt: skip

    @classmethod
    def restored(cls, state: stored.Stored) -> "Common":
        return cls(
            record.restore(state["incident"]), stored.number(state["moment_s"]), stored.text(state["unseen"]),
            stored.count(state["known"]), dict.fromkeys(stored.texts(state["members"])),
            held=dict.fromkeys(stored.texts(state["held"])),
        )  # fmt: skip


def described(
    common: Common, members: Mapping[str, Target], others: Sequence[Target], late_s: float, t: float
) -> Incident:
    """Return the common incident with its texts. `others` are targets that answer."""
    counts = Counter(each.outcome for each in members.values()).most_common()
    how = ", ".join(f"{count} {word}" for word, count in counts)
    unwatched = (each.fell_s < (each.silent_s or 0.0) for each in members.values())
    fell = "fell silent within a minute"
    if common.unseen or all(unwatched):
        fell = "have not answered since the watcher started"
    return replace(
        common.incident,
        summary=f"{len(members)} of {common.known} targets {fell} ({how}): most likely a shared "
        "cause, this watcher's host or network included",
        evidence_for=_evidence_for(members, common.known, how, late_s),
        evidence_against=_evidence_against(list(members.values()), others),
        related=tuple(common.held),
        updated_t=t,
    )


def _evidence_for(
    members: Mapping[str, Target], known: int, how: str, late_s: float
) -> tuple[Evidence, ...]:
    hosts = sorted({each.host for each in members.values() if each.host})
    shown = ", ".join(list(members)[:SHOWN_MAX]) + (", …" if len(members) > SHOWN_MAX else "")
    where = f"they are on {len(hosts)} hosts, which share only the network to them"
    if len(hosts) == 1:
        where = f"all of them are on {hosts[0]}: it may be that host, or the network to it"
    found = [
        Evidence(
            name="targets_silent", value=float(len(members)), expected=0.0,
            text=f"{len(members)} of the {known} targets that had answered: {shown}",
        ),
        Evidence(name="outcomes", value=how, text=f"how their last scrapes ended: {how}"),
        Evidence(name="hosts", value=float(len(hosts)), text=where),
    ]  # fmt: skip
    if late_s >= LATE_SECONDS:
        text = f"vllm-watch itself was delayed: a scrape began {late_s:.0f} s later than planned"
        found.append(
            Evidence(name="watcher_late", value=round(late_s, 1), unit="s", expected=0.0, text=text)
        )
    return tuple(found)


def _evidence_against(members: Sequence[Target], others: Sequence[Target]) -> tuple[Evidence, ...]:
    found = []
    if all(each.outcome == "refused" for each in members):
        text = "every connection is refused: the hosts are reachable, so the servers or a proxy before them stopped"
        found.append(Evidence(name="refused", value=float(len(members)), text=text))
    if others:
        same = sorted({each.host for each in members} & {each.host for each in others})
        text = f"{len(others)} targets still answer"
        if same:
            text += f", some of them on the same hosts ({', '.join(same[:SHOWN_MAX])})"
        found.append(
            Evidence(name="targets_answering", value=float(len(others)), expected=0.0, text=text)
        )
    return tuple(found)


KIND, CAUSE = "engine_down", "unreachable"

STATE_VERSION = 1


_SILENT = frozenset(("refused", "connect_timeout", "read_timeout", "disconnected", "dns", "tls"))

_ANSWERS = frozenset(("engine_dead", "health_failing", "crash_loop"))
"""Causes found only in a server that answers, so the network works."""


class Fleet:
    """Links the incidents of silent targets before they are published."""

    def __init__(self, share: float = 0.5, targets_min: int = 3) -> None:
        self.target = WATCHER
        self.opened: dict[str, int] = {}  # by kind
        self._share = share
        self._targets_min = targets_min
        self._targets: dict[str, Target] = {}
        self._singles: dict[str, Incident] = {}
        self._links: dict[str, str] = {}  # incident → common incident (IDs)
        self._unscraped: dict[str, None] = {}
        self._waiting: dict[str, None] = {}  # incidents that may be linked later
        self._common: Common | None = None
        self._explained: Collection[str] = ()
        self._clock_s: float | None = None  # Unix seconds minus the clock of observations
        self._began_s = float("inf")
        self._late = 0.0, 0.0  # time and length of the longest recent delay

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return (self._common.incident,) if self._common else ()

    def export_state(self) -> dict[str, Any]:
        common = None if self._common is None else self._common.export_state()
        opened, links = dict(self.opened), dict(self._links)
        return {"version": STATE_VERSION, "opened": opened, "links": links, "common": common}

    def restore(self, state: stored.Stored) -> list[str]:
        """Return the errors. Call this before `take_up`."""
        try:
            stored.version(state, STATE_VERSION)
            opened = stored.counts(state["opened"])
            links = {name: stored.text(to) for name, to in stored.mapping(state["links"]).items()}
            kept = state["common"]
            common = None if kept is None else Common.restored(kept)
        except stored.DAMAGE as error:
            return [f"all: {error!r}"]
        self.opened, self._links, self._common = opened, links, common
        return []

    def take_up(
        self, t: float, restored: Mapping[str, tuple[str, float | None, Iterable[Incident]]]
    ) -> list[IncidentEvent]:
        """Adopt the targets of an earlier run."""
        for name, (host, answered_t, incidents) in restored.items():
            if name in self._targets:
                continue
            target, self._unscraped[name] = self._targets.setdefault(name, Target(host)), None
            for each in (each for each in incidents if each.kind == KIND):
                self._singles[each.id] = each
                if each.phase == record.ACTIVE and each.cause not in _ANSWERS:
                    target.silent_s = target.fell_s = min(each.began_t, t)
            target.answered_s = target.silent_s if answered_t is None else min(answered_t, t)
        if self._common is not None:  # the clock may have been set back
            self._common.moment_s = min(self._common.moment_s, t)
        unlinked = [each for each in self._singles.values() if each.id not in self._links]
        many = [e for e in unlinked if e.target in restored and self._fell_with_many(e.target, t)]
        self._waiting |= dict.fromkeys(each.id for each in many)
        return [IncidentEvent(record.UPDATED, t, self.shown(each)) for each in many]

    def forget(
        self, target: str, t: float, events: Iterable[IncidentEvent] = ()
    ) -> list[IncidentEvent]:
        told = [self._shown(event) for event in events]
        self._targets.pop(target, None)
        self._unscraped.pop(target, None)
        gone = [name for name, each in self._singles.items() if each.target == target]
        common = self._common
        for name in gone:
            self._drop(name)
            if common is not None:
                common.held.pop(name, None)
        if common is not None and target in common.members:
            del common.members[target]
            if not common.members:
                told += self._follow(t, t)
        return told

    def forget_all_but(self, here: Collection[str], t: float) -> list[IncidentEvent]:
        self._links = {name: to for name, to in self._links.items() if name in self._singles}
        members = () if self._common is None else tuple(self._common.members)
        return [event for name in members if name not in here for event in self.forget(name, t)]

    def take(
        self,
        observation: Observation,
        host: str,
        events: Iterable[IncidentEvent],
        late_s: float = 0.0,
        explained: Collection[str] = (),
    ) -> list[IncidentEvent]:
        """A host's page already covers the `explained` targets."""
        self._explained = explained
        t = observation.t
        now_s = t if observation.monotonic_s is None else observation.monotonic_s
        if self._clock_s is None:
            self._clock_s, self._began_s = t - now_s, t
        now_s += self._clock_s
        self._see(observation, host, now_s, late_s)
        told: list[IncidentEvent] = []
        for event in events:
            told += self._single(event, t, now_s) if event.incident.kind == KIND else [event]
        return told + self._judged_again(t, now_s) + self._follow(t, now_s)

    def shown(self, incident: Incident) -> Incident:
        """Return the incident, lowered to a ticket without advice while a common cause is suspected."""
        common, link = self._common, self._links.get(incident.id)
        if link is not None:
            incident = replace(incident, related=(*incident.related, link))
        if incident.id not in self._waiting and (common is None or incident.id not in common.held):
            return incident
        severity = "ticket" if incident.severity == "page" else incident.severity
        return replace(incident, severity=severity, restart_advised=False)

    def _see(self, observation: Observation, host: str, now_s: float, late_s: float) -> None:
        # At intervals of 15 s, the polls of 200 targets and their timeouts take half a
        # minute.
        if late_s >= self._late[1] or now_s - self._late[0] > MINUTE_SECONDS:
            self._late = now_s, late_s
        target = self._targets.setdefault(observation.target, Target(host))
        process, health = observation.process, observation.health
        target.dead = process is not None and process.alive is False
        heard = health is not None and health.status is not None
        if observation.scrape.outcome == "watcher" and not heard:
            return  # the watcher failed, and not the target
        target.host, target.outcome = host, observation.scrape.outcome
        if target.outcome not in _SILENT or heard:
            target.answered_s, target.silent_s = now_s, None
        elif target.silent_s is None:
            unwatched = observation.target in self._unscraped
            target.silent_s = now_s
            target.fell_s = (target.answered_s if unwatched else None) or now_s
        self._unscraped.pop(observation.target, None)

    def _single(self, event: IncidentEvent, t: float, now_s: float) -> list[IncidentEvent]:
        incident, common = event.incident, self._common
        name = incident.id
        if not incident.open:
            told = self._shown(event)
            self._drop(name)
            return [told]
        self._singles[name] = incident
        if common is not None and incident.cause in _ANSWERS:
            common.held.pop(name, None)  # the server answered, so this is a separate problem
        if name in self._waiting:
            return [self._shown(event)]
        if common is None:
            return self._suspect(event, t, now_s)
        if name not in self._links and self._fell_with(
            incident.target, common.moment_s, common.unseen
        ):
            self._hold(common, name)
            common.members[incident.target] = None
            common.incident = self._described(common, t, now_s)
            return [self._shown(event), IncidentEvent(record.UPDATED, t, common.incident)]
        return [self._shown(event)]

    def _suspect(self, event: IncidentEvent, t: float, now_s: float) -> list[IncidentEvent]:
        target = event.incident.target
        moment_s, unseen = self._since(target, now_s)
        members, known = self._fallen(moment_s, unseen)
        if target not in members or not self._too_many(len(members), known):
            # Targets that are not scraped yet may also be silent.
            before_s = moment_s + MINUTE_SECONDS
            maybe = {n for n in self._unscraped if (self._targets[n].answered_s or 0.0) <= before_s}
            if (
                target in members
                and self._too_many(len(maybe.union(members)), known)
                and self._wait(now_s)
            ):
                self._waiting[event.incident.id] = None
            return [self._shown(event)]
        incident = Incident(
            id=identity(WATCHER, None, KIND, t), target=WATCHER, engine=None, kind=KIND, cause=CAUSE,
            severity="page", summary="", opened_t=t, updated_t=t, began_t=t,
        )  # fmt: skip
        common = Common(incident, moment_s, unseen, known, dict.fromkeys(members))
        for name, each in self._singles.items():
            if each.target in common.members:
                self._hold(common, name)
        common.incident = self._described(common, t, now_s)
        self._common = common
        self.opened[KIND] = self.opened.get(KIND, 0) + 1
        others = [self._singles[name] for name in common.held if name != event.incident.id]
        softened = [IncidentEvent(record.UPDATED, t, self.shown(each)) for each in others]
        return [IncidentEvent(record.OPENED, t, common.incident), *softened, self._shown(event)]

    def _since(self, name: str, now_s: float) -> tuple[float, str]:
        target = self._targets.get(name)
        if target is None or target.silent_s is None:
            return now_s, ""
        unseen = self._unseen(target)
        if unseen == "refused" or (not unseen and target.silent_s >= self._began_s):
            return now_s, ""
        return target.silent_s, unseen

    def _unseen(self, target: Target) -> str:
        if target.answered_s is None or target.silent_s is None:
            return target.outcome
        return "" if target.silent_s - target.answered_s <= TEN_MINUTES_SECONDS else target.outcome

    def _too_many(self, silent: int, known: int) -> bool:
        return silent >= self._targets_min and silent > self._share * known

    def _is_known(self, target: Target, now_s: float) -> bool:
        return target.answered_s is not None and now_s - target.answered_s <= TEN_MINUTES_SECONDS

    def _fallen(self, moment_s: float, unseen: str) -> tuple[list[str], int]:
        members = [name for name in self._targets if self._fell_with(name, moment_s, unseen)]
        known = sum(1 for each in self._targets.values() if self._is_known(each, moment_s))
        return members, known + (len(members) if unseen else 0)

    def _fell_with(self, name: str, moment_s: float, unseen: str) -> bool:
        target = self._targets.get(name)
        if target is None or target.silent_s is None or target.dead or name in self._explained:
            return False
        # The target may have stopped answering while no watcher ran.
        unwatched = self._common is not None and target.fell_s < target.silent_s
        if self._unseen(target) != unseen and not unwatched:
            return False
        return target.fell_s - MINUTE_SECONDS <= moment_s <= target.silent_s + MINUTE_SECONDS

    def _fell_with_many(self, name: str, t: float) -> bool:
        if self._common is not None:
            return self._fell_with(name, self._common.moment_s, self._common.unseen)
        members, known = self._fallen(*self._since(name, t))
        return name in members and self._too_many(len(members), known)

    def _wait(self, now_s: float) -> bool:
        return bool(self._unscraped) and now_s - self._began_s <= MINUTE_SECONDS

    def _judged_again(self, t: float, now_s: float) -> list[IncidentEvent]:
        told: list[IncidentEvent] = []
        waiting = () if self._wait(now_s) else [self._singles[name] for name in self._waiting]
        for each in (each for each in waiting if each.phase == record.ACTIVE):
            del self._waiting[each.id]
            if each.id not in self._links:
                told += self._single(IncidentEvent(record.UPDATED, t, each), t, now_s)
        return told

    def _shown(self, event: IncidentEvent) -> IncidentEvent:
        before = event.before and self.shown(event.before)
        return replace(event, incident=self.shown(event.incident), before=before)

    def _hold(self, common: Common, name: str) -> None:
        common.held[name] = None
        self._links[name] = common.incident.id

    def _drop(self, name: str) -> None:
        self._singles.pop(name, None)
        self._links.pop(name, None)
        self._waiting.pop(name, None)

    def _follow(self, t: float, now_s: float) -> list[IncidentEvent]:
        common = self._common
        if common is None:
            return []
        targets = ((name, self._targets.get(name)) for name in common.members)
        silent = [
            n
            for n, each in targets
            if not each or each.silent_s is not None or n in self._unscraped
        ]
        if self._too_many(len(silent), common.known):
            common.back_s = None
            return []
        if common.back_s is None:
            common.back_s = now_s
        if common.members and now_s - common.back_s < HALF_MINUTE_SECONDS:
            return []
        released = self._released(common, t, now_s)
        # Incidents of recovered members end after their quiet time, because the trouble may return.
        if any(name in self._singles for name in common.held):
            return released
        self._common = None
        resolution = "healthy" if common.members else "target_gone"
        return [*released, IncidentEvent(record.RESOLVED, t, ended(common.incident, t, resolution))]

    def _released(self, common: Common, t: float, now_s: float) -> list[IncidentEvent]:
        told: list[IncidentEvent] = []
        for name in tuple(common.held):
            incident = self._singles.get(name)
            if incident is None or (target := self._targets[incident.target]).silent_s is None:
                continue
            if incident.target in self._unscraped:
                continue
            if incident.cause == CAUSE and target.outcome == "refused":
                continue  # a new verdict follows soon
            if now_s - target.silent_s >= HALF_MINUTE_SECONDS:
                del common.held[name]
                told.append(IncidentEvent(record.UPDATED, t, self.shown(incident)))
        return told

    def _described(self, common: Common, t: float, now_s: float) -> Incident:
        members = {name: self._targets.get(name) or Target("") for name in common.members}
        others = [
            each for name, each in self._targets.items()
            if name not in members and each.silent_s is None and self._is_known(each, now_s)
        ]  # fmt: skip
        late_s = self._late[1] if now_s - self._late[0] <= MINUTE_SECONDS else 0.0
        return described(common, members, others, late_s, t)
