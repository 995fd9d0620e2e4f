"""The record of a lock that several watchers share, and the changes that each may make.

A writer replaces the whole latest version, so concurrent writers cannot exceed a limit. After its
release, a slot may stay taken for a while: it rests. Wall clocks decide when a rest ends, and when
a restart no longer counts against the hourly limit. If a clock is far off, the time since this
watcher first saw the entry decides. Source: k8s.io/client-go/tools/leaderelection,
observedRenewTime.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from vllm_watch.restart.locks import past as pasts
from vllm_watch.restart.locks.past import Past

HOUR_SECONDS = 3600.0

SKEW_SECONDS = 2.0
"""Tolerated difference between wall clocks, which NTP usually keeps to milliseconds."""

EXPIRY_TTLS = 3
"""A slot that is not renewed expires after this many TTLs."""

SLOTS_MAX = 100
SPENT_MAX = 1000
"""A record with more spent restarts than this is not from vllm-watch, because settings allow no larger limit."""


class Now(NamedTuple):
    """The current time by this watcher's clocks."""

    monotonic_s: float
    unix_t: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot that is held, or rests after its release."""

    holder: str
    attempt_id: str
    ttl_seconds: float
    beat: int = 0  # counts renewals
    rest_t: float | None = None  # Unix seconds by the holder's clock; None while held
    rest_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A restart that counts against the hourly limit, until an hour after its end."""

    attempt_id: str
    t: float  # Unix seconds by the writer's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Slots, spent restarts and recent attempts of one lock."""

    slots: tuple[Slot, ...] = ()
    spent: tuple[Spent, ...] = ()
    past: tuple[Past, ...] = ()  # oldest first

    def of(self, attempt_id: str) -> Slot | None:
        return next(
            (each for each in self.slots if each.attempt_id == attempt_id and each.rest_t is None), None
        )  # fmt: skip

    @property
    def held(self) -> tuple[Slot, ...]:
        """Slots that are not resting; they may have expired."""
        return tuple(slot for slot in self.slots if slot.rest_t is None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> "Record":
        """Raises ValueError if vllm-watch did not write it."""
        try:
            slots = tuple(_slot(each) for each in document["slots"])
            spent = tuple(_spent(each) for each in document["spent"])
            past = pasts.from_json(document.get("past", ()))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}"[:200]) from None
        if len(slots) > SLOTS_MAX or len(spent) > SPENT_MAX:
            raise ValueError("it is too long")
        return cls(slots=slots, spent=spent, past=past)


def _slot(document: Mapping[str, Any]) -> Slot:
    slot = Slot(**document)
    numbers = (slot.ttl_seconds, slot.beat, slot.rest_seconds, slot.rest_t or 0.0)
    _require(all(isinstance(each, int | float) for each in numbers))
    _require(isinstance(slot.holder, str) and isinstance(slot.attempt_id, str))
    _require(0 < slot.ttl_seconds <= 86400 and 0 <= slot.rest_seconds <= 86400)  # noqa: PLR2004 - settings
    return slot


def _spent(document: Mapping[str, Any]) -> Spent:
    spent = Spent(**document)
    _require(isinstance(spent.attempt_id, str) and isinstance(spent.t, int | float))
    return spent


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("a value is out of its range")


class Sightings:
    """Remembers when this watcher first saw each slot and each spent restart in its current state."""

    def __init__(self) -> None:
        self._first_s: dict[tuple[object, ...], float] = {}

    def see(self, record: Record, now_s: float) -> None:
        seen: list[tuple[object, ...]] = [_part(slot) for slot in record.slots]
        seen += [_part(spent) for spent in record.spent]
        self._first_s = {part: self._first_s.get(part, now_s) for part in seen}

    def age_seconds(self, part: Slot | Spent, now_s: float) -> float:
        """Return how long this watcher has seen `part` unchanged (0 if never)."""
        return now_s - self._first_s.get(_part(part), now_s)


def _part(part: Slot | Spent) -> tuple[object, ...]:
    if isinstance(part, Spent):
        return ("spent", part.attempt_id, part.t)
    return (part.attempt_id, part.beat, part.rest_t)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The lock's limits in this watcher's settings."""

    slots: int
    per_hour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new record to write, or a refusal."""

    record: Record | None
    text: str


class Release(NamedTuple):
    """The end of an attempt that may hold a slot."""

    attempt_id: str
    rest_seconds: float = 0.0
    used: bool = True  # True if the restart counts
    ended: Past | None = None


