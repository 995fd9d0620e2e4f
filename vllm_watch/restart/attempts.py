"""Run and resume restart attempts."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import verify
from vllm_watch.restart.backends import Backends
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.restart.hooks.base import Hook, HookCall
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.restart import Changed, PendingWrites, Recheck, Restart, unchanged
from vllm_watch.restart.targets import Targets
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

_log = structlog.get_logger()

RENEW_SHARE = 1 / 3
"""A lock is renewed after this share of its TTL, so one renewal may fail."""

UNCERTAIN_SECONDS = 86400.0
"""At its start, the watcher verifies an uncertain attempt again, unless the attempt is older than this."""

AHEAD_SECONDS = 60.0
"""If an attempt's time is more than this many seconds in the future, the clock was wrong when the attempt was written."""

UNWATCHED_SECONDS = 3600.0
"""A resumed attempt waits for its target for at most this many seconds. Discovery takes minutes, but an evicted pod never comes back."""


class Attempts:
    """All attempts of this watcher, one per target at a time."""

    def __init__(
        self, targets: Targets, journal: Journal, backends: Backends, evidence: EvidenceStore,
        on_end: Callable[[Attempt], None],
    ) -> None:  # fmt: skip
        self.resumed = False
        self.outcomes: Counter[tuple[str, str, str]] = Counter()  # target, trigger, outcome
        self._targets = targets
        self._journal = journal
        self._backends = backends
        self._evidence = evidence
        self._on_end = on_end
        self._pending = PendingWrites(journal)
        self._ours: set[str] = set()
        self._unwatched: list[tuple[Attempt, float]] = []
        self._running: dict[str, tuple[Restart, asyncio.Task[None]]] = {}
        self._last: dict[str, Attempt] = {}
        self._stopping = False
        self._not_resumed = ""

    def last(self, target: str) -> tuple[Attempt, str] | None:
        if target in self._running:
            restart, _ = self._running[target]
            return restart.attempt, restart.stage
        last = self._last.get(target)
        return None if last is None else (last, last.text)

    def busy(self, target: str) -> str | None:
        return self._running[target][0].attempt.id if target in self._running else None

    def newest(self, stored: Iterable[Attempt]) -> tuple[Attempt, ...]:
        return self._pending.newest(stored)

    async def without_future(
        self, attempts: Iterable[Attempt], now_t: float
    ) -> tuple[Attempt, ...]:
        """Replace future times with `now_t`. A future time would block restarts until it is reached."""
        known = []
        for attempt in attempts:
            ahead_s = attempt.acted_t - now_t
            if ahead_s > AHEAD_SECONDS and not attempt.open and attempt.state != "dry_run":
                text = f"{attempt.text} (the clock was {ahead_s:.0f} s ahead)".strip()
                attempt = replace(  # noqa: PLW2901
                    attempt, began_t=now_t, ended_t=now_t, text=text,
                    called_t=None if attempt.called_t is None else now_t,
                )  # fmt: skip
                await self._put(attempt)
            known.append(attempt)
        return tuple(known)

    async def let_hooks_end(self) -> None:
        self._stopping = True
        running = {restart for restart, _ in self._running.values()}
        for restart in running:
            restart.stopping = True
        begun = [each for each in running if not each.idle.is_set()]
        for each in begun:
            _log.info(
                "hook_awaited", target=each.attempt.target, attempt=each.attempt.id,
                seconds_max=each.hook_seconds, because="vllm-watch stops once it has ended",
            )  # fmt: skip
        await asyncio.gather(*(each.wait_for_hooks() for each in begun))

    @property
    def hook_seconds(self) -> float:
        begun = (each.hook_seconds for each, _ in self._running.values() if not each.idle.is_set())
        return max(begun, default=0.0)

    async def stop(self) -> None:
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def begin(
        self, attempt: Attempt, calls: Sequence[tuple[HookCall, Hook]], settings: RestartSettings,
        lock: Lock | None, recheck: Recheck, changed: Changed = unchanged,
    ) -> None:  # fmt: skip
        """Write the intent, then run the attempt in the background. Raises JournalError.

        `calls` begins with the call for the attempt's own target.
        """
        if any(name in self._running for name in attempt.names):
            raise RuntimeError(f"{attempt.target} has an attempt that has not ended")
        restart = self._restart(attempt, settings)
        self._ours.add(attempt.id)
        self._set_last(attempt)
        try:
            await restart.intend()
        except BaseException as error:
            # The intent may be on disk although the write failed.
            text = error.cause if isinstance(error, JournalError) else "it was interrupted"
            ended = replace(attempt, state="cancelled", ended_t=time.time(), text=text)
            self._pending.add(ended)
            self._set_last(ended)
            raise
        self._start(restart, partial(restart.run, calls, lock, recheck, changed), settings, lock)

    async def resume(self) -> None:
        """Resume attempts of an earlier run without calling hooks. `resumed` stays False while the journal cannot be read."""
        try:
            stored = await self._journal.attempts()
        except JournalError as error:
            if error.cause != self._not_resumed:
                self._not_resumed = error.cause
                _log.error("journal_not_resumed", cause=error.cause, remedy=error.remedy)
            return
        stored = await self.without_future(stored, time.time())
        seen = set(self._last)
        for attempt in reversed(stored):
            if attempt.id in self._ours or attempt.state == "dry_run":
                continue
            last = seen.isdisjoint(attempt.names)
            seen.update(attempt.names)
            if attempt.open or (last and _to_verify_again(attempt)):
                self._ours.add(attempt.id)
                await self._resume_one(attempt, last=last)
            elif last:
                self._set_last(attempt)
        await self.retry()
        self.resumed = True

    async def retry(self) -> None:
        await self._pending.flush()
        waiting, self._unwatched = self._unwatched, []
        for attempt, since_s in waiting:
            managed = self._targets.managed
            if all(name in managed for name in attempt.names):
                self._verify(attempt, managed[attempt.target].settings)
            elif time.monotonic() - since_s < UNWATCHED_SECONDS:
                self._unwatched.append((attempt, since_s))
            else:
                self._count(await self._set_uncertain(attempt, "its target is no longer watched"))

    async def _resume_one(self, attempt: Attempt, *, last: bool) -> None:
        if last:
            self._set_last(attempt)
        if attempt.state == "intent":
            text = "the watcher ended before the hook was called"
            attempt = replace(attempt, state="cancelled", ended_t=time.time(), text=text)
            await self._put(attempt)
            self._count(attempt)
            return
        if attempt.state == "calling":
            text = "the watcher ended while the hook was called: it may have acted"
            if attempt.gang:
                text = f"the watcher ended while the hooks of {', '.join(attempt.names)} were called: each may have acted"
            attempt = await self._set_uncertain(attempt, text)
        if last and verify.befores(attempt) is not None:
            self._unwatched.append((attempt, time.monotonic()))
            return
        if not last:
            text = "another attempt followed before it was verified"
            attempt = await self._set_uncertain(attempt, text)
        elif attempt.state != "uncertain":
            attempt = await self._set_uncertain(attempt, "the state before the restart is unknown")
        self._count(attempt)

    async def _set_uncertain(self, attempt: Attempt, text: str) -> Attempt:
        uncertain = replace(attempt, state="uncertain", ended_t=time.time(), text=text)
        await self._put(uncertain)
        _log.error("restart_uncertain", target=attempt.target, attempt=attempt.id, because=text)
        return uncertain

    async def _put(self, attempt: Attempt) -> None:
        for name in attempt.names:
            if self._last.get(name, attempt).id == attempt.id:
                self._last[name] = attempt
        try:
            await self._pending.write(attempt)
        except JournalError as error:
            _log.error("journal_failed", attempt=attempt.id, state=attempt.state, cause=error.cause)

    def _set_last(self, attempt: Attempt) -> None:
        self._last.update(dict.fromkeys(attempt.names, attempt))

    def _verify(self, attempt: Attempt, settings: RestartSettings) -> None:
        befores, lock = verify.befores(attempt), self._backends.lock(settings.lock)
        assert befores is not None  # noqa: S101 - checked in _resume_one
        restart = self._restart(attempt, settings)
        since_s = max(0.0, time.time() - attempt.acted_t)

        async def work() -> Attempt:
            # The server may still be loading, so its group must stay locked.
            holder = self._backends.holder
            held = None if lock is None else await lock.acquire(holder, attempt.id, attempt)
            if held is not None and held.held is not True:
                _log.error("lock_not_held", attempt=attempt.id, because=held.text)
            return await restart.resume(befores, since_s)

        self._start(restart, work, settings, lock)

    def _restart(self, attempt: Attempt, settings: RestartSettings) -> Restart:
        restart = Restart(attempt, settings, self._targets, self._pending, self._evidence)
        restart.stopping = self._stopping
        return restart

    def _start(
        self, restart: Restart, work: Callable[[], Awaitable[Attempt]], settings: RestartSettings,
        lock: Lock | None,
    ) -> None:  # fmt: skip
        name = restart.attempt.target
        task = asyncio.create_task(self._run(restart, work, settings, lock), name=f"restart {name}")
        self._running.update(dict.fromkeys(restart.attempt.names, (restart, task)))

    async def _run(
        self, restart: Restart, work: Callable[[], Awaitable[Attempt]], settings: RestartSettings,
        lock: Lock | None,
    ) -> None:  # fmt: skip
        name = restart.attempt.target
        renewing = asyncio.create_task(_renew(lock))
        for each in restart.attempt.names:
            self._targets.restarting(each)
            self._targets.mark_changed(each)
        try:
            self._ended(await work())
        except Exception as error:  # noqa: BLE001 - otherwise the attempt would stay open forever
            _log.exception("restart_broke", target=name, attempt=restart.attempt.id)
            self._ended(await restart.give_up(f"vllm-watch itself failed: {type(error).__name__}"))
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            attempt = restart.attempt
            self._set_last(attempt)
            for each in attempt.names:
                self._running.pop(each, None)
                self._targets.restarting(each, attempt)
            # Keep the lock if the attempt was interrupted after the call, because the server may be loading.
            if lock is not None and not (attempt.open and attempt.spent):
                rest_seconds = settings.lock.release_delay_seconds
                await lock.release(rest_seconds, used=attempt.spent, ended=attempt)
            for each in attempt.names:
                self._targets.mark_changed(each)

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
