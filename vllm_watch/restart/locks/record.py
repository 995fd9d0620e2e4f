"""The record of a lock that several watchers share, and the changes that each may make.

A writer replaces the whole latest version, so concurrent writers cannot exceed a limit. After its
release, a slot may stay taken for a while: it rests. Wall clocks decide when a rest ends, and when
a restart no longer counts against the hourly limit. If a clock is far off, the time since this
watcher first saw the entry decides. Source: k8s.io/client-go/tools/leaderelection,
observedRenewTime.

The record also has the recent attempts of all watchers that share the lock. An attempt is
`uncertain` if its slot expired without a result.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, cast

from vllm_watch.state.attempt import ENDED_STATES, OPEN_STATES, Attempt

HOUR_SECONDS = 3600.0

SKEW_SECONDS = 2.0
"""Tolerated difference between wall clocks, which NTP usually keeps to milliseconds."""

EXPIRY_TTLS = 3
"""A slot that is not renewed expires after this many TTLs."""

SLOTS_MAX = 100
SPENT_MAX = 1000
"""A record with more spent restarts than this is not from vllm-watch, because settings allow no larger limit."""

PAST_MAX = 500
"""At most this many attempts are kept. They take about 100,000 bytes, and a Lease can hold 250,000."""

TARGET_PAST_MAX = 50
"""At most this many attempts are kept per target. A restart budget above this is not enforced across watchers."""

_LOOPBACK = "localhost:"


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
class Past:
    """One attempt, as other watchers see it."""

    id: str
    target: str
    group: str
    address: str  # host:port; "" for a pod
    host: str  # host of a localhost address; "" for other addresses
    trigger: str
    state: str
    began_t: float
    called_t: float | None = None
    incident_id: str | None = None


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
            slots = tuple(Slot(**each) for each in document["slots"])
            spent = tuple(Spent(**each) for each in document["spent"])
            _require(all(map(_typed, (*slots, *spent))) and all(map(_in_range, slots)))
            past = pasts_from_json(document.get("past", ()))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}"[:200]) from None
        if len(slots) > SLOTS_MAX or len(spent) > SPENT_MAX:
            raise ValueError("it is too long")
        return cls(slots=slots, spent=spent, past=past)


def _typed(part: Any) -> bool:
    """Return True if each field is of its type; an integer may stand for a float."""
    for each in fields(part):
        value, wanted = getattr(part, each.name), cast("type", each.type)
        whole = isinstance(value, int) and isinstance(0.0, wanted)
        if not (whole or isinstance(value, wanted)):
            return False
    return True


def _in_range(slot: Slot) -> bool:
    day = 86400.0  # the maximum of the settings
    return 0 < slot.ttl_seconds <= day and 0 <= slot.rest_seconds <= day


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("a value is out of its range")


class Sightings:
    """Remembers when this watcher first saw each slot and each spent restart in its current state."""

    def __init__(self) -> None:
        self._first_s: dict[Slot | Spent, float] = {}

    def see(self, record: Record, now_s: float) -> None:
        parts: tuple[Slot | Spent, ...] = (*record.slots, *record.spent)
        self._first_s = {part: self._first_s.get(part, now_s) for part in parts}

    def age_seconds(self, part: Slot | Spent, now_s: float) -> float:
        """Return how long this watcher has seen `part` unchanged (0 if never)."""
        return now_s - self._first_s.get(part, now_s)


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
    past = without_ghosts(record.past, {slot.attempt_id for slot in slots})
    return Change(record=Record(slots=slots, spent=spent, past=first(past, begins)), text="taken")


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
    past = put(record.past, stands)
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
    past = ended(record.past, release.attempt_id, release.ended, used=used)
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


def past_of(attempt: Attempt | None, host: str) -> Past | None:
    """Return the attempt in the form that watchers share; `host` is the host of this watcher."""
    if attempt is None:
        return None
    return Past(
        id=attempt.id, target=attempt.target, group=attempt.group, address=attempt.address,
        host=host if attempt.address.startswith(_LOOPBACK) else "", trigger=attempt.trigger,
        state=attempt.state, began_t=attempt.began_t, called_t=attempt.called_t, incident_id=attempt.incident_id,
    )  # fmt: skip


def others(
    pasts: Iterable[Past], held: Collection[str], host: str, attempt_id: str
) -> tuple[Attempt, ...]:
    """Return the other attempts that concern `host`. The attempt ids of slot holders are in `held`."""
    return tuple(
        Attempt(
            id=each.id, target=each.target, group=each.group, address=each.address, trigger=each.trigger,
            state=each.state if each.id in held or each.state in ENDED_STATES else "uncertain",
            began_t=each.began_t, called_t=each.called_t, incident_id=each.incident_id,
            hook="", reason="", actor="", text="known from the lock",
        )
        for each in pasts
        if each.host in ("", host) and each.id != attempt_id and (each.id in held or each.state != "intent")
    )  # fmt: skip


def put(pasts: Iterable[Past], one: Past | None) -> tuple[Past, ...]:
    """Replace or append the attempt, and drop the oldest attempts beyond the limits."""
    if one is None:
        return tuple(pasts)
    others = [each for each in pasts if each.id != one.id]
    same = [each for each in others if _of(each) == _of(one)]
    forgotten = {each.id for each in same[: max(0, len(same) + 1 - TARGET_PAST_MAX)]}
    return (*(each for each in others if each.id not in forgotten), one)[-PAST_MAX:]


def first(pasts: tuple[Past, ...], one: Past | None) -> tuple[Past, ...]:
    """Append a new attempt, unless it is already recorded."""
    known = one is not None and any(each.id == one.id for each in pasts)
    return pasts if known else put(pasts, one)


def ended(
    pasts: tuple[Past, ...], attempt_id: str, one: Past | None, *, used: bool
) -> tuple[Past, ...]:
    """Record the result of an attempt, or remove one that called no hook."""
    if used:
        return put(pasts, one)
    return tuple(each for each in pasts if each.id != attempt_id)


def without_ghosts(pasts: Iterable[Past], held: Collection[str]) -> tuple[Past, ...]:
    """Remove attempts that lost their slot before they called a hook."""
    return tuple(each for each in pasts if each.state != "intent" or each.id in held)


def pasts_from_json(document: Any) -> tuple[Past, ...]:
    """Raises ValueError if vllm-watch did not write it."""
    try:
        pasts = tuple(Past(**each) for each in document)
    except TypeError as error:
        raise ValueError(str(error)[:200]) from None
    states = OPEN_STATES + ENDED_STATES
    if len(pasts) > PAST_MAX or not all(_typed(each) and each.state in states for each in pasts):
        raise ValueError("the attempts in it are not ours")
    return pasts


def _of(one: Past) -> tuple[str, ...]:
    return one.host, one.address, one.target, one.group
