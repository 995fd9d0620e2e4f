"""Deliver the messages of one notifier."""

import asyncio
import hashlib
import random
import time
from collections.abc import Iterable, Sequence

import structlog

from vllm_watch.board.health import DROPPED, FAILED, NotifierHealth
from vllm_watch.notify import base, policy
from vllm_watch.notify.alert import Alert, Notification
from vllm_watch.notify.base import Notifier, Sent
from vllm_watch.notify.ledger import Ledger
from vllm_watch.notify.policy import Batch
from vllm_watch.notify.words import message
from vllm_watch.settings.notifications import NotificationsSettings, NotifierSettings
from vllm_watch.support.waiting import happens

_log = structlog.get_logger()

AGAIN_SECONDS_FIRST, AGAIN_SECONDS_MAX = 1.0, 300.0
"""The first and the longest pause before a retry. The pause doubles, with jitter so that watchers do not retry together."""

RETRY_AFTER_SECONDS_MAX = 3600.0
"""A Retry-After header delays a message by at most this long."""

GRACE_SECONDS = 5.0
"""A notifier is cancelled this many seconds after its own timeout."""

REFUSALS_MAX = 3
"""A message is dropped after the receiver has refused it this many times (400, 413, 415, 422)."""


class Delivery:
    """Sends the messages of one notifier."""

    def __init__(
        self, settings: NotifierSettings, notifier: Notifier, ledger: Ledger, links: NotificationsSettings, health: NotifierHealth
    ) -> None:  # fmt: skip
        self._settings = settings
        self._name = settings.name
        self._notifier = notifier
        self._ledger = ledger
        self._links = links
        self._health = health
        self._woken = asyncio.Event()
        self._tries = 0
        self._refusals = 0
        self._not_before_s = 0.0
        self._failing: str | None = None

    def offer(self, alerts: Iterable[Alert], now_t: float) -> None:
        new = False
        for alert in alerts:
            known = self._ledger.known(self._name, alert.id)
            phase = policy.due(self._settings, alert, known, now_t)
            if phase is not None:
                self._ledger.add(self._name, phase, alert, now_t)
                new = True
            elif known and (alert.silenced or alert.inhibited):
                self._ledger.withdraw(self._name, alert.id)
            elif known:
                self._ledger.renew(self._name, alert)
        if new:
            self._report("", 0)
            self._woken.set()

    @property
    def queue(self) -> int:
        return len(self._ledger.waiting(self._name))

    async def run(self) -> None:
        while True:
            try:
                wait_seconds = await self._step()
            except Exception:  # noqa: BLE001 - a bug must not end the loop
                _log.exception("notifier_broke", notifier=self._name)
                wait_seconds = AGAIN_SECONDS_MAX
            if await happens(self._woken, wait_seconds):
                self._woken.clear()

    async def _step(self) -> float | None:
        now_t = time.time()
        expired = policy.too_many(self._ledger.waiting(self._name), now_t)
        if expired:
            self._drop(expired)
        await self._ledger.flush()
        left_s = self._not_before_s - time.monotonic()
        if left_s > 0:
            self._woken.clear()
            return left_s
        waiting = self._ledger.waiting(self._name)
        for begun in waiting:
            if begun.message is not None:
                of_it = [each for each in waiting if each.message == begun.message]
                return await self._send(begun.message, of_it, policy.again(of_it))
        sent_t = self._ledger.sent_t(self._name, now_t)
        batch, again_t = policy.choose(self._settings, waiting, sent_t, now_t)
        if batch is None:
            return None if again_t is None else max(0.05, again_t - now_t)
        return await self._send(_key(self._name, batch), batch.notifications, batch)

    def _drop(self, notifications: Sequence[Notification]) -> None:
        self._ledger.drop(notifications, time.time())
        pages = sum(each.alert.severity == "page" for each in notifications)
        count = len(notifications)
        _log.error("notifications_dropped", notifier=self._name, count=count, pages=pages)
        self._report(DROPPED, count)

    async def _send(self, key: str, of_it: Sequence[Notification], batch: Batch) -> float:
        dropped = self._ledger.dropped(self._name)
        made = message(key, batch, self._links, dropped=len(dropped), t=time.time())
        self._ledger.bind(of_it, key)
        await self._ledger.flush()
        try:
            async with asyncio.timeout(self._settings.timeout_seconds + GRACE_SECONDS):
                sent = await self._notifier.send(made)
        except TimeoutError:
            sent = Sent(outcome=base.UNSURE, text="it exceeded its time limit")
        if sent.outcome == base.SENT:
            self._ledger.sent(of_it, dropped, key, time.time())
            await self._ledger.flush()
            self._succeeded()
            return 0.0
        # The receiver may have accepted a begun message, so its content must not change.
        begun = any(each.message == key for each in of_it)
        return await self._failed(sent, of_it, begun=begun)

    def _succeeded(self) -> None:
        self._tries = self._refusals = 0
        self._not_before_s = 0.0
        if self._failing is not None:
            _log.info("notifier_works_again", notifier=self._name)
        self._failing = None
        self._report(base.SENT, 1)

    async def _failed(self, sent: Sent, of_it: Sequence[Notification], *, begun: bool) -> float:
        self._tries += 1
        if sent.outcome == base.REFUSED:
            self._refusals += 1
        if self._refusals >= REFUSALS_MAX:
            self._refusals = 0
            self._drop(of_it)
        elif sent.outcome == base.UNSENT and not begun:
            self._ledger.bind(of_it, None)
        wait = min(AGAIN_SECONDS_FIRST * 2.0 ** min(self._tries - 1, 20), AGAIN_SECONDS_MAX)
        wait *= random.uniform(0.5, 1.0)  # noqa: S311
        wait = max(wait, min(sent.retry_after_seconds, RETRY_AFTER_SECONDS_MAX))
        self._not_before_s = time.monotonic() + wait
        if self._failing != sent.text:
            _log.error("notifier_fails", notifier=self._name, because=sent.text)
        self._failing = sent.text
        self._report(FAILED, 1)
        await self._ledger.flush()
        return wait

    def _report(self, outcome: str, count: int) -> None:
        self._health.count(outcome, count, self.queue, self._failing, time.time())


def _key(notifier: str, batch: Batch) -> str:
    names = sorted((each.alert.id, each.name) for each in batch.notifications)
    what = "\n".join([notifier, *(f"{alert_id} {name}" for alert_id, name in names)])
    return hashlib.sha256(what.encode()).hexdigest()[:32]
