"""What is sent next of all that waits: one message of one cause in one group, or a digest of more. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vllm_watch.notify import policy
from vllm_watch.notify.matter import RESTART, Matter, rank
from vllm_watch.settings.notifications import ToldSettings

HOUR_SECONDS = 3600.0

READY_MAX = 5
"""So many messages at one moment are read; more of them are one trouble with many faces: one digest."""

DIGEST_SECONDS = 300.0
"""Beyond the hour's messages a digest with pages waits no longer than this: a page late is a page lost."""

EXPIRE_SECONDS = {"page": 24 * 3600.0, "ticket": 4 * 3600.0, "info": 3600.0}
"""What could not be told for so long is dropped, and the next message says how many were. A page of a day
ago is still news to who slept through it; a ticket is on the status page."""

CLOCK_SECONDS = 1.0
"""Less than that is no step of a clock."""

WAITING_MAX = 500
"""Matters that wait for one notifier; beyond it the oldest of the least severe is dropped, and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One phase of one matter that waits to be told."""

    phase: str
    name: str  # of the phase, unique for this matter: there may be several reminders
    t: float  # Unix seconds: since when it waits
    matter: Matter

    @property
    def row(self) -> tuple[str, str]:
        """What it is known by on disk: the matter's id and the phase's name."""
        return self.matter.id, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One matter in a message."""

    phase: str
    matter: Matter
    late: bool = False  # it is over, and nobody was told that it was open


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one message tells; `rows` are all that it stands for."""

    items: tuple[Item, ...]  # the worst first
    rows: tuple[tuple[str, str], ...]
    digest: bool = False

    @property
    def severity(self) -> str:
        """That of the worst."""
        return self.items[0].matter.severity


def choose(
    settings: ToldSettings, waiting: Sequence[Waiting], sent_t: Sequence[float], now_t: float
) -> tuple[Batch | None, float | None]:
    """Return what to send now, or else when to ask again (Unix seconds; None: when more waits).

    `sent_t` are the times of the messages of the last hour.
    """
    groups = _groups(waiting)
    # A time that has yet to come is of a clock that was stepped back: it is not waited for.
    ready = [
        each for each in groups
        if not each.since_t <= now_t + CLOCK_SECONDS or each.since_t + settings.group_seconds <= now_t
    ]  # fmt: skip
    if not ready:
        soonest = min((each.since_t for each in groups), default=None)
        return None, None if soonest is None else soonest + settings.group_seconds
    recent = sorted(t for t in sent_t if now_t - HOUR_SECONDS < t <= now_t)
    left = settings.messages_per_hour_max - len(recent)
    if left > 1 or (left == 1 and len(ready) == 1):
        return (_digest(ready) if len(ready) > READY_MAX else ready[0].batch()), None
    if left == 1:
        return _digest(ready), None
    again_t = recent[len(recent) - settings.messages_per_hour_max] + HOUR_SECONDS
    if any(each.severity == "page" for each in ready):
        again_t = min(again_t, recent[-1] + DIGEST_SECONDS)
        if again_t <= now_t:
            return _digest(ready), None
    return None, again_t


def again(waiting: Sequence[Waiting]) -> Batch:
    """Return the batch of a message that was begun: what it stands for is what waits under its key."""
    return _digest(_groups(waiting))


def too_many(waiting: Sequence[Waiting], now_t: float) -> list[Waiting]:
    """Return what is to be dropped: what waited too long, and what is over the bound."""
    old: list[Waiting] = []
    kept: list[Waiting] = []
    for each in waiting:
        expired = now_t - each.t > EXPIRE_SECONDS.get(each.matter.severity, 0.0)
        (old if expired else kept).append(each)
    kept.sort(key=lambda each: (rank(each.matter.severity), each.t))
    return old + kept[: max(0, len(kept) - WAITING_MAX)]


@dataclass(slots=True)
class _Group:
    """What waits of one phase of one cause in one group."""

    items: list[Item]
    rows: list[tuple[str, str]]
    since_t: float
    severity: str

    def batch(self) -> Batch:
        return Batch(items=_ordered(self.items), rows=tuple(self.rows))


def _groups(waiting: Iterable[Waiting]) -> list[_Group]:
    """The worst first, and of that the oldest."""
    of_matter: dict[str, list[Waiting]] = {}
    for each in sorted(waiting, key=lambda each: each.t):
        of_matter.setdefault(each.matter.id, []).append(each)
    groups: dict[tuple[str, ...], _Group] = {}
    for phases in of_matter.values():
        item, since_t = _folded(phases), phases[0].t
        matter = item.matter
        place = matter.target if matter.about == RESTART or not matter.group else ""
        key = (item.phase, str(item.late), matter.group, place, matter.kind, matter.cause, matter.severity)  # fmt: skip
        group = groups.setdefault(key, _Group([], [], since_t, matter.severity))
        group.items.append(item)
        group.rows += [each.row for each in phases]
        group.since_t = min(group.since_t, since_t)
    return sorted(groups.values(), key=lambda each: (-rank(each.severity), each.since_t))


def _folded(phases: Sequence[Waiting]) -> Item:
    """Of one matter the newest is told; what was never told open is told so, or as over."""
    last, names = phases[-1], {each.phase for each in phases}
    if policy.OPENED not in names or last.phase == policy.OPENED:
        return Item(phase=last.phase, matter=last.matter)
    if policy.RESOLVED in names:
        return Item(phase=policy.RESOLVED, matter=last.matter, late=True)
    return Item(phase=policy.OPENED, matter=last.matter)


def _digest(groups: Sequence[_Group]) -> Batch:
    items = _ordered(item for each in groups for item in each.items)
    rows = tuple(row for each in groups for row in each.rows)
    return Batch(items=items, rows=rows, digest=len(groups) > 1)


def _ordered(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(
        sorted(
            items,
            key=lambda each: (
                each.phase == policy.RESOLVED, -rank(each.matter.severity), each.matter.t, each.matter.id,
            ),
        )
    )  # fmt: skip
