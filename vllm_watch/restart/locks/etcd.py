"""A lock in etcd: one key per slot, one per restart of the last hour, each with a lease of etcd's own clock, and one
for the last attempts (past.py).

Keys are created only where there is none, slot and hour in one transaction, so that neither limit can be
passed by two who come at once. What its holder does not keep alive etcd deletes after three TTLs; the holder
itself stops believing after one (locks/base.py says why).
Setting it up: docs/locks.md.
"""

import asyncio
import json
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any, TypeVar

from vllm_watch.clients.etcd import Access, Change, Etcd, EtcdError, Kept, NewSession
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks import past as pasts
from vllm_watch.restart.locks.base import HOST, Held, boottime_s
from vllm_watch.restart.locks.past import Past, others, past
from vllm_watch.restart.locks.record import EXPIRY_TTLS, HOUR_SECONDS, Limits
from vllm_watch.settings.lock import LockSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.support import json_text

ASK_SECONDS = 20.0
"""For taking, renewing or giving back with all its tries."""

TRIES_MAX = 6
"""Of twenty that take a slot at once the last but few are refused by the second try."""

BACKOFF_SECONDS = 0.1
"""Before the second try, twice as long before each further; of it a random part."""

LEFT_MAX = 100

_LEASE_IDS = range(1, 1 << 62)

_T = TypeVar("_T")


