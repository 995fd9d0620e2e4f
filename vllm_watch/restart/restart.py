"""One attempt to restart a server or a gang.

    intent ─▶ evidence ─▶ drain ─▶ new scrape ─▶ guard ─▶ calling ─▶ hook
        ─▶ verifying ─▶ helped | did_not_help

Each state is on disk before the next action. After a crash in state `intent`, no hook was called.
After a crash in state `calling`, a hook may have been called, so none is called again. The hooks of
a gang are called together, because its ranks wait for each other at start.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import verify
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.restart.hooks.base import (
    FAILED,
    REFUSED,
    UNCERTAIN,
    Hook,
    HookCall,
    HookResult,
)
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.targets import Targets
from vllm_watch.settings.restart import HOOK_GRACE_SECONDS, DrainSettings, RestartSettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal
from vllm_watch.support.visible import printable

_log = structlog.get_logger()

RETRIES_MAX = 2
"""A call that had no effect is retried at most this many times, because a supervisor may be busy for seconds."""

RETRY_SECONDS = 5.0

EVIDENCE_SECONDS = 30.0
"""Saving the evidence may delay the restart by at most this many seconds."""

DRAIN_POLL_SECONDS = 0.5

SCRAPE_WAIT_SECONDS = 60.0
"""Verification waits at most this many seconds for a scrape."""

BLIND_SECONDS = 1.0

PENDING_MAX = 100
"""At most this many unwritten attempts are kept. The guard starts no attempts while writes fail."""

STUCK = frozenset(("stalled", "down", "unknown", "starting"))

_DID_NOTHING = (FAILED, REFUSED)

_UNSEEN = TargetSignals(
    target="", t=0.0, up=False, outcome="", state="unknown", state_text="it is not seen"
)

Recheck = Callable[[], Awaitable[str | None]]
"""Asks the guard and the lock again. Returns a refusal or None."""

Changed = Callable[[], str | None]
"""Returns a text if a reload or the requester has changed something since the decision."""


def unchanged() -> str | None:
    """Return None, because nothing has changed."""
    return None


class PendingWrites:
    """Writes attempts to the journal, and repeats failed writes.

    After its hook call, an attempt continues even if the disk is full.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pending: dict[str, Attempt] = {}
        self._in_flight: set[str] = set()

    async def write(self, attempt: Attempt) -> None:
        """Write the attempt. After JournalError, `flush` retries."""
        self.add(attempt)
        self._in_flight.add(attempt.id)
        try:
            await self._journal.write(attempt)
        finally:
            self._in_flight.discard(attempt.id)
        if self._pending.get(attempt.id) is attempt:
            del self._pending[attempt.id]

    def add(self, attempt: Attempt) -> None:
        self._pending.pop(attempt.id, None)
        self._pending[attempt.id] = attempt
        while len(self._pending) > PENDING_MAX:
            lost = self._pending.pop(next(iter(self._pending)))
            _log.error("attempt_not_written", attempt=lost.id, target=lost.target, state=lost.state)

    async def flush(self) -> None:
        """Write pending attempts until a write fails. Never raises JournalError."""
        for attempt_id in list(self._pending):
            attempt = self._pending.get(attempt_id)
            if attempt is None or attempt_id in self._in_flight:
                continue
            try:
                await self.write(attempt)
            except JournalError:
                return
            _log.info("attempt_written_late", attempt=attempt.id, state=attempt.state)

    def newest(self, stored: Iterable[Attempt]) -> tuple[Attempt, ...]:
        return tuple(self._pending.get(attempt.id, attempt) for attempt in stored)


