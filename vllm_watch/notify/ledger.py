"""Who was told what, and what still waits: kept in memory, and on the disk for the next run of the watcher.

Memory is what holds; the disk follows. A disk that is full or gone costs no message: what it has not taken
is written when it can be. It shares the state file (state/) but nothing else.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import structlog

from vllm_watch.errors import StateError
from vllm_watch.notify import matter as matters
from vllm_watch.notify.batches import HOUR_SECONDS, Waiting
from vllm_watch.notify.matter import RESTART, Matter
from vllm_watch.notify.policy import RESOLVED, Told
from vllm_watch.state import ledger as disk
from vllm_watch.state.ledger import Key
from vllm_watch.state.ledger import Ledger as DiskLedger

_log = structlog.get_logger()

KEPT_SECONDS = 86400.0
"""What was told is remembered for so long after its matter is over; a step of a restart is news for an hour."""

KEPT_MAX = 5000
"""Rows of all notifiers together, of some 1 KB; the oldest that are over go first."""

DROPPED = "dropped"
"""Stands for the key of a message; behind it the key of the one that said how many were dropped."""


@dataclass(frozen=True, slots=True)
class Row:
    """One phase of one matter, for one notifier."""

    notifier: str
    name: str  # of the phase
    t: float
    matter: Matter
    told_t: float | None = None
    message: str | None = (
        None  # key of the message that it is in; it waits still while told_t is None
    )

    @property
    def key(self) -> Key:
        return self.notifier, self.matter.id, self.name

    @property
    def phase(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def dropped(self) -> bool:
        return (self.message or "").startswith(DROPPED)


class Ledger:
    """All rows. `disk` None: they end with the process. Nothing raises."""

    def __init__(self, disk: DiskLedger | None) -> None:
        self._disk = disk
        self._rows: dict[str, dict[str, dict[str, Row]]] = {}  # notifier → matter → phase's name
        self._dirty: dict[Key, Row | None] = {}  # what the disk has not taken; None: it goes
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        """Read what was kept."""
        rows: list[tuple[Key, disk.Row]] = []
        if self._disk is not None:
            with contextlib.suppress(StateError):  # the worker has said it
                rows = await self._disk.read()
        for (notifier, _, name), kept in rows:
            try:
                matter = matters.from_state(kept.said)
            except (ValueError, TypeError, KeyError) as error:
                _log.warning("notice_lost", notifier=notifier, phase=name, because=str(error))
                continue
            row = Row(notifier, name, kept.t, matter, kept.sent_t, kept.message)
            self._rows.setdefault(notifier, {}).setdefault(matter.id, {})[name] = row

    # --- asked

    def known(self, notifier: str, matter: str) -> list[Told]:
        """What this notifier was or is to be told of a matter, oldest first."""
        rows = self._rows.get(notifier, {}).get(matter, {}).values()
        return [Told(each.phase, each.matter.severity, each.told_t, each.dropped) for each in rows]

    def lasting(self, notifier: str) -> list[Matter]:
        """Matters that this notifier knows as open, as they were last told."""
        found = []
        for rows in self._rows.get(notifier, {}).values():
            last = next(reversed(rows.values()))
            if last.matter.about != RESTART and RESOLVED not in rows:
                found.append(last.matter)
        return found

    def waiting(self, notifier: str) -> list[Row]:
        """What waits to be told, oldest first."""
        rows = (r for of in self._rows.get(notifier, {}).values() for r in of.values())
        return sorted((each for each in rows if each.told_t is None), key=lambda each: each.t)

    def sent_t(self, notifier: str, now_t: float) -> list[float]:
        """Times of the messages of the last hour."""
        rows = (r for of in self._rows.get(notifier, {}).values() for r in of.values())
        recent = {
            each.message: each.told_t for each in rows
            if each.message is not None and not each.dropped and each.told_t is not None
            and each.told_t > now_t - HOUR_SECONDS
        }  # fmt: skip
        return sorted(recent.values())

    def dropped(self, notifier: str) -> list[Row]:
        """What could not be told, and of which no message has said so yet."""
        rows = (r for of in self._rows.get(notifier, {}).values() for r in of.values())
        return [each for each in rows if each.message == DROPPED]

    # --- changed

    def add(self, notifier: str, phase: str, matter: Matter, t: float) -> None:
        """This phase of this matter waits to be told."""
        rows = self._rows.setdefault(notifier, {}).setdefault(matter.id, {})
        before = sum(each.phase == phase for each in rows.values())
        name = phase if not before else f"{phase} {before + 1}"
        self._put([Row(notifier, name, t, matter)])

    def renew(self, notifier: str, matter: Matter) -> None:
        """What waits of this matter is told as it now stands; what is in a message that was begun is not."""
        rows = self._rows.get(notifier, {}).get(matter.id, {})
        for each in list(rows.values()):
            free = each.told_t is None and each.message is None
            if free and each.matter != matter:
                rows[each.name] = replace(each, matter=matter)  # the disk need not know each word

    def bind(self, rows: Iterable[Row], message: str | None) -> None:
        """These are in this message, which is begun now (None: it surely was not sent)."""
        self._put(replace(each, message=message) for each in rows)

    def told(self, rows: Iterable[Row], dropped: Iterable[Row], message: str, t: float) -> None:
        """This message was taken; it has said how many were dropped."""
        self._put(replace(each, message=message, told_t=t) for each in rows)
        self._put(replace(each, message=f"{DROPPED} {message}") for each in dropped)

    def drop(self, rows: Iterable[Row], t: float) -> None:
        """These are not told any more."""
        self._put(replace(each, message=DROPPED, told_t=t) for each in rows)

    def withdraw(self, notifier: str, matter: str) -> None:
        """What waits of this matter is not to be told; what is in a message that was begun is."""
        rows = self._rows.get(notifier, {}).get(matter, {})
        for each in [r for r in rows.values() if r.told_t is None and r.message is None]:
            del rows[each.name]
            self._dirty[each.key] = None
        if not rows:
            self._rows.get(notifier, {}).pop(matter, None)

    def _put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows.setdefault(row.notifier, {}).setdefault(row.matter.id, {})[row.name] = row
            self._dirty[row.key] = row

    def prune(self, open_ids: Iterable[str], notifiers: Collection[str], now_t: float) -> None:
        """Forget what is over and long ago; what waits for one of these notifiers, and what is open, never."""
        here = set(open_ids)
        over: list[tuple[float, str, str]] = []
        count = 0
        for notifier, of in self._rows.items():
            for name, rows in of.items():
                count += len(rows)
                times = [each.told_t for each in rows.values()]
                if notifier not in notifiers:  # it is configured no more
                    over.append((max(each.t for each in rows.values()), notifier, name))
                elif name not in here and None not in times:
                    over.append((max(t for t in times if t is not None), notifier, name))
        over.sort()
        for t, notifier, name in over:
            if count <= KEPT_MAX and now_t - t < KEPT_SECONDS:
                break
            rows = self._rows[notifier].pop(name)
            count -= len(rows)
            self._dirty.update((each.key, None) for each in rows.values())

    # --- the disk

    async def flush(self) -> None:
        """Have the disk take what it lacks; what it does not take stays owed."""
        async with self._writing:
            dirty, self._dirty = self._dirty, {}
            if self._disk is None or not dirty:
                return
            try:
                if not await self._disk.write(_written(dirty)):
                    dirty = {**{row.key: row for row in self._all()}, **dirty}
                    await self._disk.write(_written(dirty))
            except StateError:  # the worker has said it
                self._dirty = {**dirty, **self._dirty}

    def _all(self) -> Iterator[Row]:
        return (row for of in self._rows.values() for rows in of.values() for row in rows.values())


def _written(rows: Mapping[Key, Row | None]) -> dict[Key, disk.Row | None]:
    return {
        key: None if row is None
        else disk.Row(row.t, row.told_t, row.message, matters.to_state(row.matter))
        for key, row in rows.items()
    }  # fmt: skip


def waiting_of(rows: Iterable[Row]) -> list[Waiting]:
    """Return rows as `batches` takes them."""
    return [
        Waiting(phase=each.phase, name=each.name, t=each.t, matter=each.matter) for each in rows
    ]
