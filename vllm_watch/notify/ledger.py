"""Keep sent and queued notifications.

Memory is authoritative, so a full disk loses no message.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import structlog

from vllm_watch.errors import StateError
from vllm_watch.notify.alert import (
    DROPPED,
    RESOLVED,
    RESTART,
    Alert,
    Key,
    Notification,
    from_state,
    to_state,
)
from vllm_watch.notify.policy import HOUR_SECONDS
from vllm_watch.signals import stored
from vllm_watch.state import ledger as disk

_log = structlog.get_logger()

KEPT_SECONDS = 86400.0
"""Notifications are kept this long after the last message about their alert."""

KEPT_MAX = 5000
"""At most this many notifications are kept for all notifiers together, 2 KB each."""


class Ledger:
    """Keeps notifications, only in memory if `table` is None. Never raises."""

    def __init__(self, table: disk.LedgerTable | None) -> None:
        self._table = table
        # By notifier and alert id, then by name of the phase.
        self._of: dict[tuple[str, str], dict[str, Notification]] = {}
        self._dirty: dict[Key, Notification | None] = {}  # to be written, or deleted if None
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        rows: list[tuple[Key, disk.Row]] = []
        if self._table is not None:
            with contextlib.suppress(StateError):
                rows = await self._table.read()
        for (notifier, _, name), row in rows:
            try:
                alert = from_state(row.said)
            except stored.DAMAGE as error:
                _log.warning(
                    "notification_lost", notifier=notifier, phase=name, because=repr(error)
                )
                continue
            self._hold(Notification(
                notifier=notifier, name=name, t=row.t, alert=alert, sent_t=row.sent_t, message=row.message,
            ))  # fmt: skip

    def known(self, notifier: str, alert_id: str) -> list[Notification]:
        return list(self._of.get((notifier, alert_id), {}).values())

    def lasting(self, notifier: str) -> list[Alert]:
        """Return each open alert in its newest recorded form."""
        return [
            next(reversed(phases.values())).alert
            for (name, _), phases in self._of.items()
            if name == notifier
            and RESOLVED not in phases
            and next(iter(phases.values())).alert.about != RESTART
        ]

    def waiting(self, notifier: str) -> list[Notification]:
        waiting = (each for each in self._all(notifier) if each.sent_t is None)
        return sorted(waiting, key=lambda each: each.t)

    def sent_t(self, notifier: str, now_t: float) -> list[float]:
        recent = {
            each.message: each.sent_t
            for each in self._all(notifier)
            if each.sent_t is not None and not each.dropped and each.sent_t > now_t - HOUR_SECONDS
        }
        return sorted(recent.values())

    def dropped(self, notifier: str) -> list[Notification]:
        return [each for each in self._all(notifier) if each.message == DROPPED]

    def _all(self, notifier: str | None = None) -> Iterator[Notification]:
        for (name, _), phases in self._of.items():
            if notifier in (None, name):
                yield from phases.values()

    def add(self, notifier: str, phase: str, alert: Alert, t: float) -> None:
        before = sum(each.phase == phase for each in self.known(notifier, alert.id))
        name = phase if not before else f"{phase} {before + 1}"
        self._put([Notification(notifier=notifier, name=name, t=t, alert=alert)])

    def renew(self, notifier: str, alert: Alert) -> None:
        """Update this alert's queued notifications, except in messages already begun."""
        for each in self._free(notifier, alert.id):
            if each.alert != alert:
                self._hold(replace(each, alert=alert))

    def bind(self, notifications: Iterable[Notification], message: str | None) -> None:
        """Record the message that contains these notifications, or None if the message was certainly not sent."""
        self._put(replace(each, message=message) for each in notifications)

    def sent(
        self, notifications: Iterable[Notification], dropped: Iterable[Notification], message: str, t: float
    ) -> None:  # fmt: skip
        """Record that the message was sent. It reported the `dropped` notifications only by their number."""
        self._put(replace(each, message=message, sent_t=t) for each in notifications)
        self._put(replace(each, message=f"{DROPPED} {message}") for each in dropped)

    def drop(self, notifications: Iterable[Notification], t: float) -> None:
        self._put(replace(each, message=DROPPED, sent_t=t) for each in notifications)

    def withdraw(self, notifier: str, alert_id: str) -> None:
        """Delete this alert's queued notifications, except in messages already begun."""
        for each in self._free(notifier, alert_id):
            del self._of[notifier, alert_id][each.name]
            self._dirty[each.key] = None
        if not self.known(notifier, alert_id):
            self._of.pop((notifier, alert_id), None)

    def _free(self, notifier: str, alert_id: str) -> list[Notification]:
        known = self.known(notifier, alert_id)
        return [each for each in known if each.sent_t is None and each.message is None]

    def _put(self, notifications: Iterable[Notification]) -> None:
        for each in notifications:
            self._hold(each)
            self._dirty[each.key] = each

    def _hold(self, one: Notification) -> None:
        self._of.setdefault((one.notifier, one.alert.id), {})[one.name] = one

    def prune(self, open_ids: Collection[str], notifiers: Collection[str], now_t: float) -> None:
        over: list[tuple[float, str, str]] = []
        count = 0
        for (notifier, alert_id), phases in self._of.items():
            count += len(phases)
            times = [each.sent_t for each in phases.values()]
            if notifier not in notifiers:
                over.append((max(each.t for each in phases.values()), notifier, alert_id))
            elif alert_id not in open_ids and None not in times:
                over.append((max(t for t in times if t is not None), notifier, alert_id))
        for t, notifier, alert_id in sorted(over):
            if count <= KEPT_MAX and now_t - t < KEPT_SECONDS:
                break
            phases = self._of.pop((notifier, alert_id))
            count -= len(phases)
            self._dirty.update((each.key, None) for each in phases.values())

    async def flush(self) -> None:
        async with self._writing:
            dirty, self._dirty = self._dirty, {}
            if self._table is None or not dirty:
                return
            try:
                if not await self._table.write(_rows(dirty)):
                    dirty = {**{each.key: each for each in self._all()}, **dirty}
                    await self._table.write(_rows(dirty))
            except StateError:
                self._dirty = {**dirty, **self._dirty}


def _rows(changed: Mapping[Key, Notification | None]) -> dict[Key, disk.Row | None]:
    return {
        key: None if one is None else disk.Row(one.t, one.sent_t, one.message, to_state(one.alert))
        for key, one in changed.items()
    }
