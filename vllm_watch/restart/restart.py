"""One attempt to restart one server, from the intent on disk to the answer whether it helped.

    intent (on disk) ─▶ evidence ─▶ drain ─▶ the guard once more ─▶ calling (on disk) ─▶ hook
        ─▶ verifying (on disk) ─▶ helped | did_not_help (on disk)

What is on disk is always ahead of what is done, never behind: a watcher that dies leaves an `intent`
whose hook was surely not called, or a `calling` whose hook may have been, which is never called again.
After the call the disk may fail without an end to the attempt: how it ended is written later
(pending_writes.py). Nothing here decides: the guard does, and verify.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import drain, verify
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.restart.hooks.base import (
    DONE,
    FAILED,
    REFUSED,
    UNCERTAIN,
    Hook,
    HookCall,
    HookResult,
)
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.pending_writes import PendingWrites
from vllm_watch.restart.targets import Targets
from vllm_watch.settings.lock import HOOK_GRACE_SECONDS
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt
from vllm_watch.support.printable import printable

_log = structlog.get_logger()

RETRIES_MAX = 2
"""A call that surely did nothing is made again so often: a supervisor that is busy is so for seconds."""

RETRY_SECONDS = 5.0
"""From one call to the next."""

EVIDENCE_SECONDS = 30.0
"""How long gathering evidence may hold the restart up; what is there by then is kept."""

DRAIN_POLL_SECONDS = 0.5
"""How often the last scrape is read again while requests finish; looks themselves come at their own pace."""

LOOK_SECONDS = 60.0
"""No look at the target for so long while verifying: time itself is looked at instead."""

BLIND_SECONDS = 1.0
"""At least so long passes from one vain wait for a look to the next, whatever ends it early."""

_UNSEEN = TargetSignals(
    target="", t=0.0, up=False, outcome="", state="unknown", state_text="it is not seen"
)

Objection = Callable[[], Awaitable[str | None]]
"""Asks the guard and the lock once more; None: there is nothing against it."""


class Restart:
    """Carries one attempt to its end."""

    def __init__(
        self, attempt: Attempt, settings: RestartSettings, targets: Targets, journal: PendingWrites,
        evidence: EvidenceStore,
    ) -> None:  # fmt: skip
        self.attempt = attempt
        self.stage = attempt.text  # what it does now, in words
        self._settings = settings
        self._targets = targets
        self._journal = journal
        self._evidence = evidence
        self._startup_seconds = targets.startup_seconds(attempt.target)

    async def intend(self) -> None:
        """Write the intent down. Raises JournalError: nothing was done, and nothing may be."""
        await self._journal.write(self.attempt)
        self._show("the intent is in the journal")

    async def run(
        self, call: HookCall, hook: Hook, lock: Lock | None, objection: Objection
    ) -> Attempt:
        """Do what was intended; return the attempt as it ended."""
        try:
            against, call = await self._prepare(call, objection)
            before = self._before()
            if against is None:
                against = await self._write_call(before, lock)
            if against is not None:
                return await self._end("cancelled", against)
            result = await self._call_hook(call, hook, objection)
        finally:
            # Before it is verified: a new process that gets no requests cannot show what it does.
            self._targets.draining(self.attempt.target, on=False)
        if result.outcome in (FAILED, REFUSED):
            return await self._end("failed", result.text)
        text = result.text if result.outcome == DONE else f"it may have acted: {result.text}"
        await self._move_if_possible("verifying", text)
        return await self._verify(before, time.monotonic())

    async def resume(self, before: verify.Before, since_s: float) -> Attempt:
        """Go on verifying what an earlier run of the watcher has begun; the hook is not called again."""
        self._targets.acting(self.attempt.target, on=True)
        return await self._verify(before, time.monotonic() - since_s)

    async def give_up(self, text: str) -> Attempt:
        """End it where it stands: what may have acted is uncertain."""
        touched = self.attempt.called_t is not None
        return await self._end("uncertain" if touched else "cancelled", text)

    async def _prepare(self, call: HookCall, objection: Objection) -> tuple[str | None, HookCall]:
        """Keep evidence, drain, ask once more; return what is against it, and the call with the evidence."""
        self._show("evidence is gathered")
        try:
            async with asyncio.timeout(EVIDENCE_SECONDS):
                path = await self._evidence.keep(self.attempt)
            call = replace(call, evidence_path=path)
        except Exception as error:  # noqa: BLE001 - evidence is wanted, the restart is needed
            _log.warning("evidence_failed", attempt=self.attempt.id, error=str(error))
        await self._drain()
        return await self._object(objection), call

    async def _drain(self) -> None:
        name, began_s = self.attempt.target, time.monotonic()
        self._targets.draining(name, on=True)
        while True:
            waited_s = time.monotonic() - began_s
            over, text = drain.progress(self._settings.drain, self._targets.signals(name), waited_s)
            self._show(text)
            if over:
                return
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def _object(self, objection: Objection) -> str | None:
        """Ask once more; what cannot be asked objects."""
        try:
            return await objection()
        except Exception as error:  # noqa: BLE001 - whatever it was, it is no yes
            _log.exception("objection_broke", attempt=self.attempt.id)
            return f"it could not be asked once more: {type(error).__name__}"

    async def _write_call(self, before: verify.Before, lock: Lock | None) -> str | None:
        called = replace(self.attempt, called_t=time.time(), before=before.to_json())
        try:
            await self._move(called, "calling", "the hook is called")
        except JournalError as error:
            return f"not written down: {error.cause}"
        # Writing takes time, and the machine may have slept.
        if lock is not None and not lock.still_ours():
            return "the lock was lost while the call was written down"
        manual = self.attempt.trigger == "manual"
        return None if manual else self._targets.stale(self.attempt.target, None)

    def _before(self) -> verify.Before:
        name = self.attempt.target
        return verify.before(self._targets.signals(name), self._targets.firing_kinds(name))

    async def _call_hook(self, call: HookCall, hook: Hook, objection: Objection) -> HookResult:
        result = HookResult(outcome=FAILED, text="the hook was not called")
        name = self.attempt.target
        for retry in range(RETRIES_MAX + 1):
            if retry:
                self._targets.acting(name, on=False)
                await asyncio.sleep(RETRY_SECONDS)
                await self._targets.next_look(name, LOOK_SECONDS)
                against = await self._object(objection)
                if against is not None:
                    return replace(result, text=f"{result.text}; not called again: {against}")
            self._targets.acting(name, on=True)
            limit = hook.timeout_seconds + HOOK_GRACE_SECONDS
            try:
                async with asyncio.timeout(limit):
                    result = await hook.restart(call)
            except TimeoutError:
                text = f"the hook was cut off after {limit:g} s"
                result = HookResult(outcome=UNCERTAIN, text=text)
            except Exception as error:  # noqa: BLE001 - whatever it was, it may have acted
                _log.exception("hook_broke", attempt=self.attempt.id, hook=self.attempt.hook)
                text = f"the hook broke: {type(error).__name__}"
                result = HookResult(outcome=UNCERTAIN, text=text)
            result = replace(result, text=printable(result.text))
            self._show(result.text)
            if result.outcome != FAILED:
                break
        return result

    async def _verify(self, before: verify.Before, called_s: float) -> Attempt:
        name = self.attempt.target
        verification = verify.Verification(before, self._settings.verify, self._startup_seconds)
        began_s = time.monotonic()
        while True:
            asked_s = time.monotonic()
            looked = await self._targets.next_look(name, LOOK_SECONDS)
            signals, since_s = self._targets.signals(name), asked_s - called_s
            if signals is None or not looked:
                # Without looks nothing is known; only the time that a start may take goes on, and
                # only while this watcher waits: what passed while it was away, nobody saw.
                signals, since_s = signals or _UNSEEN, asked_s - began_s
                signals = replace(signals, up=False)
                await asyncio.sleep(max(0.0, BLIND_SECONDS - (time.monotonic() - asked_s)))
            progress = verification.update(since_s, signals, self._targets.firing_kinds(name))
            self._show(progress.text)
            if progress.outcome is not None:
                return await self._end(progress.outcome, progress.text, progress.payoff_ratio)

    async def _move(self, attempt: Attempt, state: str, text: str) -> None:
        moved = replace(attempt, state=state, text=text)
        await self._journal.write(moved)
        self.attempt = moved
        self._show(text)

    async def _move_if_possible(self, state: str, text: str) -> None:
        """After the call the disk may fail: what is known goes on in memory, and the log has the error."""
        try:
            await self._move(self.attempt, state, text)
        except JournalError as error:
            self.attempt = replace(self.attempt, state=state, text=text)
            _log.error("journal_failed", attempt=self.attempt.id, state=state, cause=error.cause)

    async def _end(self, state: str, text: str, payoff_ratio: float | None = None) -> Attempt:
        self.attempt = replace(self.attempt, ended_t=time.time(), payoff_ratio=payoff_ratio)
        await self._move_if_possible(state, text)
        return self.attempt

    def _show(self, stage: str) -> None:
        self.stage = stage
        self._targets.mark_changed(self.attempt.target)
