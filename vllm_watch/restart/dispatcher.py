"""Queue restart requests. The guard (guard.py) is asked until it agrees or the reason is gone."""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from dataclasses import replace

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import guard
from vllm_watch.restart.attempts import Attempts
from vllm_watch.restart.backends import Backends
from vllm_watch.restart.checks import clock, trouble_over
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.decider import Decider, PendingRequest
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.restart.facts import RestartRequest
from vllm_watch.restart.guard import Decision
from vllm_watch.restart.targets import ManagedTarget, Targets
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.support.waiting import happens

_log = structlog.get_logger()

ASK_SECONDS = 5.0
"""Seconds between decisions on a waiting request."""

AGAIN_SECONDS = 60.0
"""The next try begins this many seconds after a cancelled attempt, so that the readiness probe does not flap."""

REQUESTS_MAX = 1000


class Dispatcher:
    """Decides on requests and starts attempts, one decision at a time."""

    def __init__(
        self, targets: Targets, journal: Journal, controls: Controls, backends: Backends,
        evidence: EvidenceStore,
    ) -> None:  # fmt: skip
        self._decider = Decider(targets, journal, controls, backends)
        self.attempts = Attempts(self._decider, evidence, self._attempt_ended)
        self.blocked: Counter[tuple[str, str]] = Counter()  # target, check
        self._targets = targets
        self._journal = journal
        self._controls = controls
        self._backends = backends
        self._requests: dict[str, PendingRequest] = {}
        self._woken = asyncio.Event()
        # This lock is held until the intent is on disk, so that two requests cannot both start an attempt.
        self._deciding = asyncio.Lock()

    def submit(self, request: RestartRequest) -> None:
        if request.key in self._requests:
            return
        if len(self._requests) >= REQUESTS_MAX:
            _log.error("restart_request_dropped", target=request.target, waiting=REQUESTS_MAX)
            return
        self._requests[request.key] = PendingRequest(request)
        self._woken.set()

    def withdraw(self, request: RestartRequest) -> None:
        if self._drop(request):
            self._targets.mark_changed(request.target)

    def _drop(self, request: RestartRequest) -> bool:
        pending = self._requests.pop(request.key, None)
        if pending is not None:
            pending.withdrawn = True
        return pending is not None

    def trouble_over(self, incident_id: str) -> None:
        self._controls.void_approvals(incident_id)
        for pending in list(self._requests.values()):
            if pending.request.incident_id == incident_id:
                self.withdraw(pending.request)

    def wake(self) -> None:
        self._woken.set()

    def waiting(self, target: str) -> list[PendingRequest]:
        return [each for each in self._waiting() if each.request.target == target]

    def waiting_for(self, incident_id: str) -> PendingRequest | None:
        found = (each for each in self._waiting() if each.request.incident_id == incident_id)
        return next(found, None)

    def _waiting(self) -> list[PendingRequest]:
        return [each for each in self._requests.values() if each.attempt_id is None]

    async def decide_now(self, request: RestartRequest) -> tuple[Decision, Attempt | None]:
        return await self._consider(PendingRequest(request))

    async def run(self) -> None:
        while True:
            try:
                await self._resume_or_retry()
            except Exception:  # noqa: BLE001 - requests must still be answered
                _log.exception("restarts_not_resumed")
            for pending in list(self._requests.values()):
                asleep = pending.attempt_id is not None or time.monotonic() < pending.after_s
                if asleep or pending.request.key not in self._requests:
                    continue
                try:
                    await self._consider(pending)
                except Exception:  # noqa: BLE001 - one request must not block the others
                    _log.exception("restart_not_decided", target=pending.request.target)
            await happens(self._woken, ASK_SECONDS)
            self._woken.clear()

    async def _resume_or_retry(self) -> None:
        if self.attempts.ledger.resumed:
            await self.attempts.retry()
        else:
            await self.resume()

    async def resume(self) -> None:
        await self._controls.load(time.time())
        await self.attempts.resume()

    async def _consider(self, pending: PendingRequest) -> tuple[Decision, Attempt | None]:
        request, attempt = pending.request, None
        managed = self._targets.managed.get(request.target)
        if managed is None:
            void, decision = True, _refused("trigger", "it is no longer watched")
        elif request.expires_t is not None and time.time() >= request.expires_t:
            text = f"the request expired at {clock(request.expires_t)}"
            void, decision = True, _refused("trigger", text)
            await self._note(pending, decision)
        else:
            decision, attempt = await self._decide_and_begin(pending, managed)
            incident = self._targets.incident(request.incident_id)
            over = request.incident_id is not None and (
                incident is None or trouble_over(incident) is not None
            )
            void = decision.verdict == guard.OBSERVE or over
        if void:
            self._drop(request)
        self._targets.mark_changed(request.target)
        return decision, attempt

    async def _decide_and_begin(
        self, pending: PendingRequest, managed: ManagedTarget
    ) -> tuple[Decision, Attempt | None]:
        lock, attempt_id = self._backends.lock(managed.settings.lock), secrets.token_hex(8)
        attempt = None
        pending.request = self._decider.without_revoked(pending.request)
        try:
            async with self._deciding:
                if not self.attempts.ledger.resumed:
                    await self.resume()
                request = pending.request
                decision = await self._decider.decide(request, managed, attempt_id, lock)
                await self._note(pending, decision)
                if decision.verdict == guard.ACT:
                    queued = self._requests.get(request.key)
                    attempt = await self.attempts.begin(
                        request, managed, attempt_id, lock, decision.befores, queued
                    )
                    if queued is not None:
                        queued.attempt_id = attempt_id
                elif lock is not None and lock.still_ours():
                    # The guard refused because of attempts recorded in the lock, so retry later.
                    pending.after_s = time.monotonic() + AGAIN_SECONDS
        except JournalError as error:
            _log.error("restart_not_possible", target=pending.request.target, cause=error.cause)
            decision = _refused("journal", f"the journal cannot be written: {error.cause}")
            await self._note(pending, decision)
            pending.after_s = time.monotonic() + AGAIN_SECONDS
        finally:
            if attempt is None and lock is not None:
                await lock.release(used=False)
        return decision, attempt

    def _attempt_ended(self, attempt: Attempt) -> None:
        if attempt.spent and attempt.incident_id is not None:
            self._controls.void_approvals(attempt.incident_id, attempt.target)
        served = {each for name in attempt.names for each in self._targets.same_engine(name)}
        for pending in list(self._requests.values()):
            if pending.attempt_id == attempt.id and attempt.state == "cancelled":
                pending.attempt_id, pending.after_s = None, time.monotonic() + AGAIN_SECONDS
            elif pending.attempt_id == attempt.id:
                self._drop(pending.request)
            elif attempt.state == "helped" and pending.request.target in served:
                self.withdraw(pending.request)
                _log.info(
                    "restart_request_done", target=pending.request.target,
                    trigger=pending.request.trigger, attempt=attempt.id,
                )  # fmt: skip

    async def _note(self, pending: PendingRequest, decision: Decision) -> None:
        request, before, pending.decision = pending.request, pending.decision, decision
        if before is not None and (before.verdict, before.check) == (
            decision.verdict,
            decision.check,
        ):
            return
        _log.info(
            "restart_decision", target=request.target, trigger=request.trigger, verdict=decision.verdict,
            gate=decision.check, because=decision.text, incident=request.incident_id,
        )  # fmt: skip
        if decision.check is not None:
            self.blocked[request.target, decision.check] += 1
        with contextlib.suppress(JournalError):
            await self._journal.note(Entry(
                t=time.time(), actor=request.actor, source=request.trigger, action="decision",
                target=request.target, reason=request.reason,
                before=before.verdict if before else "", after=f"{decision.verdict}: {decision.text}",
            ))  # fmt: skip
            if decision.verdict == guard.OBSERVE:
                self.attempts.outcomes[request.target, request.trigger, "dry_run"] += 1
                managed, now_t = self._targets.managed.get(request.target), time.time()
                hook = managed.settings.hook if managed is not None else ""
                attempt = request.attempt(secrets.token_hex(8), "dry_run", hook, now_t)
                await self._journal.write(replace(attempt, ended_t=now_t, text=decision.text))


def _refused(check: str, text: str) -> Decision:
    return Decision(guard.REFUSE, check, text)
