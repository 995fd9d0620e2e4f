"""The attempts that are under way: begun once the guard has agreed, and taken up after our own restart."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from vllm_watch.actions import drain, verify
from vllm_watch.actions.attempt import Attempt
from vllm_watch.actions.hooks.base import REFUSED, Finding, Hook, HookCall, HookResult
from vllm_watch.actions.journal import Journal
from vllm_watch.actions.locks.base import Lock
from vllm_watch.actions.request import RestartRequest
from vllm_watch.actions.restart import Restart, Steps
from vllm_watch.actions.world import World
from vllm_watch.errors import JournalError
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.signals.records import TargetSignals

_log = structlog.get_logger()

RENEW_SHARE = 1 / 3
"""Of its TTL a lock is renewed: two renewals may fail before it is lost."""

Objection = Callable[[], Awaitable[str | None]]  # the guard, asked once more


class Attempts:
    """One watcher's attempts, one at a time for each target."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._running: dict[str, asyncio.Task[None]] = {}  # by target
        self._known: dict[str, Attempt] = {}  # the last of each target, as it stands
        self._stages: dict[str, str] = {}  # what it does now, in words
        self.outcomes: Counter[tuple[str, str, str]] = Counter()  # target, trigger, outcome

    def last(self, target: str) -> tuple[Attempt, str] | None:
        """The target's last attempt, and what it does now or how it ended, in words."""
        known = self._known.get(target)
        return None if known is None else (known, self._stages.get(target, known.text))

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

    def begin(
        self, request: RestartRequest, target: Target, settings: RestartSettings, attempt_id: str,
        hook: Hook, lock: Lock | None, objection: Objection,
    ) -> Attempt:  # fmt: skip
        """Begin an attempt that the guard has agreed to; it goes on by itself."""
        attempt = self.make(request, attempt_id, "intent")
        call = self.call(request, target, attempt_id)
        restart = self._restart(attempt, call, settings, hook, objection)
        self._known[target.name] = attempt
        self._start(restart, restart.run(), settings, lock)
        return attempt

    async def resume(self) -> None:
        """Take up what an earlier run of the watcher left: nothing is called again. Raises JournalError."""
        for attempt in await self._journal.attempts():
            if attempt.open and attempt.target not in self._running:
                await self._take_up(attempt)

    async def _take_up(self, attempt: Attempt) -> None:
        now_t = time.time()
        if attempt.state == "intent":
            text = "the watcher ended before the hook was called"
            await self._journal.write(replace(attempt, state="cancelled", ended_t=now_t, text=text))
            return
        if attempt.state == "calling":
            text = "the watcher ended while the hook was called: it may have acted"
            attempt = replace(attempt, state="uncertain", ended_t=now_t, text=text)
            await self._journal.write(attempt)
            _log.error("restart_uncertain", target=attempt.target, attempt=attempt.id, because=text)
        self._known[attempt.target] = attempt
        if self._world.target(attempt.target) is None or attempt.before is None:
            return
        settings = self._world.settings(attempt.target)
        call = HookCall(
            attempt_id=attempt.id, target=attempt.target, url="", group=attempt.group,
            trigger=attempt.trigger, reason=attempt.reason,
        )  # fmt: skip
        restart = self._restart(attempt, call, settings, _NEVER, _no_objection)
        before = verify.Before.from_json(attempt.before)
        since_s = max(0.0, now_t - (attempt.called_t or now_t))
        self._start(restart, restart.resume(before, since_s), settings, None)

    def _restart(
        self, attempt: Attempt, call: HookCall, settings: RestartSettings, hook: Hook,
        objection: Objection,
    ) -> Restart:  # fmt: skip
        name, world = attempt.target, self._world

        async def drained() -> str:
            world.draining(name, on=True)
            return await drain.wait(
                settings.drain, lambda: world.signals(name), lambda text: self._tell(attempt, text)
            )

        load_seconds = world.load_seconds(name)
        return Restart(
            attempt, call, hook=hook, journal=self._journal, server=_Server(world, name),
            steps=Steps(
                gather_evidence=world.evidence, drain=drained,
                undrain=lambda: world.draining(name, on=False), objection=objection, tell=self._tell,
            ),
            make_verification=lambda before: verify.Verification(
                before, start_seconds=settings.verify.start_seconds,
                settle_seconds=settings.verify.settle_seconds, load_seconds_max=load_seconds,
            ),
        )  # fmt: skip

    def _start(
        self, restart: Restart, work: Coroutine[Any, Any, Attempt], settings: RestartSettings,
        lock: Lock | None,
    ) -> None:  # fmt: skip
        name = restart.attempt.target
        self._running[name] = asyncio.create_task(
            self._carry(restart, work, name, settings, lock), name=f"restart {name}"
        )

    async def _carry(
        self, restart: Restart, work: Coroutine[Any, Any, Attempt], name: str,
        settings: RestartSettings, lock: Lock | None,
    ) -> None:  # fmt: skip
        renewing = asyncio.create_task(_renew(lock))
        self._world.restarting(name, on=True)
        try:
            ended = await work
            self.outcomes[name, ended.trigger, ended.state] += 1
            self._known[name] = ended
            log = _log.info if ended.state in ("helped", "cancelled") else _log.error
            log(
                "restart_ended",
                target=name,
                attempt=ended.id,
                outcome=ended.state,
                because=ended.text,
            )
        except JournalError as error:
            _log.error("restart_not_begun", target=name, cause=error.cause)
            self._known[name] = replace(restart.attempt, state="cancelled", text=error.cause)
        finally:
            renewing.cancel()
            self._running.pop(name, None)
            self._stages.pop(name, None)
            self._world.restarting(name, on=False)
            if lock is not None:
                await lock.release(settings.lock.release_delay_seconds)
            self._world.changed(name)

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


async def _renew(lock: Lock | None) -> None:
    """Keep a lock while an attempt is under way; what it finds is asked before the hook is called."""
    while lock is not None:
        await asyncio.sleep(lock.ttl_seconds * RENEW_SHARE)
        held = await lock.renew()
        if held.held is not True:
            _log.error("lock_not_renewed", because=held.text)
