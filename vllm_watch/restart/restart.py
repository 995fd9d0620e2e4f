"""One attempt to restart one server, from the intent on disk to the answer whether it helped.

    intent (on disk) ─▶ evidence ─▶ drain ─▶ the guard once more ─▶ calling (on disk) ─▶ hook
        ─▶ verifying (on disk) ─▶ helped | did_not_help (on disk)

What is on disk is always ahead of what is done, never behind: a watcher that dies leaves an `intent`
whose hook was surely not called, or a `calling` whose hook may have been, which is never called again.
After the act the disk may fail without an end to the attempt: what it came to is written later (owed.py).
Nothing here decides: the guard does, and verify.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import verify
from vllm_watch.restart.hooks.base import (
    DONE,
    FAILED,
    REFUSED,
    UNCERTAIN,
    Hook,
    HookCall,
    HookResult,
)
from vllm_watch.restart.owed import Journal
from vllm_watch.settings.restart import HOOK_GRACE_SECONDS
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt

_log = structlog.get_logger()

RETRIES_MAX = 2
"""A call that surely did nothing is made again so often: a supervisor that is busy is so for seconds."""

RETRY_SECONDS = 5.0
"""From one call to the next."""

EVIDENCE_SECONDS = 30.0
"""How long gathering evidence may hold the restart up; what is there by then is kept."""

LOOK_SECONDS = 60.0
"""No look at the target for so long while verifying: time itself is looked at instead."""

BLIND_SECONDS = 1.0
"""At least so long passes from one vain wait for a look to the next, whatever ends it early."""

_UNSEEN = TargetSignals(
    target="", t=0.0, up=False, outcome="", state="unknown", state_text="it is not seen"
)


class Server(Protocol):
    """What an attempt sees of the server that it restarts."""

    def signals(self) -> TargetSignals | None:
        """The last look; None before the first."""

    def open_kinds(self) -> frozenset[str]:
        """Kinds of the incidents that are open on it."""

    async def next_look(self, timeout_seconds: float) -> bool:
        """Wait for the next look to end; False when none did in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What an attempt does beside the hook; each is bounded by the attempt, none may act on the engine."""

    gather_evidence: Callable[
        [Attempt], Awaitable[str | None]
    ]  # path of the bundle, None without one
    drain: Callable[[], Awaitable[str]]  # how it went, in words
    undrain: Callable[[], None]
    objection: Callable[[], Awaitable[str | None]]  # the guard and the lock, asked once more
    still_ours: Callable[[], bool]  # the lock, without asking anybody
    tell: Callable[[Attempt, str], None]  # shows the attempt and what it does now


class Restart:
    """Carries one attempt to its end."""

    def __init__(
        self,
        attempt: Attempt,
        call: HookCall,
        *,
        hook: Hook,
        journal: Journal,
        server: Server,
        steps: Steps,
        make_verification: Callable[[verify.Before], verify.Verification],
    ) -> None:
        self.attempt = attempt
        self._call = call
        self._hook = hook
        self._journal = journal
        self._server = server
        self._steps = steps
        self._make_verification = make_verification
        self.progress: verify.Progress | None = None

    async def intend(self) -> None:
        """Write the intent down. Raises JournalError: nothing was done, and nothing may be."""
        await self._journal.write(self.attempt)
        self._steps.tell(self.attempt, "the intent is written down")

    async def run(self) -> Attempt:
        """Do what was intended; return the attempt as it ended."""
        try:
            objection = await self._prepare()
            before = self._before()
            if objection is None:
                objection = await self._write_call(before)
            if objection is not None:
                return await self._end("cancelled", objection)
            result = await self._call_hook()
        finally:
            # Before it is verified: a new process that gets no requests can not show what it does.
            self._steps.undrain()
        return await self._after(result, before)

    async def give_up(self, text: str) -> Attempt:
        """End it where it stands: what may have acted is uncertain."""
        touched = self.attempt.called_t is not None
        return await self._end("uncertain" if touched else "cancelled", text)

    async def resume(self, before: verify.Before, since_s: float) -> Attempt:
        """Go on verifying what an earlier run of the watcher has begun; the hook is not called again."""
        return await self._verify(before, time.monotonic() - since_s)

    async def _prepare(self) -> str | None:
        self._steps.tell(self.attempt, "evidence is gathered")
        try:
            async with asyncio.timeout(EVIDENCE_SECONDS):
                path = await self._steps.gather_evidence(self.attempt)
            self._call = replace(self._call, evidence_path=path)
        except Exception as error:  # noqa: BLE001 - evidence is wanted, the restart is needed
            _log.warning("evidence_failed", attempt=self.attempt.id, error=str(error))
        self._steps.tell(self.attempt, "requests may finish")
        drained = await self._steps.drain()
        self._steps.tell(self.attempt, drained)
        return await self._object()

    async def _object(self) -> str | None:
        """Ask once more; who cannot say objects."""
        try:
            return await self._steps.objection()
        except Exception as error:  # noqa: BLE001 - whatever it was, it is no yes
            _log.exception("objection_broke", attempt=self.attempt.id)
            return f"it could not be asked once more: {type(error).__name__}"

    async def _write_call(self, before: verify.Before) -> str | None:
        called = replace(self.attempt, called_t=time.time(), before=before.to_json())
        try:
            await self._move(called, "calling", "the hook is called")
        except JournalError as error:
            return f"not written down: {error.cause}"
        if self._steps.still_ours():
            return None
        # Writing takes time, and the machine may have slept.
        return "the lock was lost while the call was written down"

    def _before(self) -> verify.Before:
        signals = self._server.signals()
        if signals is None:
            return verify.Before(process_start_time=None, restarts=0, throughput_ratio=None)
        return verify.before(signals, self._server.open_kinds())

    async def _call_hook(self) -> HookResult:
        result = HookResult(outcome=FAILED, text="the hook was not called")
        for retry in range(RETRIES_MAX + 1):
            if retry:
                await asyncio.sleep(RETRY_SECONDS)
                objection = await self._object()
                if objection is not None:
                    text = f"{result.text}; not called again: {objection}"
                    return replace(result, text=text)
            limit = self._hook.timeout_seconds + HOOK_GRACE_SECONDS
            try:
                async with asyncio.timeout(limit):
                    result = await self._hook.restart(self._call)
            except TimeoutError:
                text = f"the hook was cut off after {limit:g} s"
                result = HookResult(outcome=UNCERTAIN, text=text)
            except Exception as error:  # noqa: BLE001 - whatever it was, it may have acted
                _log.exception("hook_broke", attempt=self.attempt.id, hook=self.attempt.hook)
                text = f"the hook broke: {type(error).__name__}"
                result = HookResult(outcome=UNCERTAIN, text=text)
            self._steps.tell(self.attempt, result.text)
            if result.outcome != FAILED:
                break
        return result

    async def _after(self, result: HookResult, before: verify.Before) -> Attempt:
        if result.outcome in (FAILED, REFUSED):
            return await self._end("failed", result.text)
        said = result.text if result.outcome == DONE else f"not sure that it acted: {result.text}"
        await self._move_if_possible("verifying", said)
        return await self._verify(before, time.monotonic())

    async def _verify(self, before: verify.Before, called_s: float) -> Attempt:
        verification = self._make_verification(before)
        began_s = time.monotonic()
        while True:
            asked_s = time.monotonic()
            looked = await self._server.next_look(LOOK_SECONDS)
            signals, since_s = self._server.signals(), asked_s - called_s
            if signals is None or not looked:
                # Without looks nothing is known; only the time that a start may take goes on, and
                # only while this watcher waits: what passed while it was away, nobody saw.
                signals, since_s = signals or _UNSEEN, asked_s - began_s
                signals = replace(signals, up=False)
                await asyncio.sleep(max(0.0, BLIND_SECONDS - (time.monotonic() - asked_s)))
            self.progress = verification.update(since_s, signals, self._server.open_kinds())
            self._steps.tell(self.attempt, self.progress.text)
            if self.progress.outcome is not None:
                return await self._end(
                    self.progress.outcome, self.progress.text, self.progress.payoff_ratio
                )

    async def _move(self, attempt: Attempt, state: str, text: str) -> None:
        moved = replace(attempt, state=state, text=text)
        await self._journal.write(moved)
        self.attempt = moved
        self._steps.tell(moved, text)

    async def _move_if_possible(self, state: str, text: str) -> None:
        """After the act the disk may fail: what is known goes on in memory, and is said loudly."""
        try:
            await self._move(self.attempt, state, text)
        except JournalError as error:
            self.attempt = replace(self.attempt, state=state, text=text)
            _log.error("journal_failed", attempt=self.attempt.id, state=state, cause=error.cause)

    async def _end(self, state: str, text: str, payoff_ratio: float | None = None) -> Attempt:
        self.attempt = replace(self.attempt, ended_t=time.time(), payoff_ratio=payoff_ratio)
        await self._move_if_possible(state, text)
        return self.attempt
