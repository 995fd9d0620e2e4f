"""Many targets that fall silent at once: one cause that they share, most likely ours, and not each its own.

A watcher whose network, name server, proxy or host fails sees all its engines die. Restarting them would
be the worst that it could do, and a page for each would hide what happened. So it suspects itself first:
one incident of its own that pages once, and the single `engine_down` incidents of that minute are tickets
without advice, linked to it, until most are back. Who is still silent then pages for himself.

What does not hide behind it: a server that answers, however badly (`engine_dead`); a process that is
known to have ended on this host; whoever falls silent later than that minute. Nothing is lost if all of
them are really dead: that is one page which names them, with what speaks for either.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents.incident import (
    OPENED,
    RESOLVED,
    UPDATED,
    Incident,
    IncidentEvent,
    ended,
    identity,
)
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.target import WATCHER

KIND, CAUSE = "engine_down", "unreachable"

WINDOW_SECONDS = 60.0
"""Looks at 200 targets are spread over an interval, and a time-out takes seconds more: what happened at
one moment is seen over half a minute at 15-second looks."""

KNOWN_SECONDS = 600.0
"""A target counts as one that answered for so long after its last answer: what was scaled down or has
been dead for longer says nothing about this moment."""

SETTLED_SECONDS = 30.0
"""So long must most of them have been back, and one be silent, before that one is told by itself: they come
back one by one, each at its own look."""

LATE_SECONDS = 2.0
"""From here on it is said that the watcher itself was delayed: its looks begin within milliseconds."""

NAMES_SHOWN = 8
"""Of many hosts and targets so many are written out; the related incidents name all."""

_SILENT = frozenset(("refused", "connect_timeout", "read_timeout", "disconnected", "dns", "tls"))

_ANSWERS = frozenset(("engine_dead", "health_failing", "crash_loop"))
"""Causes of which only a server that has answered since can tell: no way to it does not explain them."""


@dataclass(slots=True)
class _Target:
    """What the last scrapes of one target brought."""

    host: str
    answered_s: float | None = None
    silent_s: float | None = None  # the first look without an answer, if the last had none
    outcome: str = ""
    dead: bool = False  # its process is known to have ended


@dataclass(slots=True)
class _Common:
    """The one incident, while it is open."""

    incident: Incident
    moment_s: float  # when they fell silent, or when it was opened
    unseen: str  # how they are silent, where they were so before the watcher began; else empty
    known: int  # targets that had answered before, or should
    members: dict[str, None]  # targets, in the order in which they were seen
    back_s: float | None = None  # since when most are back
    held: dict[str, None] = field(default_factory=dict)  # ids of the single incidents


class Fleet:
    """Stands between the judgement of the single targets and whoever is told of it."""

    def __init__(self, share: float = 0.5, targets_min: int = 3) -> None:
        """More than `share` of those that answered before, and at least `targets_min`, are too many."""
        self._share = share
        self._targets_min = targets_min
        self._targets: dict[str, _Target] = {}
        self._singles: dict[str, Incident] = {}  # by id: each open engine_down, as judged
        self._links: dict[str, str] = {}  # id of an open single one → id of the common one
        self._common: _Common | None = None
        self._explained: Collection[str] = ()
        self._late: tuple[float, float] = (
            0.0,
            0.0,
        )  # when, and by how many seconds a look was late

    @property
    def incident(self) -> Incident | None:
        """The one that is open."""
        return self._common.incident if self._common else None

    def forget(self, target: str) -> None:
        """Drop a target that is no longer watched; its incidents have ended with it."""
        self._targets.pop(target, None)
        gone = [name for name, each in self._singles.items() if each.target == target]
        for name in gone:
            del self._singles[name]
            self._links.pop(name, None)
        if self._common is not None:
            self._common.members.pop(target, None)
            for name in gone:
                self._common.held.pop(name, None)

    def take(
        self,
        observation: Observation,
        host: str,
        events: Iterable[IncidentEvent],
        late_s: float = 0.0,
        explained: Collection[str] = (),
    ) -> list[IncidentEvent]:
        """Take one look at one target and its events; return what is to be told, in order.

        That may be events of other targets, and of the watcher itself (`WATCHER`). `late_s`: how much
        later than planned the look began. `explained`: targets whose silence something else has paged for, a
        lost GPU, say.
        """
        self._explained = explained
        t = observation.t
        now_s = t if observation.monotonic_s is None else observation.monotonic_s
        self._see(observation, host, now_s, late_s)
        told: list[IncidentEvent] = []
        for event in events:
            told += self._single(event, t, now_s) if event.incident.kind == KIND else [event]
        return told + self._follow(t, now_s)

    def shown(self, incident: Incident) -> Incident:
        """A single incident as it is told: milder while the common cause is suspected, linked for good."""
        common, link = self._common, self._links.get(incident.id)
        if link is None:
            return incident
        related = (*incident.related, link)
        if common is None or incident.id not in common.held:
            return replace(incident, related=related)
        severity = "ticket" if incident.severity == "page" else incident.severity
        return replace(incident, related=related, severity=severity, restart_advised=False)

    def _see(self, observation: Observation, host: str, now_s: float, late_s: float) -> None:
        if late_s >= self._late[1] or now_s - self._late[0] > WINDOW_SECONDS:
            self._late = now_s, late_s
        target = self._targets.setdefault(observation.target, _Target(host))
        process, health = observation.process, observation.health
        target.dead = process is not None and process.alive is False
        heard = health is not None and health.status is not None
        if observation.scrape.outcome == "watcher" and not heard:
            return  # nobody was asked: neither an answer nor a silence
        target.host, target.outcome = host, observation.scrape.outcome
        if target.outcome not in _SILENT or heard:
            target.answered_s, target.silent_s = now_s, None
        elif target.silent_s is None:
            target.silent_s = now_s

    def _single(self, event: IncidentEvent, t: float, now_s: float) -> list[IncidentEvent]:
        """One event of an `engine_down`, and what it leads to."""
        incident, common = event.incident, self._common
        name = incident.id
        if not incident.open:
            self._singles.pop(name, None)
            told = self._shown(event)
            self._links.pop(name, None)
            return [told]
        self._singles[name] = incident
        if common is not None and incident.cause in _ANSWERS:
            common.held.pop(name, None)  # whatever it was, now it is its own trouble
        if common is None:
            return self._suspect(event, t, now_s)
        if name not in self._links and self._fell_with(
            incident.target, common.moment_s, common.unseen
        ):
            self._hold(common, name)
            common.members[incident.target] = None
            common.incident = self._described(common, t, now_s)
            return [self._shown(event), IncidentEvent(UPDATED, t, common.incident)]
        return [self._shown(event)]

    def _suspect(self, event: IncidentEvent, t: float, now_s: float) -> list[IncidentEvent]:
        """Is this the first of many?"""
        target = event.incident.target
        moment_s, unseen = self._since(target, now_s)
        members = [name for name in self._targets if self._fell_with(name, moment_s, unseen)]
        known = sum(1 for each in self._targets.values() if self._is_known(each, now_s))
        known += len(members) if unseen else 0
        if target not in members or not self._too_many(len(members), known):
            return [event]
        incident = Incident(
            id=identity(WATCHER, None, KIND, t), target=WATCHER, engine=None, kind=KIND, cause=CAUSE,
            severity="page", summary="", opened_t=t, updated_t=t, began_t=t,
        )  # fmt: skip
        common = _Common(incident, moment_s, unseen, known, dict.fromkeys(members))
        for name, each in self._singles.items():
            if each.target in common.members:
                self._hold(common, name)
        common.incident = self._described(common, t, now_s)
        self._common = common
        others = [self._singles[name] for name in common.held if name != event.incident.id]
        softened = [IncidentEvent(UPDATED, t, self.shown(each)) for each in others]
        return [IncidentEvent(OPENED, t, common.incident), *softened, self._shown(event)]

    def _since(self, name: str, now_s: float) -> tuple[float, str]:
        """The moment around which others fell with it; and its outcome, if that was before the watcher began.

        Such a target should answer, by what an earlier run knew. Of the others it is not known: only who
        is silent in the same way is taken for one that fell with it, and who refuses starts.
        """
        target = self._targets.get(name)
        if target is None or target.answered_s is not None or target.outcome == "refused":
            return now_s, ""
        return now_s if target.silent_s is None else target.silent_s, target.outcome

    def _too_many(self, silent: int, known: int) -> bool:
        return silent >= self._targets_min and silent > self._share * known

    def _is_known(self, target: _Target, now_s: float) -> bool:
        return target.answered_s is not None and now_s - target.answered_s <= KNOWN_SECONDS

    def _fell_with(self, name: str, moment_s: float, unseen: str) -> bool:
        """Did it fall silent within the window around a moment, for no reason that is known?"""
        target = self._targets.get(name)
        if target is None or target.silent_s is None or target.dead or name in self._explained:
            return False
        if (target.outcome if target.answered_s is None else "") != unseen:
            return False
        return abs(target.silent_s - moment_s) <= WINDOW_SECONDS

    def _shown(self, event: IncidentEvent) -> IncidentEvent:
        return replace(event, incident=self.shown(event.incident))

    def _hold(self, common: _Common, name: str) -> None:
        common.held[name] = None
        self._links[name] = common.incident.id

    def _follow(self, t: float, now_s: float) -> list[IncidentEvent]:
        """Is it over? Then who is still silent speaks for himself."""
        common = self._common
        if common is None:
            return []
        silent = self._silent(common)
        if self._too_many(len(silent), common.known):
            common.back_s = None
            return []
        if common.back_s is None:
            common.back_s = now_s
        if common.members and now_s - common.back_s < SETTLED_SECONDS:
            return []
        released = self._released(common, t, now_s)
        # Of those that are back each incident ends by itself, when it was quiet for long enough: until
        # then it may be the common trouble that comes again.
        if any(name in self._singles for name in common.held):
            return released
        self._common = None
        resolution = "healthy" if common.members else "target_gone"
        return [*released, IncidentEvent(RESOLVED, t, ended(common.incident, t, resolution))]

    def _released(self, common: _Common, t: float, now_s: float) -> list[IncidentEvent]:
        """Most are back: who is still silent is told as it was judged."""
        told: list[IncidentEvent] = []
        for name in tuple(common.held):
            incident = self._singles.get(name)
            if incident is None or (target := self._targets[incident.target]).silent_s is None:
                continue
            if incident.cause == CAUSE and target.outcome == "refused":
                continue  # it is reached again: what it has then is judged anew, and soon
            if now_s - target.silent_s >= SETTLED_SECONDS:
                del common.held[name]
                told.append(IncidentEvent(UPDATED, t, self.shown(incident)))
        return told

    def _silent(self, common: _Common) -> list[str]:
        return [name for name in common.members if self._targets[name].silent_s is not None]

    def _described(self, common: _Common, t: float, now_s: float) -> Incident:
        members = {name: self._targets[name] for name in common.members}
        others = [
            each for name, each in self._targets.items()
            if name not in members and each.silent_s is None and self._is_known(each, now_s)
        ]  # fmt: skip
        how = _counted(each.outcome for each in members.values())
        late_s = self._late[1] if now_s - self._late[0] <= WINDOW_SECONDS else 0.0
        fell = (
            "have not answered since the watcher began"
            if common.unseen
            else "fell silent within a minute"
        )
        return replace(
            common.incident,
            summary=f"{len(members)} of {common.known} targets {fell} ({how}): most likely what they "
            "share, this watcher's host or network among it",
            evidence_for=_evidence_for(members, common.known, how, late_s),
            evidence_against=_evidence_against(list(members.values()), others),
            related=tuple(common.held),
            updated_t=t,
        )


def _evidence_for(
    members: Mapping[str, _Target], known: int, how: str, late_s: float
) -> tuple[Evidence, ...]:
    hosts = sorted({each.host for each in members.values()})
    shown = ", ".join(list(members)[:NAMES_SHOWN]) + (", …" if len(members) > NAMES_SHOWN else "")
    where = (
        f"all of them are on {hosts[0]}: it may be that host, or the way to it"
        if len(hosts) == 1
        else f"they are on {len(hosts)} hosts, which share no more than the way to them"
    )
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


def _evidence_against(
    members: Sequence[_Target], others: Sequence[_Target]
) -> tuple[Evidence, ...]:
    """What says that it is they, and not we."""
    found = []
    if all(each.outcome == "refused" for each in members):
        text = "every connection is refused: something there lives and is reached, so the servers went, or a proxy before them"
        found.append(Evidence(name="refused", value=float(len(members)), text=text))
    if others:
        same = {each.host for each in members} & {each.host for each in others}
        where = (
            f", some of them on the same hosts ({', '.join(sorted(same)[:NAMES_SHOWN])})"
            if same
            else ""
        )
        text = f"{len(others)} targets still answer{where}"
        found.append(
            Evidence(name="targets_answering", value=float(len(others)), expected=0.0, text=text)
        )
    return tuple(found)


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())