class Restart:
    """Carries out one attempt."""

    def __init__(
        self, attempt: Attempt, settings: RestartSettings, targets: Targets, journal: PendingWrites,
        evidence: EvidenceStore,
    ) -> None:  # fmt: skip
        self.attempt = attempt
        self.stage = attempt.text
        self.hook_seconds = 0.0
        self.stopping = False  # call no more hooks
        self.idle = asyncio.Event()  # set while no hook runs
        self.idle.set()
        self._settings = settings
        self._targets = targets
        self._journal = journal
        self._evidence = evidence
        self._names = attempt.names
        self._startup_seconds = {name: targets.startup_seconds(name) for name in attempt.names}
        self._not_restarted = ""

    async def intend(self) -> None:
        """Write the intent. After a JournalError, the attempt must not continue."""
        await self._journal.write(self.attempt)
        self._show("the intent is in the journal")

    async def run(
        self, calls: Sequence[tuple[HookCall, Hook]], lock: Lock | None, recheck: Recheck,
        changed: Changed = unchanged,
    ) -> Attempt:  # fmt: skip
        befores = verify.befores(self.attempt)
        assert befores is not None  # noqa: S101 - part of every intent
        try:
            ended = await self._act(calls, lock, recheck, changed, befores)
        finally:
            self.idle.set()
        return ended or await self._verify(befores, time.monotonic())

    async def _act(
        self, calls: Sequence[tuple[HookCall, Hook]], lock: Lock | None, recheck: Recheck,
        changed: Changed, befores: Mapping[str, verify.Before],
    ) -> Attempt | None:  # fmt: skip
        async def recheck_all() -> str | None:
            return await self._recheck(befores, recheck, changed)

        try:
            calls = await self._prepare(calls, changed)
            against = await recheck_all()
            self.hook_seconds = max(_seconds_max(hook) for _, hook in calls)
            self.idle.clear()
            against = against or await self._write_call(lock)
            # Check again, because the write took time, and the machine may have been suspended.
            against = against or self._stopping() or self._changed_since(befores, changed)
            if against is not None:
                return await self._end("cancelled", against)
            results = await self._call_hooks(calls, lock, recheck_all)
        finally:
            # Admit requests again, because verification needs them to measure the new process.
            for name in self._names:
                self._targets.draining(name, on=False)
        idle = {name: each.text for name, each in results.items() if each.outcome in _DID_NOTHING}
        if len(idle) == len(results):
            return await self._end("failed", self._joined(idle))
        if idle:
            self._not_restarted = f"not restarted: {self._joined(idle)}; "
        await self._move_if_possible("verifying", self._joined(
            {name: _result_text(each) for name, each in results.items()}
        ))  # fmt: skip
        return None

    def _stopping(self) -> str | None:
        return "vllm-watch is stopping" if self.stopping else None

    async def resume(self, befores: Mapping[str, verify.Before], since_s: float) -> Attempt:
        """Verify an earlier run's attempt, without calling the hook again."""
        for name in self._names:
            self._targets.acting(name, on=True)
        return await self._verify(befores, time.monotonic() - since_s)

    async def wait_for_hooks(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.hook_seconds):
                await self.idle.wait()

    async def give_up(self, text: str) -> Attempt:
        """End the attempt as uncertain if a hook was called, else as cancelled."""
        touched = self.attempt.called_t is not None
        return await self._end("uncertain" if touched else "cancelled", text)

    async def _prepare(
        self, calls: Sequence[tuple[HookCall, Hook]], changed: Changed
    ) -> Sequence[tuple[HookCall, Hook]]:
        self._show("collecting evidence")
        paths = await asyncio.gather(*map(self._keep_evidence, self._names))
        await self._drain(changed)
        return [
            (replace(call, evidence_path=path), hook)
            for (call, hook), path in zip(calls, paths, strict=True)
        ]

    async def _keep_evidence(self, name: str) -> str | None:
        try:
            async with asyncio.timeout(EVIDENCE_SECONDS):
                return await self._evidence.keep(replace(self.attempt, target=name))
        except Exception as error:  # noqa: BLE001 - the restart matters more
            _log.warning("evidence_failed", attempt=self.attempt.id, target=name, error=str(error))
            return None

    async def _drain(self, changed: Changed) -> None:
        began_s = time.monotonic()
        for name in self._names:
            self._targets.draining(name, on=True)
        while True:
            waited_s = time.monotonic() - began_s
            progress = {
                name: drain_progress(self._settings.drain, self._targets.signals(name), waited_s)
                for name in self._names
            }
            self._show(self._joined({name: text for name, (_, text) in progress.items()}))
            if all(over for over, _ in progress.values()) or changed() is not None:
                return
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def _recheck(
        self, befores: Mapping[str, verify.Before], recheck: Recheck, changed: Changed
    ) -> str | None:
        began_s = time.monotonic()
        waits = (self._targets.scraped_since(name, began_s) for name in self._names)
        seen = dict(zip(self._names, await asyncio.gather(*waits), strict=True))
        against = self._changed_since(befores, changed)
        if against is not None:
            return against
        if not all(seen.values()):
            unseen = ", ".join(name for name, scraped in seen.items() if not scraped)
            return f"no scrape of {unseen} has ended since the drain"
        try:
            return await recheck()
        except Exception as error:  # noqa: BLE001 - any error is a refusal
            _log.exception("objection_broke", attempt=self.attempt.id)
            return f"the last check failed: {type(error).__name__}"

    def _changed_since(self, befores: Mapping[str, verify.Before], changed: Changed) -> str | None:
        against = changed()
        if against is not None:
            return against
        # The guard checks that the last scrape, even a failed one, found the incident.
        silence_counts = self.attempt.trigger != "incident"
        for name, before in befores.items():
            text = self._targets.stale(name, None) or self._targets.replaced(
                name, before.process, silence_counts=silence_counts
            )
            if text is not None:
                again = "; ask again" if self.attempt.trigger == "manual" else ""
                return self._joined({name: text}) + again
        return None

    async def _write_call(self, lock: Lock | None) -> str | None:
        called = replace(self.attempt, called_t=time.time())
        try:
            await self._move(called, "calling", "the hook is called")
        except JournalError as error:
            return f"not written to the journal: {error.cause}"
        if lock is not None and not lock.still_ours():
            return "the lock was lost while the call was being written"
        return None

    async def _call_hooks(
        self, calls: Sequence[tuple[HookCall, Hook]], lock: Lock | None, recheck: Recheck
    ) -> dict[str, HookResult]:
        results: dict[str, HookResult] = {}
        due = list(calls)
        for retry in range(RETRIES_MAX + 1):
            if retry:
                against = await self._retry_refusal(due, results, lock, recheck)
                against = against or self._stopping()
                if against is not None:
                    for call, _ in due:
                        text = f"{results[call.target].text}; not called again: {against}"
                        results[call.target] = replace(results[call.target], text=text)
                    break
            for result in await asyncio.gather(*(self._call_hook(*each) for each in due)):
                results.update(result)
            due = [each for each in due if results[each[0].target].outcome == FAILED]
            if not due:
                break
        return results

    async def _retry_refusal(
        self, due: Sequence[tuple[HookCall, Hook]], results: Mapping[str, HookResult],
        lock: Lock | None, recheck: Recheck,
    ) -> str | None:  # fmt: skip
        names = [call.target for call, _ in due]
        for name in names:
            self._targets.acting(name, on=False)
        await asyncio.sleep(RETRY_SECONDS)
        if any(each.outcome not in _DID_NOTHING for each in results.values()):
            # Some members were restarted, so retry the rest: half a gang cannot serve.
            lost = lock is not None and not lock.still_ours()
            return "the lock was lost" if lost else None
        return await recheck()

    async def _call_hook(self, call: HookCall, hook: Hook) -> dict[str, HookResult]:
        self._targets.acting(call.target, on=True)
        limit = _seconds_max(hook)
        try:
            async with asyncio.timeout(limit):
                result = await hook.restart(call)
        except TimeoutError:
            text = f"the hook was cancelled after {limit:g} s"
            result = HookResult(outcome=UNCERTAIN, text=text)
        except Exception as error:  # noqa: BLE001 - it may have acted
            _log.exception("hook_broke", attempt=call.attempt_id, target=call.target)
            text = f"the hook failed: {type(error).__name__}"
            result = HookResult(outcome=UNCERTAIN, text=text)
        result = replace(result, text=printable(result.text))
        self._show(self._joined({call.target: result.text}))
        return {call.target: result}

    async def _verify(self, befores: Mapping[str, verify.Before], called_s: float) -> Attempt:
        following = {
            name: verify.Verification(before, self._settings.verify, self._startup_seconds[name])
            for name, before in befores.items()
        }
        seen: dict[str, verify.Progress] = {}
        began_s = time.monotonic()
        while True:
            asked_s = time.monotonic()
            for name, scraped in (
                await self._wait_for_scrapes(following.keys() - _finished(seen))
            ).items():
                signals, since_s = self._targets.signals(name), asked_s - called_s
                if signals is None or not scraped:
                    # Without a scrape, do not count the time before this watcher started.
                    signals, since_s = signals or _UNSEEN, asked_s - began_s
                    signals = replace(signals, up=False)
                kinds = self._targets.firing_kinds(name)
                seen[name] = following[name].update(since_s, signals, kinds)
            text = self._joined({name: seen[name].text for name in befores})
            self._show(self._not_restarted + text)
            outcomes = {each.outcome for each in seen.values()}
            if verify.DID_NOT_HELP in outcomes or outcomes == {verify.HELPED}:
                outcome = verify.DID_NOT_HELP if verify.DID_NOT_HELP in outcomes else verify.HELPED
                payoff_ratio = seen[self.attempt.target].payoff_ratio
                return await self._end(outcome, self._not_restarted + text, payoff_ratio)

    async def _wait_for_scrapes(self, names: Iterable[str]) -> dict[str, bool]:
        began_s, names = time.monotonic(), list(names)
        waits = (self._targets.next_scrape(name, SCRAPE_WAIT_SECONDS) for name in names)
        scraped = dict(zip(names, await asyncio.gather(*waits), strict=True))
        if not all(scraped.values()) or any(self._targets.signals(name) is None for name in names):
            await asyncio.sleep(max(0.0, BLIND_SECONDS - (time.monotonic() - began_s)))
        return scraped

    async def _move(self, attempt: Attempt, state: str, text: str) -> None:
        moved = replace(attempt, state=state, text=text)
        await self._journal.write(moved)
        self.attempt = moved
        self._show(text)

    async def _move_if_possible(self, state: str, text: str) -> None:
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
        for name in self._names:
            self._targets.mark_changed(name)

    def _joined(self, said: Mapping[str, str]) -> str:
        if len(self._names) == 1:
            return next(iter(said.values()), "")
        return "; ".join(f"{name}: {text}" for name, text in said.items())