class Shared:
    """One lock as this process knows it: which leases of its own may still hold what nobody uses."""

    def __init__(self, etcd: Etcd, name: str) -> None:
        self.etcd = etcd
        self.prefix = f"vllm-watch/{name}/"
        self._past_key = f"{self.prefix}past"
        self._left: list[int] = []
        self._ends: list[End] = []  # that could not be put down

    def leave(self, lease_id: int) -> None:
        self._left = [*self._left, lease_id][-LEFT_MAX:]

    def owe(self, end: "End") -> None:
        self._ends = [*self._ends, end][-LEFT_MAX:]

    async def tidy(self) -> None:
        """End what was left, and put down how it ended."""
        for end in list(self._ends):
            await self.put_down(end)
            self._ends.remove(end)
        for lease_id in list(self._left):
            await self.etcd.revoke(lease_id)
            self._left.remove(lease_id)

    def past(self, kept: Iterable[Kept]) -> tuple[str | None, tuple[Past, ...]]:
        """The last attempts as they are written, and read. Raises ValueError for what is not ours."""
        said = next((each.value for each in kept if each.key == self._past_key), None)
        return said, () if said is None else pasts.from_json(json_text.read(said))

    def past_change(self, old: str | None, past: tuple[Past, ...]) -> Change:
        value = json.dumps(pasts.to_json(past), separators=(",", ":"))
        return old, Kept(self._past_key, value, 0)

    async def put_down(self, change: Callable[[tuple[Past, ...]], tuple[Past, ...]]) -> None:
        """Change what is known of the last attempts. Raises EtcdError where others were faster each time."""
        for tries in range(TRIES_MAX):
            await _back_off(tries)
            old, known = self.past(await self.etcd.range(self._past_key))
            changed = change(known)
            if changed == known or await self.etcd.put([self.past_change(old, changed)]):
                return
        raise EtcdError(f"others were faster {TRIES_MAX} times", "it is asked again")


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, as a change of what is known of the last ones."""

    attempt_id: str
    ended: Past | None
    used: bool

    def __call__(self, known: tuple[Past, ...]) -> tuple[Past, ...]:
        return pasts.ended(known, self.attempt_id, self.ended, used=self.used)


@cache
def _shared(access: Access, session: NewSession, name: str) -> Shared:
    """What was left by one attempt the next one ends."""
    return Shared(Etcd(access, session), name)


def make(settings: LockSettings, tools: Tools) -> "Lock":
    """Return a lock for one attempt."""
    access = Access(
        endpoints=settings.endpoints, ca_file=settings.ca_file,
        certificate_file=settings.certificate_file, key_file=settings.key_file,
    )  # fmt: skip
    shared = _shared(access, tools.session, settings.name)
    limits = Limits(slots=settings.slots, per_hour=settings.restarts_per_hour_max)
    return Lock(shared, limits, settings.ttl_seconds)


class Lock:
    """One slot, for one attempt."""

    def __init__(self, shared: Shared, limits: Limits, ttl_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds
        self._shared, self._etcd, self._limits = shared, shared.etcd, limits
        self._slot: Kept | None = None
        self._hour: Kept | None = None
        self._until_s = 0.0  # of our own clock

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        if self._slot is not None and _said(self._slot).get("attempt_id") == attempt_id:
            return await self.renew()
        granted: list[int] = []
        held = Held(held=None, text="it was not asked")
        try:
            begins = past(attempt, HOST)
            held = await self._asked(lambda: self._take(holder, attempt_id, granted, begins))
        finally:
            if held.held is not True and granted:
                self._slot = self._hour = None
                for lease_id in granted:
                    self._shared.leave(lease_id)
        if held.held is False:  # else it is our next asking that ends them
            await self._asked(self._shared.tidy)
        return held

    async def _take(
        self, holder: str, attempt_id: str, granted: list[int], begins: Past | None
    ) -> Held:
        await self._shared.tidy()
        lease_id, hour_id = _new_id(), _new_id()
        value = json.dumps({"holder": holder, "attempt_id": attempt_id})
        for tries in range(TRIES_MAX):
            await _back_off(tries)
            kept = await self._etcd.range(self._shared.prefix)
            old, known = self._shared.past(kept)
            adopted = self._adopt(kept, attempt_id)
            if adopted is not None:
                return await self._kept_alive(adopted)
            wanted, refusal = self._wanted(kept, value, lease_id, hour_id)
            if refusal is not None:
                return Held(held=False, text=refusal)
            sent_s = boottime_s()
            if not granted:
                granted += [lease_id, hour_id]
                seconds = ceil(EXPIRY_TTLS * self.ttl_seconds)
                await self._etcd.grant(lease_id, seconds)
                await self._etcd.grant(hour_id, ceil(HOUR_SECONDS) + seconds)
            changes: list[Change] = [(None, each) for each in wanted]
            begun = pasts.first(pasts.without_ghosts(known, _held(kept)), begins)
            if begun != known:
                changes.append(self._shared.past_change(old, begun))
            if await self._etcd.put(changes):
                self._slot, self._hour = wanted[0], wanted[1] if len(wanted) > 1 else None
                self._until_s = sent_s + self.ttl_seconds
                return self._held(begun, kept)
        return Held(held=False, text=f"others were faster {TRIES_MAX} times")

    def _adopt(self, kept: list[Kept], attempt_id: str) -> Kept | None:
        """Take up what is held under this attempt already, by an earlier run of this watcher."""
        mine = [each for each in kept if _said(each).get("attempt_id") == attempt_id]
        names = {name: f"{self._shared.prefix}{name}/" for name in ("slot", "hour")}
        slots = (each for each in mine if each.key.startswith(names["slot"]) and not _rests(each))
        slot = next(slots, None)
        if slot is not None:
            self._slot = slot
            self._hour = next((each for each in mine if each.key.startswith(names["hour"])), None)
        return slot

    def _wanted(
        self, kept: list[Kept], value: str, lease_id: int, hour_id: int
    ) -> tuple[list[Kept], str | None]:
        """Return the keys to create, or why there is no room."""
        taken = {each.key for each in kept}
        slots = [each for each in kept if each.key.startswith(f"{self._shared.prefix}slot/")]
        slot = self._free("slot", self._limits.slots, taken)
        if slot is None or len(slots) >= self._limits.slots:
            return [], _who(slots)
        puts = [Kept(slot, value, lease_id)]
        limit = self._limits.per_hour
        if limit is not None:
            hour = self._free("hour", limit, taken)
            if hour is None:
                return [], f"{limit} of {limit} restarts in an hour are spent by all who share it"
            puts.append(Kept(hour, value, hour_id))
        return puts, None

    def _free(self, kind: str, count: int, taken: set[str]) -> str | None:
        names = (f"{self._shared.prefix}{kind}/{number:04}" for number in range(count))
        return next((name for name in names if name not in taken), None)

    def _held(self, known: tuple[Past, ...], kept: list[Kept]) -> Held:
        mine = _attempt_of(self._slot)
        text = f"held for {self.ttl_seconds:.0f} s"
        return Held(held=True, text=text, others=others(known, _held(kept), HOST, mine))

    async def renew(self, attempt: Attempt | None = None) -> Held:
        slot = self._slot
        if slot is None:
            return Held(held=False, text="it is not held")
        held = await self._asked(lambda: self._kept_alive(slot, past(attempt, HOST)))
        if held.held is False:
            self._until_s = 0.0
        return held

    async def _kept_alive(self, slot: Kept, stands: Past | None = None) -> Held:
        hour = self._hour
        if stands is not None:
            await self._shared.put_down(lambda known: pasts.put(known, stands))
        sent_s = boottime_s()
        alive = await self._etcd.keep(slot.lease_id)
        if hour is not None:
            alive = await self._etcd.keep(hour.lease_id) and alive
        # Read by a majority: a server that was cut off from the others does not know what has ended.
        kept = await self._etcd.range(self._shared.prefix)
        if not alive or slot not in kept:
            return Held(held=False, text="it was lost: it has ended, or somebody deleted it")
        self._until_s = sent_s + self.ttl_seconds
        return self._held(self._shared.past(kept)[1], kept)

    def still_ours(self) -> bool:
        return self._slot is not None and boottime_s() < self._until_s

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        slot, hour = self._slot, self._hour
        self._slot = self._hour = None
        attempt_id = _attempt_of(slot) if ended is None else ended.id
        if not attempt_id:
            return
        end = End(attempt_id, past(ended, HOST), used)
        given = Held(held=None, text="")
        try:
            given = await self._asked(lambda: self._given_back(slot, hour, delay_seconds, end))
        finally:
            if given.held is not True:  # our next asking makes up for it; else it expires
                self._leave(slot, hour, end)

    def _leave(self, slot: Kept | None, hour: Kept | None, end: End) -> None:
        self._shared.owe(end)
        if slot is not None:
            self._shared.leave(slot.lease_id)
        if hour is not None and not end.used:
            self._shared.leave(hour.lease_id)

    async def _given_back(
        self, slot: Kept | None, hour: Kept | None, delay_seconds: float, end: End
    ) -> Held:
        # Before the slot is free: an attempt that has neither a slot nor an end is uncertain.
        await self._shared.put_down(end)
        if hour is not None and end.used:
            # Before the slot, too, so that nobody finds room that this restart has yet to take for its hour.
            await self._moved(hour, hour.value, HOUR_SECONDS)
        elif hour is not None:
            await self._etcd.revoke(hour.lease_id)
        if slot is not None:
            if end.used and delay_seconds > 0:
                await self._moved(slot, json.dumps(_said(slot) | {"rests": True}), delay_seconds)
            await self._etcd.revoke(slot.lease_id)
        return Held(held=True, text="given back")

    async def _moved(self, kept: Kept, value: str, seconds: float) -> None:
        """Have a key go on under a new lease, counted from now."""
        lease_id = _new_id()
        await self._etcd.grant(lease_id, ceil(seconds))
        if not await self._etcd.put([(kept.value, Kept(kept.key, value, lease_id))]):
            await self._etcd.revoke(lease_id)

    async def _asked(self, ask: Callable[[], Awaitable[_T]]) -> _T | Held:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await ask()
        except TimeoutError:
            return Held(held=None, text=f"etcd: no answer within {ASK_SECONDS:.0f} s")
        except EtcdError as error:
            return Held(held=None, text=f"{error.cause}; {error.remedy}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return Held(held=None, text=f"what answers is no etcd: {error}")


def _new_id() -> int:
    """A lease's number, of our own choice: also one whose grant was not answered can be ended."""
    return secrets.choice(_LEASE_IDS)


def _said(kept: Kept) -> dict[str, Any]:
    said = json_text.read(kept.value)
    return said if isinstance(said, dict) else {}


async def _back_off(tries: int) -> None:
    if tries:
        # S311: no secret; it only keeps two from meeting again and again
        await asyncio.sleep(random.uniform(0, BACKOFF_SECONDS * 2**tries))  # noqa: S311


def _attempt_of(slot: Kept | None) -> str:
    return "" if slot is None else str(_said(slot).get("attempt_id", ""))


def _held(kept: Iterable[Kept]) -> set[str]:
    """The attempts that have a slot now."""
    return {_attempt_of(each) for each in kept if "/slot/" in each.key and not _rests(each)}


def _rests(slot: Kept) -> bool:
    return _said(slot).get("rests") is True


def _who(slots: list[Kept]) -> str:
    """Name one of those in the way: one that is held before one that rests."""
    first = min(slots, key=_rests)
    said, more = _said(first), f" and {len(slots) - 1} more" if len(slots) > 1 else ""
    if _rests(first):
        return f"it rests after {said.get('attempt_id')}{more}"
    return f"held by {said.get('holder')} ({said.get('attempt_id')}){more}"
