"""The attempts that are under way: begun once the guard has agreed, and taken up after our own restart."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import drain, verify
from vllm_watch.restart.hooks.base import REFUSED, Finding, Hook, HookCall, HookResult
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.means import Means
from vllm_watch.restart.owed import Owed
from vllm_watch.restart.request import RestartRequest
from vllm_watch.restart.restart import Restart, Steps
from vllm_watch.restart.world import World
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

_log = structlog.get_logger()

RENEW_SHARE = 1 / 3
"""Of its TTL a lock is renewed: two renewals may fail before it is lost."""

UNCERTAIN_SECONDS = 86400.0
"""How long after its call an uncertain attempt is verified again by each new start of the watcher."""

UNWATCHED_SECONDS = 3600.0
"""How long an attempt that was taken up waits for its target to be found: discovery takes seconds to
minutes, and a pod that was evicted never comes back."""

Objection = Callable[[], Awaitable[str | None]]  # the guard, asked once more
Work = Callable[[], Awaitable[Attempt]]  # carries an attempt to its end


class Attempts:
    """One watcher's attempts, one at a time for each target."""

    def __init__(
        self, world: World, journal: Journal, means: Means, over: Callable[[Attempt], None]
    ) -> None:
        """`over` is told of each attempt how it ended."""
        self._world = world
        self._journal = journal
        self._means = means
        self._over = over
        self._owed = Owed(journal)
        self._ours: set[str] = set()  # ids of what this run has begun or taken up
        self._left: list[
            tuple[Attempt, float]
        ] = []  # taken up, and when; the target is not seen yet
        self._running: dict[str, asyncio.Task[None]] = {}  # by target
        self._known: dict[str, Attempt] = {}  # the last of each target, as it stands
        self._stages: dict[str, str] = {}  # what it does now, in words
        self.outcomes: Counter[tuple[str, str, str]] = Counter()  # target, trigger, outcome

    def last(self, target: str) -> tuple[Attempt, str] | None:
        """The target's last attempt, and what it does now or how it ended, in words."""
        known = self._known.get(target)
        return None if known is None else (known, self._stages.get(target, known.text))

    def busy(self, target: str) -> str | None:
        """The id of the attempt that is carried out or verified for the target now."""
        return self._known[target].id if target in self._running else None

    def newest(self, kept: Iterable[Attempt]) -> tuple[Attempt, ...]:
        """Return these attempts from the journal, each as it stands: the disk may not have taken it."""
        return self._owed.newest(kept)

    async def stop(self) -> None:
        """Stop waiting for them: what they did and have yet to show is in the journal."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def make(self, request: RestartRequest, attempt_id: str, state: str) -> Attempt:
        """Return a new attempt; nothing is begun."""
        return Attempt(
            id=attempt_id, target=request.target, group=request.group, trigger=request.trigger,
            hook=self._world.settings(request.target).hook, reason=request.reason,
            actor=request.person or request.actor, state=state, began_t=time.time(),
            incident_id=request.incident_id,
        )  # fmt: skip

    def call(self, request: RestartRequest, target: Target, attempt_id: str) -> HookCall:
        """Return what a hook is told."""
        signals = self._world.signals(target.name)
        return HookCall(
            attempt_id=attempt_id, target=target.name, url=target.url, group=target.group,
            trigger=request.trigger, reason=request.reason, engine=request.engine,
            incident_id=request.incident_id, kind=request.kind, cause=request.cause,
            namespace=target.namespace or None, pod=target.pod or None, node=target.node or None,
            process_start_time=None if signals is None else signals.process_start_time,
        )  # fmt: skip

    async def begin(
        self, request: RestartRequest, target: Target, settings: RestartSettings, attempt_id: str,
        hook: Hook, lock: Lock | None, objection: Objection,
    ) -> Attempt:  # fmt: skip
        """Write down what the guard has agreed to; from then on it goes on by itself.

        Raises JournalError: it was not begun.
        """
        if target.name in self._running:
            raise RuntimeError(f"{target.name} has an attempt that is not over")
        attempt = self.make(request, attempt_id, "intent")
        call = self.call(request, target, attempt_id)
        restart = self._restart(attempt, call, settings, hook, objection, lock)
        self._ours.add(attempt_id)
        self._known[target.name] = attempt
        try:
            await restart.intend()
        except BaseException as error:
            # It may be on the disk for all that: a flush that fails is no proof of the contrary.
            text = error.cause if isinstance(error, JournalError) else "it was interrupted"
            ended = replace(attempt, state="cancelled", ended_t=time.time(), text=text)
            self._owed.owe(ended)
            self._known[target.name] = ended
            raise
        self._start(restart, restart.run, settings, lock)
        return attempt

    async def resume(self) -> None:
        """Take up what an earlier run of the watcher left: nothing is called again. Raises JournalError."""
        seen = set(self._known)
        for attempt in reversed(await self._journal.attempts()):
            if attempt.id in self._ours or attempt.state == "dry_run":
                continue
            last = attempt.target not in seen
            seen.add(attempt.target)
            if attempt.open or (last and _not_verified(attempt)):
                self._ours.add(attempt.id)
                await self._take_up(attempt, last=last)
            elif last:
                self._known[attempt.target] = attempt
        await self.go_on()

    async def go_on(self) -> None:
        """Write what the disk would not take, and verify what was taken up and whose target is seen."""
        await self._owed.settle()
        waiting, self._left = self._left, []
        for attempt, since_s in waiting:
            if self._world.target(attempt.target) is not None:
                self._go_on(attempt)
            elif time.monotonic() - since_s < UNWATCHED_SECONDS:
                self._left.append((attempt, since_s))
            else:
                self._count(await self._leave(attempt, "its target is not watched any more"))

    async def _take_up(self, attempt: Attempt, *, last: bool) -> None:
        if last:
            self._known[attempt.target] = attempt
        if attempt.state == "intent":
            text = "the watcher ended before the hook was called"
            attempt = replace(attempt, state="cancelled", ended_t=time.time(), text=text)
            await self._put(attempt)
            self._count(attempt)
            return
        if attempt.state == "calling":
            text = "the watcher ended while the hook was called: it may have acted"
            attempt = await self._leave(attempt, text)
        if not last:
            self._count(
                await self._leave(attempt, "another attempt followed before it was verified")
            )
        elif _before(attempt) is not None:
            self._left.append((attempt, time.monotonic()))
        elif attempt.state != "uncertain":
            self._count(await self._leave(attempt, "what was so before is not known"))
        else:
            self._count(attempt)

    async def _leave(self, attempt: Attempt, text: str) -> Attempt:
        """Nobody knows, for now, what it did."""
        uncertain = replace(attempt, state="uncertain", ended_t=time.time(), text=text)
        await self._put(uncertain)
        _log.error("restart_uncertain", target=attempt.target, attempt=attempt.id, because=text)
        return uncertain

    async def _put(self, attempt: Attempt) -> None:
        if self._known.get(attempt.target, attempt).id == attempt.id:
            self._known[attempt.target] = attempt
        try:
            await self._owed.write(attempt)
        except JournalError as error:
            _log.error("journal_failed", attempt=attempt.id, state=attempt.state, cause=error.cause)

    def _go_on(self, attempt: Attempt) -> None:
        settings, before = self._world.settings(attempt.target), _before(attempt)
        assert before is not None  # noqa: S101 - it was looked at when it was taken up
        call = HookCall(
            attempt_id=attempt.id, target=attempt.target, url="", group=attempt.group,
            trigger=attempt.trigger, reason=attempt.reason,
        )  # fmt: skip
        lock = self._means.lock(settings)
        restart = self._restart(attempt, call, settings, _NEVER, _no_objection, lock)
        since_s = max(0.0, time.time() - (attempt.called_t or attempt.began_t))

        async def work() -> Attempt:
            # A server that may still be loading keeps others of the group from being restarted.
            held = None if lock is None else await lock.acquire(self._means.holder, attempt.id)
            if held is not None and held.held is not True:
                _log.error("lock_not_held", attempt=attempt.id, because=held.text)
            return await restart.resume(before, since_s)

        self._start(restart, work, settings, lock)

    def _restart(
        self, attempt: Attempt, call: HookCall, settings: RestartSettings, hook: Hook,
        objection: Objection, lock: Lock | None,
    ) -> Restart:  # fmt: skip
        name, world = attempt.target, self._world

        async def drained() -> str:
            world.draining(name, on=True)
            return await drain.wait(
                settings.drain, lambda: world.signals(name), lambda text: self._tell(attempt, text)
            )

        load_seconds = world.load_seconds(name)
        return Restart(
            attempt, call, hook=hook, journal=self._owed, server=_Server(world, name),
            steps=Steps(
                gather_evidence=world.evidence, drain=drained,
                undrain=lambda: world.draining(name, on=False), objection=objection, tell=self._tell,
                still_ours=lambda: lock is None or lock.still_ours(),
            ),
            make_verification=lambda before: verify.Verification(
                before, start_seconds=settings.verify.start_seconds,
                settle_seconds=settings.verify.settle_seconds, load_seconds_max=load_seconds,
            ),
        )  # fmt: skip

    def _start(
        self, restart: Restart, work: Work, settings: RestartSettings, lock: Lock | None
    ) -> None:
        name = restart.attempt.target
        self._running[name] = asyncio.create_task(
            self._carry(restart, work, name, settings, lock), name=f"restart {name}"
        )

    async def _carry(
        self, restart: Restart, work: Work, name: str, settings: RestartSettings, lock: Lock | None
    ) -> None:
        renewing = asyncio.create_task(_renew(lock))
        self._world.restarting(name, on=True)
        try:
            self._ended(await work())
        except Exception as error:  # noqa: BLE001 - an attempt without an end would be under way for ever
            _log.exception("restart_broke", target=name, attempt=restart.attempt.id)
            self._ended(await restart.give_up(f"vllm-watch itself broke: {type(error).__name__}"))
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            self._running.pop(name, None)
            self._stages.pop(name, None)
            self._world.restarting(name, on=False)
            attempt = restart.attempt
            # One that is stopped after its call keeps its slot: the server may be loading, and the next
            # run of the watcher takes both up; else it expires.
            if lock is not None and not (attempt.open and attempt.spent):
                await lock.release(settings.lock.release_delay_seconds, used=attempt.spent)
            self._world.changed(name)

    def _count(self, attempt: Attempt) -> None:
        """It has ended; one that an earlier run of the watcher left as uncertain ends anew here."""
        self.outcomes[attempt.target, attempt.trigger, attempt.state] += 1

    def _ended(self, attempt: Attempt) -> None:
        self._count(attempt)
        self._known[attempt.target] = attempt
        self._over(attempt)
        log = _log.info if attempt.state in ("helped", "cancelled") else _log.error
        log(
            "restart_ended",
            target=attempt.target,
            attempt=attempt.id,
            outcome=attempt.state,
            because=attempt.text,
        )

    def _tell(self, attempt: Attempt, text: str) -> None:
        self._known[attempt.target] = attempt
        self._stages[attempt.target] = text
        self._world.changed(attempt.target)


class _Server:
    """One target of the world, as an attempt sees it."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name

    def signals(self) -> TargetSignals | None:
        return self._world.signals(self._name)

    def open_kinds(self) -> frozenset[str]:
        return self._world.open_kinds(self._name)

    async def next_look(self, timeout_seconds: float) -> bool:
        return await self._world.next_look(self._name, timeout_seconds)


