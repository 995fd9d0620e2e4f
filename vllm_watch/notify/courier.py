"""One notifier's messages: offered, put together, sent, tried again. Nobody waits for it, nor it for others."""

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import structlog

from vllm_watch.notify import base, batches, policy
from vllm_watch.notify.base import Notifier, Sent
from vllm_watch.notify.batches import Batch
from vllm_watch.notify.ledger import Ledger, Row, waiting_of
from vllm_watch.notify.matter import Matter
from vllm_watch.notify.words import Links, message
from vllm_watch.settings.notifications import ToldSettings

_log = structlog.get_logger()

AGAIN_SECONDS_FIRST, AGAIN_SECONDS_MAX = 1.0, 300.0
"""From one try to the next: twice as long each time, between half of it and all of it, so that many watchers
do not come back at one moment. A service that was away for a night is asked every five minutes."""

ASKED_SECONDS_MAX = 3600.0
"""What a receiver may ask for with Retry-After."""

GRACE_SECONDS = 5.0
"""A notifier ends by itself within its timeout_seconds; one that does not is cut off so much later."""

REFUSALS_MAX = 3
"""So often a message that its receiver will not have as it is (400, 413, 415, 422) is tried: it must not hold
up what comes after it."""

SENT, FAILED, DROPPED = "sent", "failed", "dropped"


class News(NamedTuple):
    """What a notifier tells of itself."""

    outcome: str  # SENT | FAILED (a try) | DROPPED (matters) | "" (only the queue has changed)
    number: int
    queue: int
    because: str | None  # of a failure, without secrets
    t: float


Tell = Callable[[News], None]


class Courier:
    """One notifier at work."""

    def __init__(
        self, settings: ToldSettings, notifier: Notifier, ledger: Ledger, links: Links, tell: Tell
    ) -> None:
        self.settings = settings
        self._name = settings.name
        self._notifier = notifier
        self._ledger = ledger
        self._links = links
        self._tell = tell
        self._woken = asyncio.Event()
        self._tries = 0  # of the message that is tried now, in vain
        self._refusals = 0
        self._not_before_s = 0.0  # monotonic
        self._failing: str | None = None  # as it was logged

    def offer(self, open_now: Iterable[Matter], ended: Iterable[Matter], now_t: float) -> None:
        """This is how things stand: take in what this notifier has yet to be told of."""
        new = False
        for matter in (*open_now, *ended):
            known = self._ledger.known(self._name, matter.id)
            phase = policy.due(self.settings, matter, known, now_t)
            if phase is not None:
                self._ledger.add(self._name, phase, matter, now_t)
                new = True
            elif known and (matter.silenced or matter.held):
                self._ledger.withdraw(self._name, matter.id)
            elif known:
                self._ledger.renew(self._name, matter)
        if new:
            self._say("", 0, now_t)
            self._woken.set()

    @property
    def queue(self) -> int:
        """Matters that wait to be told."""
        return len(self._ledger.waiting(self._name))

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            try:
                wait_seconds = await self._step()
            except Exception:  # noqa: BLE001 - one notifier's bug must not end it, nor touch the others
                _log.exception("notifier_broke", notifier=self._name)
                wait_seconds = AGAIN_SECONDS_MAX
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._woken.wait()
            except TimeoutError:
                continue
            self._woken.clear()

    async def close(self) -> None:
        """Let go of what the notifier holds."""
        await self._notifier.close()

    async def _step(self) -> float | None:
        """Send one message, if it is time; return in how many seconds to look again (None: when woken)."""
        now_t = time.time()
        self._drop_what_is_too_much(now_t)
        await self._ledger.flush()
        left_s = self._not_before_s - time.monotonic()
        if left_s > 0:
            self._woken.clear()
            return left_s
        rows = self._ledger.waiting(self._name)
        begun = [each for each in rows if each.message is not None]
        if begun:
            key = begun[0].message or ""
            of_it = [each for each in begun if each.message == key]
            return await self._send(key, of_it, batches.again(waiting_of(of_it)))
        sent_t = self._ledger.sent_t(self._name, now_t)
        batch, again_t = batches.choose(self.settings, waiting_of(rows), sent_t, now_t)
        if batch is None:
            return None if again_t is None else max(0.05, again_t - now_t)
        wanted = set(batch.rows)
        of_it = [each for each in rows if (each.matter.id, each.name) in wanted]
        return await self._send(_key(self._name, batch), of_it, batch)

    def _drop_what_is_too_much(self, now_t: float) -> None:
        rows = self._ledger.waiting(self._name)
        gone = {each.row for each in batches.too_many(waiting_of(rows), now_t)}
        if gone:
            self._drop([each for each in rows if (each.matter.id, each.name) in gone], now_t)

    def _drop(self, rows: Sequence[Row], now_t: float) -> None:
        self._ledger.drop(rows, now_t)
        pages = sum(each.matter.severity == "page" for each in rows)
        _log.error("notices_dropped", notifier=self._name, count=len(rows), pages=pages)
        self._say(DROPPED, len(rows), now_t)

    async def _send(self, key: str, rows: Sequence[Row], batch: Batch) -> float:
        now_t = time.time()
        dropped = self._ledger.dropped(self._name)
        made = message(key, batch, self._links, dropped=len(dropped), t=now_t)
        self._ledger.bind(rows, key)
        await self._ledger.flush()
        try:
            async with asyncio.timeout(self.settings.timeout_seconds + GRACE_SECONDS):
                sent = await self._notifier.send(made)
        except TimeoutError:
            sent = Sent(outcome=base.UNSURE, text="it did not end in its time")
        if sent.outcome == base.SENT:
            self._ledger.told(rows, dropped, key, time.time())
            await self._ledger.flush()
            self._succeeded()  # what is counted as sent is on the disk
            return 0.0
        # Begun before: it may have been taken then, and stays as it was.
        begun = any(each.message == key for each in rows)
        return await self._failed(sent, rows, begun=begun)

    def _succeeded(self) -> None:
        self._tries = self._refusals = 0
        self._not_before_s = 0.0
        if self._failing is not None:
            _log.info("notifier_works_again", notifier=self._name)
        self._failing = None
        self._say(SENT, 1, time.time())

    async def _failed(self, sent: Sent, rows: Sequence[Row], *, begun: bool) -> float:
        now_t = time.time()
        self._tries += 1
        if sent.outcome == base.REFUSED:
            self._refusals += 1
        if self._refusals >= REFUSALS_MAX:
            self._refusals = 0
            self._drop(rows, now_t)
        elif sent.outcome == base.UNSENT and not begun:
            self._ledger.bind(rows, None)  # what comes meanwhile may join it
        wait = min(AGAIN_SECONDS_FIRST * 2.0 ** min(self._tries - 1, 20), AGAIN_SECONDS_MAX)
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        wait = max(wait, min(sent.again_seconds, ASKED_SECONDS_MAX))
        self._not_before_s = time.monotonic() + wait
        if self._failing != sent.text:
            _log.error("notifier_fails", notifier=self._name, because=sent.text)
        self._failing = sent.text
        self._say(FAILED, 1, now_t)
        await self._ledger.flush()
        return wait

    def _say(self, outcome: str, count: int, t: float) -> None:
        self._tell(News(outcome, count, self.queue, self._failing, t))


def _key(notifier: str, batch: Batch) -> str:
    """The same for the same matters: who takes it twice can tell."""
    what = "\n".join([notifier, *(f"{name} {phase}" for name, phase in sorted(batch.rows))])
    return hashlib.sha256(what.encode()).hexdigest()[:32]
