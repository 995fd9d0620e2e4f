"""One attempt to restart a server or a gang.

    intent ─▶ evidence ─▶ drain ─▶ new scrape ─▶ guard ─▶ calling ─▶ hook
        ─▶ verifying ─▶ helped | did_not_help

Each state is on disk before the next action. After a crash in state `intent`, no hook was called.
After a crash in state `calling`, a hook may have been called, so none is called again. The hooks of
a gang are called together, because its ranks wait for each other at start.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import guard, verify
from vllm_watch.restart.decider import Decider, PendingRequest
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.restart.facts import RestartRequest
from vllm_watch.restart.hooks.base import (
    FAILED,
    REFUSED,
    UNCERTAIN,
    Hook,
    HookCall,
    HookResult,
)
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.targets import ManagedTarget
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import HOOK_GRACE_SECONDS, DrainSettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt
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

STUCK = frozenset(("stalled", "down", "unknown", "starting"))

_DID_NOTHING = (FAILED, REFUSED)

_UNSEEN = TargetSignals(
    target="", t=0.0, up=False, outcome="", state="unknown", state_text="it is not seen"
)


class _Planned(NamedTuple):
    """A hook call, as decided."""

    target: Target
    call: HookCall
    hook: Hook


class Restart:
    """Carries out one attempt."""

    def __init__(
        self, attempt: Attempt, managed: ManagedTarget, lock: Lock | None, decider: Decider,
        evidence: EvidenceStore, request: RestartRequest | None = None,
        pending: PendingRequest | None = None,
    ) -> None:  # fmt: skip
        """`request` is None for the attempt of an earlier run. `pending` is None if the request is not queued."""
        self.attempt = attempt
        self.settings = managed.settings
        self.lock = lock
        self.hook_seconds = 0.0
        self.stopping: str | None = None  # why no more hooks may be called
        self.idle = asyncio.Event()  # set while no hook runs
        self.idle.set()
        self._managed = managed
        self._decider = decider
        self._targets = decider.targets
        self._ledger = decider.ledger
        self._evidence = evidence
        self._request = request
        self._pending = pending
        self._names = attempt.names
        self._befores = verify.befores(attempt) or {}
        self._planned = [] if request is None else [*map(self._plan, self._names)]
        self._following = {
            name: verify.Verification(
                before, managed.settings.verify, self._targets.startup_seconds(name)
            )
            for name, before in self._befores.items()
        }
        self._not_restarted = ""

    def _plan(self, name: str) -> _Planned:
        assert self._request is not None  # noqa: S101 - checked in __init__
        managed, attempt_id = self._targets.managed[name], self.attempt.id
        hook = self._decider.backends.hook(managed.settings.hook)
        assert hook is not None  # noqa: S101 - it just agreed
        # Each gang member gets its own id, because a receiver may accept each id only once.
        own_id = attempt_id if name == self.attempt.target else f"{attempt_id}-{name}"
        call = HookCall.of(self._request, managed.target, own_id, self._befores[name])
        return _Planned(managed.target, call, hook)

    async def run(self) -> Attempt:
        if self.attempt.state != "intent":
            return await self._verify(await self._resume())
        try:
            ended = await self._act()
        finally:
            self.idle.set()
        return ended or await self._verify(time.monotonic())

    async def _resume(self) -> float:
        """Prepare to verify an earlier run's attempt, without calling the hook again. Return when it was called."""
        called_s = time.monotonic() - max(0.0, time.time() - self.attempt.acted_t)
        if self.lock is not None:
            # The server may still be loading, so its group must stay locked.
            holder, attempt = self._decider.backends.holder, self.attempt
            held = await self.lock.acquire(holder, attempt.id, attempt)
            if held.held is not True:
                _log.error("lock_not_held", attempt=attempt.id, because=held.text)
        for name in self._names:
            self._targets.acting(name, on=True)
        return called_s

    async def _act(self) -> Attempt | None:
        try:
            await self._prepare()
            against = await self._recheck()
            self.hook_seconds = max(_seconds_max(each.hook) for each in self._planned)
            self.idle.clear()
            against = against or await self._write_call()
            # Check again, because the write took time, and the machine may have been suspended.
            against = against or self.stopping or self._changed()
            if against is not None:
                return await self._end("cancelled", against)
            results = await self._call_hooks()
        finally:
            # Admit requests again, because verification needs them to measure the new process.
            for name in self._names:
                self._targets.draining(name, on=False)
        idle = {name: each.text for name, each in results.items() if each.outcome in _DID_NOTHING}
        if len(idle) == len(results):
            return await self._end("failed", self._joined(idle))
        if idle:
            self._not_restarted = f"not restarted: {self._joined(idle)}; "
        said = self._joined({name: _result_text(each) for name, each in results.items()})
        await self._move("verifying", said)
        return None

    async def give_up(self, text: str) -> Attempt:
        """End the attempt as uncertain if a hook was called, else as cancelled."""
        touched = self.attempt.called_t is not None
        return await self._end("uncertain" if touched else "cancelled", text)

    async def _prepare(self) -> None:
        self.show("collecting evidence")
        paths = await asyncio.gather(*map(self._keep_evidence, self._names))
        await self._drain()
        self._planned = [
            each._replace(call=replace(each.call, evidence_path=path))
            for each, path in zip(self._planned, paths, strict=True)
        ]

    async def _keep_evidence(self, name: str) -> str | None:
        try:
            async with asyncio.timeout(EVIDENCE_SECONDS):
                return await self._evidence.keep(replace(self.attempt, target=name))
        except Exception as error:  # noqa: BLE001 - the restart matters more
            _log.warning("evidence_failed", attempt=self.attempt.id, target=name, error=str(error))
            return None

    async def _drain(self) -> None:
        began_s = time.monotonic()
        for name in self._names:
            self._targets.draining(name, on=True)
        while True:
            waited_s = time.monotonic() - began_s
            progress = {
                name: drain_progress(self.settings.drain, self._targets.signals(name), waited_s)
                for name in self._names
            }
            self.show(self._joined({name: text for name, (_, text) in progress.items()}))
            if all(over for over, _ in progress.values()) or self._asked_otherwise() is not None:
                return
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def _recheck(self) -> str | None:
        """Return why the hooks must not be called (again), after a new scrape, or None."""
        began_s = time.monotonic()
        waits = (self._targets.scraped_since(name, began_s) for name in self._names)
        seen = dict(zip(self._names, await asyncio.gather(*waits), strict=True))
        against = self._changed()
        if against is not None:
            return against
        if not all(seen.values()):
            unseen = ", ".join(name for name, scraped in seen.items() if not scraped)
            return f"no scrape of {unseen} has ended since the drain"
        try:
            return await self._ask_again()
        except Exception as error:  # noqa: BLE001 - any error is a refusal
            _log.exception("objection_broke", attempt=self.attempt.id)
            return f"the last check failed: {type(error).__name__}"

    async def _ask_again(self) -> str | None:
        assert self._request is not None  # noqa: S101 - only a new attempt calls hooks
        if self.lock is not None:
            # First record the call in the lock. If no hook is called, the release corrects the record.
            called = replace(self.attempt, state="calling", called_t=time.time())
            held = await self.lock.renew(called)
            if held.held is not True or not self.lock.still_ours():
                return f"the lock was lost: {held.text}"
        decision = await self._decider.decide(
            self._request, self._managed, self.attempt.id, self.lock
        )
        return None if decision.verdict == guard.ACT else f"{decision.check}: {decision.text}"

    def _changed(self) -> str | None:
        """Return why the decision no longer holds, or None."""
        against = self._asked_otherwise()
        if against is not None:
            return against
        # The guard checks that the last scrape, even a failed one, found the incident.
        silence_counts = self.attempt.trigger != "incident"
        for name, before in self._befores.items():
            text = self._targets.stale(name, None) or self._targets.replaced(
                name, before.process, silence_counts=silence_counts
            )
            if text is not None:
                again = "; ask again" if self.attempt.trigger == "manual" else ""
                return self._joined({name: text}) + again
        return None

    def _asked_otherwise(self) -> str | None:
        """Return why the request or the configuration is not that of the decision, or None."""
        if self._pending is not None and self._pending.withdrawn:
            return "the request was withdrawn"
        if {self._names[0], *self._targets.gang(self._names[0])} != set(self._names):
            return "its gang has changed"
        each = (self._reloaded(planned) for planned in self._planned)
        return next((text for text in each if text is not None), None)

    def _reloaded(self, planned: _Planned) -> str | None:
        target = planned.target
        now = self._targets.managed.get(target.name)
        if now is None:
            return f"{target.name} is no longer watched"
        if now.target != target:
            urls = f": {now.target.url}, not {target.url}" if now.target.url != target.url else ""
            return f"{target.name} is now a different target{urls}"
        if self._decider.backends.hook(now.settings.hook) is not planned.hook:
            return f"the hook of {target.name} has changed"
        return None

    async def _write_call(self) -> str | None:
        text = "the hook is called"
        called = replace(self.attempt, called_t=time.time(), state="calling", text=text)
        try:
            await self._ledger.write(called)
        except JournalError as error:
            return f"not written to the journal: {error.cause}"
        self.attempt = called
        self.show(text)
        if self.lock is not None and not self.lock.still_ours():
            return "the lock was lost while the call was being written"
        return None

    async def _call_hooks(self) -> dict[str, HookResult]:
        results: dict[str, HookResult] = {}
        due: Sequence[_Planned] = self._planned
        for retry in range(RETRIES_MAX + 1):
            if retry:
                against = await self._retry_refusal(due, results) or self.stopping
                if against is not None:
                    for name in (each.target.name for each in due):
                        text = f"{results[name].text}; not called again: {against}"
                        results[name] = replace(results[name], text=text)
                    break
            for result in await asyncio.gather(*map(self._call_hook, due)):
                results.update(result)
            due = [each for each in due if results[each.target.name].outcome == FAILED]
            if not due:
                break
        return results

    async def _retry_refusal(
        self, due: Sequence[_Planned], results: Mapping[str, HookResult]
    ) -> str | None:
        for each in due:
            self._targets.acting(each.target.name, on=False)
        await asyncio.sleep(RETRY_SECONDS)
        if any(each.outcome not in _DID_NOTHING for each in results.values()):
            # Some members were restarted, so retry the rest: half a gang cannot serve.
            lost = self.lock is not None and not self.lock.still_ours()
            return "the lock was lost" if lost else None
        return await self._recheck()

    async def _call_hook(self, planned: _Planned) -> dict[str, HookResult]:
        name = planned.target.name
        self._targets.acting(name, on=True)
        limit = _seconds_max(planned.hook)
        try:
            async with asyncio.timeout(limit):
                result = await planned.hook.restart(planned.call)
        except TimeoutError:
            text = f"the hook was cancelled after {limit:g} s"
            result = HookResult(outcome=UNCERTAIN, text=text)
        except Exception as error:  # noqa: BLE001 - it may have acted
            _log.exception("hook_broke", attempt=planned.call.attempt_id, target=name)
            text = f"the hook failed: {type(error).__name__}"
            result = HookResult(outcome=UNCERTAIN, text=text)
        result = replace(result, text=printable(result.text))
        self.show(self._joined({name: result.text}))
        return {name: result}

    async def _verify(self, called_s: float) -> Attempt:
        seen: dict[str, verify.Progress] = {}
        began_s = time.monotonic()
        while True:
            asked_s = time.monotonic()
            left = [each for each in self._names if each not in seen or seen[each].outcome is None]
            for name, scraped in (await self._wait_for_scrapes(left)).items():
                signals, since_s = self._targets.signals(name), asked_s - called_s
                if signals is None or not scraped:
                    # Without a scrape, do not count the time before this watcher started.
                    signals, since_s = signals or _UNSEEN, asked_s - began_s
                    signals = replace(signals, up=False)
                kinds = self._targets.firing_kinds(name)
                seen[name] = self._following[name].update(since_s, signals, kinds)
            text = self._joined({name: seen[name].text for name in self._befores})
            self.show(self._not_restarted + text)
            outcomes = {each.outcome for each in seen.values()}
            if verify.DID_NOT_HELP in outcomes or outcomes == {verify.HELPED}:
                outcome = verify.DID_NOT_HELP if verify.DID_NOT_HELP in outcomes else verify.HELPED
                payoff_ratio = seen[self.attempt.target].payoff_ratio
                return await self._end(outcome, self._not_restarted + text, payoff_ratio)

    async def _wait_for_scrapes(self, names: Sequence[str]) -> dict[str, bool]:
        began_s = time.monotonic()
        waits = (self._targets.next_scrape(name, SCRAPE_WAIT_SECONDS) for name in names)
        scraped = dict(zip(names, await asyncio.gather(*waits), strict=True))
        if not all(scraped.values()) or any(self._targets.signals(name) is None for name in names):
            await asyncio.sleep(max(0.0, BLIND_SECONDS - (time.monotonic() - began_s)))
        return scraped

    async def _move(self, state: str, text: str, **more: Any) -> Attempt:
        moved = replace(self.attempt, state=state, text=text, **more)
        await self._ledger.put(moved)
        self.attempt = moved
        self.show(text)
        return self.attempt

    async def _end(self, state: str, text: str, payoff_ratio: float | None = None) -> Attempt:
        return await self._move(state, text, ended_t=time.time(), payoff_ratio=payoff_ratio)

    def show(self, stage: str) -> None:
        self._ledger.show(self.attempt, stage)
        for name in self._names:
            self._targets.mark_changed(name)

    def _joined(self, said: Mapping[str, str]) -> str:
        if len(self._names) == 1:
            return next(iter(said.values()), "")
        return "; ".join(f"{name}: {text}" for name, text in said.items())


def _seconds_max(hook: Hook) -> float:
    return hook.timeout_seconds + HOOK_GRACE_SECONDS


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