def take(
    record: Record, sightings: Sightings, limits: Limits, now: Now, wanted: Slot, begins: Past | None = None
) -> Change:  # fmt: skip
    """Take a slot for an attempt, or report the holder if all slots are taken."""
    if record.of(wanted.attempt_id) is not None:
        return renew(record, wanted.attempt_id)
    kept = tuple(slot for slot in record.slots if not _free(slot, sightings, now))
    if len(kept) >= limits.slots:
        return Change(record=None, text=_taken_text(kept, sightings, now))
    spent = _still_spent(record, kept, sightings, now)
    if limits.per_hour is not None and len(spent) >= limits.per_hour:
        text = f"{len(spent)} of {limits.per_hour} restarts per hour are spent by all users of the lock"
        return Change(record=None, text=text)
    # No hourly limit exceeds SPENT_MAX, so older entries can be dropped.
    spent = (*spent, Spent(attempt_id=wanted.attempt_id, t=now.unix_t))[-SPENT_MAX:]
    slots = (*kept, wanted)
    past = pasts.without_ghosts(record.past, {slot.attempt_id for slot in slots})
    return Change(
        record=Record(slots=slots, spent=spent, past=pasts.first(past, begins)), text="taken"
    )


def _still_spent(
    record: Record, kept: tuple[Slot, ...], sightings: Sightings, now: Now
) -> tuple[Spent, ...]:
    under_way = {slot.attempt_id for slot in kept if slot.rest_t is None}
    ghosts = {slot.attempt_id for slot in record.held} - under_way
    spent = []
    for each in record.spent:
        if each.attempt_id in ghosts:
            spent.append(replace(each, t=now.unix_t))
        elif each.attempt_id in under_way or not _hour_over(each, sightings, now):
            spent.append(each)
    return tuple(spent)


def renew(record: Record, attempt_id: str, stands: Past | None = None) -> Change:
    """Renew the slot and record the attempt, or refuse if the slot was lost."""
    mine = record.of(attempt_id)
    if mine is None:
        return Change(record=None, text="it was lost: another watcher took it, or it was deleted")
    slots = tuple(
        replace(slot, beat=slot.beat + 1) if slot is mine else slot for slot in record.slots
    )
    past = pasts.put(record.past, stands)
    return Change(record=replace(record, slots=slots, past=past), text="renewed")


def give_back(record: Record, now: Now, release: Release) -> Change:
    """Release the slot and record the result. A used slot rests first. An unused slot does not count as a restart."""
    mine, used = record.of(release.attempt_id), release.used
    slots = tuple(slot for slot in record.slots if slot is not mine)
    if mine is not None and used and release.rest_seconds > 0:
        slots = (*slots, replace(mine, rest_t=now.unix_t, rest_seconds=release.rest_seconds))
    spent = tuple(
        replace(each, t=now.unix_t) if each.attempt_id == release.attempt_id else each
        for each in record.spent
        if used or each.attempt_id != release.attempt_id
    )
    past = pasts.ended(record.past, release.attempt_id, release.ended, used=used)
    changed = Record(slots=slots, spent=spent, past=past)
    return Change(record=None if changed == record else changed, text="given back")


def _free(slot: Slot, sightings: Sightings, now: Now) -> bool:
    seen_s = sightings.age_seconds(slot, now.monotonic_s)
    if slot.rest_t is None:
        return seen_s > EXPIRY_TTLS * slot.ttl_seconds
    return _over(slot.rest_t, slot.rest_seconds, seen_s, now)


def _hour_over(spent: Spent, sightings: Sightings, now: Now) -> bool:
    seen_s = sightings.age_seconds(spent, now.monotonic_s)
    return _over(spent.t, HOUR_SECONDS, seen_s, now)


def _over(began_t: float, seconds: float, seen_s: float, now: Now) -> bool:
    return now.unix_t - began_t > seconds + SKEW_SECONDS or seen_s > seconds


def _taken_text(slots: tuple[Slot, ...], sightings: Sightings, now: Now) -> str:
    first = min(slots, key=lambda slot: slot.rest_t is not None)
    more = f" and {len(slots) - 1} more" if len(slots) > 1 else ""
    if first.rest_t is not None:
        left_s = first.rest_t + first.rest_seconds - now.unix_t
        return f"it rests for {max(0.0, left_s):.0f} s more after {first.attempt_id}{more}"
    seen_s = sightings.age_seconds(first, now.monotonic_s)
    text = f"held by {first.holder} ({first.attempt_id}){more}"
    if seen_s < first.ttl_seconds:
        return text
    left_s = EXPIRY_TTLS * first.ttl_seconds - seen_s
    return (
        f"{text}, not renewed for {seen_s:.0f} s; free in {max(0.0, left_s):.0f} s unless renewed"
    )