class _Never:
    """The hook of an attempt that is only verified."""

    timeout_seconds = 1.0

    async def refusal(self, call: HookCall) -> str | None:
        return "an attempt that was taken up is never called again"

    async def restart(self, call: HookCall) -> HookResult:
        return HookResult(
            outcome=REFUSED, text="an attempt that was taken up is never called again"
        )

    async def rehearse(self, call: HookCall) -> list[Finding]:
        return []


_NEVER = _Never()


async def _no_objection() -> str | None:
    return None


def _before(attempt: Attempt) -> verify.Before | None:
    """What was so when its hook was called; None where that is not known."""
    try:
        return None if attempt.before is None else verify.Before.from_json(attempt.before)
    except (TypeError, KeyError):
        return None


def _not_verified(attempt: Attempt) -> bool:
    """Did the watcher end again while it verified one that was uncertain?"""
    called_t = attempt.called_t or 0.0
    recent = time.time() - called_t < UNCERTAIN_SECONDS
    return attempt.state == "uncertain" and recent and attempt.before is not None


async def _renew(lock: Lock | None) -> None:
    """Keep a lock while an attempt is under way; what it finds is asked before the hook is called."""
    was: bool | None = True
    while lock is not None:
        await asyncio.sleep(lock.ttl_seconds * RENEW_SHARE)
        held = await lock.renew()
        if held.held is not was and held.held is not True:
            _log.error("lock_not_renewed", because=held.text)
        was = held.held