def _seconds_max(hook: Hook) -> float:
    return hook.timeout_seconds + HOOK_GRACE_SECONDS


def _finished(seen: Mapping[str, verify.Progress]) -> set[str]:
    return {name for name, each in seen.items() if each.outcome is not None}


def _result_text(result: HookResult) -> str:
    return f"it may have acted: {result.text}" if result.outcome == UNCERTAIN else result.text


def drain_progress(
    settings: DrainSettings, signals: TargetSignals | None, waited_s: float
) -> tuple[bool, str]:
    """Return whether the wait for requests to finish is over, and a status text. Meanwhile the readiness probe (gates.py) keeps new ones away."""
    if not settings.enabled:
        return True, "did not wait for requests in flight (restart.drain.enabled)"
    if signals is None or signals.state in STUCK:
        return True, "did not wait for requests in flight: the engine makes no progress"
    left = requests_in_flight(signals)
    if left is None:
        return True, "did not wait for requests in flight: their number is not known"
    if left == 0:
        return True, f"no request was in flight after {waited_s:.0f} s"
    if waited_s >= settings.deadline_seconds:
        return True, f"{left:.0f} requests were still in flight after {waited_s:.0f} s"
    more_s = settings.deadline_seconds - waited_s
    return False, f"waiting at most {more_s:.0f} s more for {left:.0f} requests in flight"


def requests_in_flight(signals: TargetSignals) -> float | None:
    """Return the number of running and waiting requests; None if unknown."""
    if not signals.up or not signals.engines:
        return None
    counts = [
        (engine.requests_running, engine.requests_waiting) for engine in signals.engines.values()
    ]
    if any(running is None for running, _ in counts):
        return None
    return sum((running or 0.0) + (waiting or 0.0) for running, waiting in counts)
