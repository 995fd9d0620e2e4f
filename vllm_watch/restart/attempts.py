"""Run and resume restart attempts."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import verify
from vllm_watch.restart.decider import Decider, PendingRequest
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.restart.facts import RestartRequest
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.restart import Restart
from vllm_watch.restart.targets import ManagedTarget
from vllm_watch.restart.verify import Before
from vllm_watch.state.attempt import Attempt
from vllm_watch.support.waiting import happens

_log = structlog.get_logger()

RENEW_SHARE = 1 / 3
"""A lock is renewed after this share of its TTL, so one renewal may fail."""

UNCERTAIN_SECONDS = 86400.0
"""At its start, the watcher verifies an uncertain attempt again, unless the attempt is older than this."""

UNWATCHED_SECONDS = 3600.0
"""A resumed attempt waits for its target for at most this many seconds. Discovery takes minutes, but an evicted pod never comes back."""


class Attempts:
    """All attempts of this watcher, one per target at a time."""

    def __init__(
        self, decider: Decider, evidence: EvidenceStore, on_end: Callable[[Attempt], None]
    ) -> None:
        self.ledger = decider.ledger
        self.outcomes: Counter[tuple[str, str, str]] = Counter()  # target, trigger, outcome
        self._decider = decider
        self._targets = decider.targets
        self._evidence = evidence
        self._on_end = on_end
        self._ours: set[str] = set()
        self._unwatched: list[tuple[Attempt, float]] = []
        self._running: dict[Restart, asyncio.Task[None]] = {}
        self._stopping: str | None = None
        self._not_resumed = ""

    async def let_hooks_end(self) -> None:
        self._stopping = "vllm-watch is stopping"
        for restart in self._running:
            restart.stopping = self._stopping
        begun = [each for each in self._running if not each.idle.is_set()]
        for each in begun:
            _log.info(
                "hook_awaited", target=each.attempt.target, attempt=each.attempt.id,
                seconds_max=each.hook_seconds, because="vllm-watch stops once it has ended",
            )  # fmt: skip
        await asyncio.gather(*(happens(each.idle, each.hook_seconds) for each in begun))

    @property
    def hook_seconds(self) -> float:
        begun = (each.hook_seconds for each in self._running if not each.idle.is_set())
        return max(begun, default=0.0)

    async def stop(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def begin(
        self, request: RestartRequest, managed: ManagedTarget, attempt_id: str, lock: Lock | None,
        befores: Mapping[str, Before], pending: PendingRequest | None = None,
    ) -> Attempt:  # fmt: skip
        """Write the intent, then run the attempt in the background. Raises JournalError."""
        hook, address = managed.settings.hook, managed.target.address
        attempt = request.attempt(attempt_id, "intent", hook, time.time(), address, befores)
        if any(name in self.ledger.busy for name in attempt.names):
            raise RuntimeError(f"{attempt.target} has an attempt that has not ended")
        restart = Restart(attempt, managed, lock, self._decider, self._evidence, request, pending)
        self._ours.add(attempt_id)
        self.ledger.show(attempt)
        try:
            await self.ledger.write(attempt)
        except BaseException as error:
            # The intent may be on disk although the write failed.
            text = error.cause if isinstance(error, JournalError) else "it was interrupted"
            ended = replace(attempt, state="cancelled", ended_t=time.time(), text=text)
            self.ledger.add(ended)
            self.ledger.show(ended)
            raise
        restart.show("the intent is in the journal")
        self._start(restart)
        return attempt

    async def resume(self) -> None:
        """Resume attempts of an earlier run without calling hooks. `ledger.resumed` stays False while the journal cannot be read."""
        try:
            stored = await self.ledger.read()
        except JournalError as error:
            if error.cause != self._not_resumed:
                self._not_resumed = error.cause
                _log.error("journal_not_resumed", cause=error.cause, remedy=error.remedy)
            return
        stored = await self.ledger.without_future(stored, time.time())
        seen = {name for attempt in stored for name in attempt.names if self.ledger.last(name)}
        for attempt in reversed(stored):
            if attempt.id in self._ours or attempt.state == "dry_run":
                continue
            last = seen.isdisjoint(attempt.names)
            seen.update(attempt.names)
            if attempt.open or (last and _to_verify_again(attempt)):
                self._ours.add(attempt.id)
                await self._resume_one(attempt, last=last)
            elif last:
                self.ledger.show(attempt)
        await self.retry()
        self.ledger.resumed = True

    async def retry(self) -> None:
        await self.ledger.flush()
        waiting, self._unwatched = self._unwatched, []
        for attempt, since_s in waiting:
            managed = self._targets.managed
            if all(name in managed for name in attempt.names):
                own = managed[attempt.target]
                lock = self._decider.backends.lock(own.settings.lock)
                self._start(Restart(attempt, own, lock, self._decider, self._evidence))
            elif time.monotonic() - since_s < UNWATCHED_SECONDS:
                self._unwatched.append((attempt, since_s))
            else:
                self._count(
                    await self._put(attempt, "uncertain", "its target is no longer watched")
                )

    async def _resume_one(self, attempt: Attempt, *, last: bool) -> None:
        if last:
            self.ledger.show(attempt)
        if attempt.state == "intent":
            text = "the watcher ended before the hook was called"
            self._count(await self._put(attempt, "cancelled", text))
            return
        if attempt.state == "calling":
            text = "the watcher ended while the hook was called: it may have acted"
            if attempt.gang:
                text = f"the watcher ended while the hooks of {', '.join(attempt.names)} were called: each may have acted"
            attempt = await self._put(attempt, "uncertain", text)
        if last and verify.befores(attempt) is not None:
            self._unwatched.append((attempt, time.monotonic()))
            return
        if not last:
            text = "another attempt followed before it was verified"
            attempt = await self._put(attempt, "uncertain", text)
        elif attempt.state != "uncertain":
            text = "the state before the restart is unknown"
            attempt = await self._put(attempt, "uncertain", text)
        self._count(attempt)

    async def _put(self, attempt: Attempt, state: str, text: str) -> Attempt:
        attempt = replace(attempt, state=state, ended_t=time.time(), text=text)
        await self.ledger.put(attempt)
        if state == "uncertain":
            _log.error("restart_uncertain", target=attempt.target, attempt=attempt.id, because=text)
        return attempt

    def _start(self, restart: Restart) -> None:
        attempt = restart.attempt
        restart.stopping = self._stopping
        self.ledger.busy.update(dict.fromkeys(attempt.names, attempt.id))
        task = asyncio.create_task(self._run(restart), name=f"restart {attempt.target}")
        self._running[restart] = task

    async def _run(self, restart: Restart) -> None:
        lock, names = restart.lock, restart.attempt.names
        renewing = asyncio.create_task(_renew(lock))
        for name in names:
            self._targets.restarting(name)
            self._targets.mark_changed(name)
        try:
            self._ended(await restart.run())
        except Exception as error:  # noqa: BLE001 - otherwise the attempt would stay open forever
            _log.exception(
                "restart_broke", target=restart.attempt.target, attempt=restart.attempt.id
            )
            self._ended(await restart.give_up(f"vllm-watch itself failed: {type(error).__name__}"))
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            attempt = restart.attempt
            self.ledger.show(attempt)
            self._running.pop(restart, None)
            for name in names:
                self.ledger.busy.pop(name, None)
                self._targets.restarting(name, attempt)
            # Keep the lock if the attempt was interrupted after the call, because the server may be loading.
            if lock is not None and not (attempt.open and attempt.spent):
                rest_seconds = restart.settings.lock.release_delay_seconds
                await lock.release(rest_seconds, used=attempt.spent, ended=attempt)
            for name in names:
                self._targets.mark_changed(name)

    def _ended(self, attempt: Attempt) -> None:
        self._count(attempt)
        self._on_end(attempt)
        log = _log.info if attempt.state in ("helped", "cancelled") else _log.error
        log(
            "restart_ended", target=attempt.target, attempt=attempt.id, outcome=attempt.state,
            because=attempt.text,
        )  # fmt: skip

    def _count(self, attempt: Attempt) -> None:
        self.outcomes[attempt.target, attempt.trigger, attempt.state] += 1


def _to_verify_again(attempt: Attempt) -> bool:
    recent = time.time() - attempt.acted_t < UNCERTAIN_SECONDS
    return attempt.state == "uncertain" and recent and attempt.before is not None


async def _renew(lock: Lock | None) -> None:
    """A failure is only logged, because `still_ours` is checked before each hook call."""
    was: bool | None = True
    while lock is not None:
        await asyncio.sleep(lock.ttl_seconds * RENEW_SHARE)
        held = await lock.renew()
        if held.held is not was and held.held is not True:
            _log.error("lock_not_renewed", because=held.text)
        was = held.held
