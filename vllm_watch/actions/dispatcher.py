"""Takes wishes for restarts, asks the guard until it says yes or they are void, and carries them out.

A wish lasts as long as its reason: an incident's until it ends, a schedule's until it is too late, a
person's is answered at once. What is decided is written down whenever it changes.
"""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import structlog

from vllm_watch.actions import drain, guard, verify
from vllm_watch.actions.attempt import Attempt
from vllm_watch.actions.facts import Answer, Facts
from vllm_watch.actions.guard import Decision
from vllm_watch.actions.hooks.base import REFUSED, Finding, Hook, HookCall, HookResult
from vllm_watch.actions.journal import Entry, Journal
from vllm_watch.actions.locks.base import Lock
from vllm_watch.actions.policy import Policy
from vllm_watch.actions.request import RestartRequest
from vllm_watch.actions.restart import Restart, Steps
from vllm_watch.actions.standing import Standing
from vllm_watch.actions.world import World
from vllm_watch.errors import JournalError
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import BlockersSettings, RestartSettings
from vllm_watch.signals.records import TargetSignals

_log = structlog.get_logger()

ASK_SECONDS = 5.0
"""From one asking of the guard to the next while a wish waits; blockers are asked no more often."""

WISHES_MAX = 1000
HISTORY_SECONDS = 7 * 86400.0
"""What of the journal the guard is shown: budgets look back a day, breakers at the last attempt."""

RENEW_SHARE = 1 / 3
"""Of its TTL a lock is renewed: two renewals may fail before it is lost."""


@dataclass(slots=True)
class Wish:
    """One request that waits, and what was last decided of it."""

    request: RestartRequest
    decision: Decision | None = None

    @property
    def key(self) -> str:
        return key_of(self.request)


def key_of(request: RestartRequest) -> str:
    """What makes two requests one: the same incident, or the same schedule, of the same server."""
    what = request.incident_id or request.schedule or request.trigger
    return f"{request.target} {request.trigger} {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the dispatcher acts with; the daemon builds it from the configuration."""

    hook: Callable[[str], Hook | None]  # by its name
    lock: Callable[[RestartSettings], Lock | None]  # a new one for each attempt
    ask_blockers: Callable[[BlockersSettings], Awaitable[tuple[Answer, ...]]]
    policy: Callable[[RestartSettings], Policy]
    holder: str  # who we are among watchers: host and process


class Dispatcher:
    """One watcher's restarts."""

    def __init__(self, world: World, journal: Journal, standing: Standing, means: Means) -> None:
        self._world = world
        self._journal = journal
        self._standing = standing
        self._means = means
        self._wishes: dict[str, Wish] = {}
        self._running: dict[str, asyncio.Task[None]] = {}  # attempts, by target
        self._attempts: dict[str, Attempt] = {}  # the last of each target, as it stands
        self._stages: dict[str, str] = {}  # what it does now, in words
        self._woken = asyncio.Event()
        self.restarts: Counter[tuple[str, str, str]] = Counter()  # target, trigger, outcome
        self.blocked: Counter[tuple[str, str]] = Counter()  # target, blocker

    # --- wishes

    def ask(self, request: RestartRequest) -> None:
        """Take a wish in; the same one twice is one. It is asked about until it is void."""
        key = key_of(request)
        if key not in self._wishes and len(self._wishes) < WISHES_MAX:
            self._wishes[key] = Wish(request)
            self._woken.set()

    def drop(self, incident_id: str) -> None:
        """The incident has ended: nobody wants a restart for it any more."""
        for key, wish in list(self._wishes.items()):
            if wish.request.incident_id == incident_id:
                del self._wishes[key]
                self._show(wish.request.target)

    def waiting(self, incident_id: str) -> Wish | None:
        """The wish of this incident."""
        wishes = self._wishes.values()
        return next((wish for wish in wishes if wish.request.incident_id == incident_id), None)

    def of_target(self, target: str) -> list[Wish]:
        """What waits for this target, oldest first."""
        return [wish for wish in self._wishes.values() if wish.request.target == target]

    def attempt(self, target: str) -> tuple[Attempt, str] | None:
        """The target's last attempt, and what it does now or how it ended, in words."""
        known = self._attempts.get(target)
        return None if known is None else (known, self._stages.get(target, known.text))

    async def ask_now(self, request: RestartRequest) -> tuple[Decision, Attempt | None]:
        """Decide about a person's request at once; it does not wait for another moment."""
        decision, attempt = await self._consider(Wish(request))
        return decision, attempt

    async def run(self) -> None:
        """Ask about every wish again and again, until cancelled."""
        while True:
            for wish in list(self._wishes.values()):
                if wish.key not in self._wishes:
                    continue
                try:
                    await self._consider(wish)
                except JournalError as error:
                    _log.error(
                        "restart_not_possible", target=wish.request.target, cause=error.cause
                    )
                except Exception:  # noqa: BLE001 - one wish's trouble must not keep the others waiting
                    _log.exception("restart_not_decided", target=wish.request.target)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    await self._woken.wait()
            self._woken.clear()

    async def stop(self) -> None:
        """End what waits. An attempt that is under way is left as the journal knows it."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- deciding

    async def _consider(self, wish: Wish) -> tuple[Decision, Attempt | None]:
        request = wish.request
        target = self._world.target(request.target)
        if target is None:
            self._wishes.pop(wish.key, None)
            text = "it is not watched any more"
            return Decision(verdict=guard.REFUSE, gate="trigger", text=text), None
        settings = self._world.settings(request.target)
        lock = self._means.lock(settings)
        attempt_id = secrets.token_hex(8)
        decision = await self._decide(request, target, settings, lock, attempt_id)
        await self._note(wish, decision)
        attempt = None
        if decision.verdict == guard.ACT:
            self._wishes.pop(wish.key, None)
            attempt = self._begin(request, target, settings, lock, attempt_id)
        elif lock is not None and lock.still_ours():
            await lock.release()
        expired = request.expires_t is not None and time.time() >= request.expires_t
        if decision.verdict == guard.OBSERVE or expired:
            self._wishes.pop(wish.key, None)
        self._show(request.target)
        return decision, attempt

    async def _decide(
        self, request: RestartRequest, target: Target, settings: RestartSettings,
        lock: Lock | None, attempt_id: str,
    ) -> Decision:  # fmt: skip
        policy = self._means.policy(settings)
        facts = await self._facts(request, target, settings, attempt_id)
        while True:
            decision = guard.decide(request, policy, facts)
            if decision.verdict != guard.ASK:
                return decision
            if decision.gate == "hook":
                answer = await self._ask_hook(
                    settings.hook, self._call(request, target, attempt_id)
                )
                facts = replace(facts, hook_answer=answer)
            elif decision.gate == "blockers":
                answers = await self._means.ask_blockers(settings.blockers)
                facts = replace(facts, blockers=answers)
            else:
                facts = replace(facts, lock=await self._take(lock, attempt_id))

    async def _facts(
        self, request: RestartRequest, target: Target, settings: RestartSettings, attempt_id: str
    ) -> Facts:
        now_t, signals = time.time(), self._world.signals(target.name)
        attempts: tuple[Attempt, ...] | None = None
        with contextlib.suppress(JournalError):
            if not self._standing.known:
                await self._standing.load(now_t)
            known = await self._journal.attempts(target.group, now_t - HISTORY_SECONDS)
            attempts = tuple(each for each in known if each.id != attempt_id)
        incident = None
        if request.incident_id is not None:
            incident = self._world.incident(request.incident_id)
            if incident is not None:
                silenced = self._standing.silenced(request.incident_id, now_t)
                incident = replace(incident, silenced=silenced)
        return Facts(
            t=now_t,
            state=None if signals is None else signals.state,
            hook=settings.hook or None,
            attempts=attempts,
            breaker_reset_t=self._standing.breaker_reset_t,
            journal_refusal=self._journal.trouble or self._standing.history_lost,
            pause=self._standing.pause(now_t),
            incident=incident,
            load_seconds=self._world.load_seconds(target.name),
            start_failure=self._world.start_failure(target.name),
            peers=self._world.peers(target.name),
            version_first_t=self._standing.version_first_t,
        )

    async def _ask_hook(self, name: str, call: HookCall) -> Answer:
        hook = self._means.hook(name)
        if hook is None:
            return Answer(name=name, free=False, text="it is not configured (any more)")
        try:
            async with asyncio.timeout(hook.timeout_seconds):
                refusal = await hook.refusal(call)
        except TimeoutError:
            return Answer(name=name, free=None, text="it did not say in time whether it could")
        return Answer(name=name, free=refusal is None, text=refusal or "it can")

    async def _take(self, lock: Lock | None, attempt_id: str) -> Answer:
        if lock is None:
            return Answer(name="lock", free=None, text="it could not be made")
        held = await lock.acquire(self._means.holder, attempt_id)
        return Answer(name="lock", free=held.held, text=held.text)

    async def _note(self, wish: Wish, decision: Decision) -> None:
        """Write down and count what is new about this wish; a dry run is on disk as an attempt."""
        request, before = wish.request, wish.decision
        wish.decision = decision
        if before is not None and (before.verdict, before.gate) == (
            decision.verdict,
            decision.gate,
        ):
            return
        _log.info(
            "restart_decision", target=request.target, trigger=request.trigger, verdict=decision.verdict,
            gate=decision.gate, because=decision.text, incident=request.incident_id,
        )  # fmt: skip
        if decision.gate is not None:
            self.blocked[request.target, decision.gate] += 1
        with contextlib.suppress(JournalError):
            await self._journal.note(Entry(
                t=time.time(), actor=request.actor, source=request.trigger, action="decision",
                target=request.target, reason=request.reason,
                before=before.verdict if before else "", after=f"{decision.verdict}: {decision.text}",
            ))  # fmt: skip
            if decision.verdict == guard.OBSERVE:
                self.restarts[request.target, request.trigger, "dry_run"] += 1
                dry = self._attempt(request, secrets.token_hex(8), "dry_run")
                await self._journal.write(replace(dry, ended_t=dry.began_t, text=decision.text))

    # --- acting

    def _begin(
        self, request: RestartRequest, target: Target, settings: RestartSettings,
        lock: Lock | None, attempt_id: str,
    ) -> Attempt:  # fmt: skip
        attempt = self._attempt(request, attempt_id, "intent")
        hook = self._means.hook(settings.hook)
        assert hook is not None  # noqa: S101 - it was asked a moment ago, and said yes
        restart = self._restart(attempt, request, target, settings, hook, lock)
        self._attempts[target.name] = attempt
        self._running[target.name] = asyncio.create_task(
            self._carry(restart, restart.run(), target.name, settings, lock),
            name=f"restart {target.name}",
        )
        return attempt

    def _restart(
        self, attempt: Attempt, request: RestartRequest, target: Target, settings: RestartSettings,
        hook: Hook, lock: Lock | None,
    ) -> Restart:  # fmt: skip
        name, world = target.name, self._world

        async def objection() -> str | None:
            if lock is not None:
                held = await lock.renew()
                if held.held is not True or not lock.still_ours():
                    return f"the lock was lost: {held.text}"
            decision = await self._decide(request, target, settings, lock, attempt.id)
            return None if decision.verdict == guard.ACT else f"{decision.gate}: {decision.text}"

        async def drained() -> str:
            world.draining(name, on=True)
            return await drain.wait(
                settings.drain, lambda: world.signals(name), lambda text: self._tell(attempt, text)
            )

        load_seconds = world.load_seconds(name)
        return Restart(
            attempt, self._call(request, target, attempt.id), hook=hook, journal=self._journal,
            server=_Server(world, name),
            steps=Steps(
                gather_evidence=world.evidence, drain=drained,
                undrain=lambda: world.draining(name, on=False), objection=objection, tell=self._tell,
            ),
            make_verification=lambda before: verify.Verification(
                before, start_seconds=settings.verify.start_seconds,
                settle_seconds=settings.verify.settle_seconds, load_seconds_max=load_seconds,
            ),
        )  # fmt: skip

    async def _carry(
        self, restart: Restart, work: Coroutine[Any, Any, Attempt], name: str,
        settings: RestartSettings, lock: Lock | None,
    ) -> None:  # fmt: skip
        renewing = asyncio.create_task(_renew(lock))
        self._world.restarting(name, on=True)
        try:
            ended = await work
            self.restarts[name, ended.trigger, ended.state] += 1
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
            self._attempts[name] = replace(restart.attempt, state="cancelled", text=error.cause)
        finally:
            renewing.cancel()
            self._running.pop(name, None)
            self._stages.pop(name, None)
            self._world.restarting(name, on=False)
            if lock is not None:
                await lock.release(settings.lock.release_delay_seconds)
            self._show(name)

    def _attempt(self, request: RestartRequest, attempt_id: str, state: str) -> Attempt:
        return Attempt(
            id=attempt_id, target=request.target, group=request.group, trigger=request.trigger,
            hook=self._world.settings(request.target).hook, reason=request.reason,
            actor=request.person or request.actor, state=state, began_t=time.time(),
            incident_id=request.incident_id,
        )  # fmt: skip

    def _call(self, request: RestartRequest, target: Target, attempt_id: str) -> HookCall:
        signals = self._world.signals(target.name)
        return HookCall(
            attempt_id=attempt_id, target=target.name, url=target.url, group=target.group,
            trigger=request.trigger, reason=request.reason, engine=request.engine,
            incident_id=request.incident_id, kind=request.kind, cause=request.cause,
            namespace=target.namespace or None, pod=target.pod or None, node=target.node or None,
            process_start_time=None if signals is None else signals.process_start_time,
        )  # fmt: skip

    # --- after a restart of the watcher

    async def resume(self) -> None:
        """Take up what an earlier run of the watcher left: nothing is called again. Never raises."""
        try:
            await self._standing.load(time.time())
            left = [attempt for attempt in await self._journal.attempts() if attempt.open]
            for attempt in left:
                await self._take_up(attempt)
        except (JournalError, TypeError, KeyError, ValueError) as error:
            _log.error("journal_not_resumed", error=str(error))

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
        self._attempts[attempt.target] = attempt
        target = self._world.target(attempt.target)
        if target is None or attempt.before is None:
            return
        settings = self._world.settings(attempt.target)
        request = RestartRequest(
            target=attempt.target, group=attempt.group, trigger=attempt.trigger,
            reason=attempt.reason, asked_t=attempt.began_t, incident_id=attempt.incident_id,
            actor=attempt.actor,
        )  # fmt: skip
        restart = self._restart(attempt, request, target, settings, _Nothing(), None)
        before = verify.Before.from_json(attempt.before)
        since_s = max(0.0, now_t - (attempt.called_t or now_t))
        self._running[target.name] = asyncio.create_task(
            self._carry(restart, restart.resume(before, since_s), target.name, settings, None),
            name=f"verify {target.name}",
        )

    def _tell(self, attempt: Attempt, text: str) -> None:
        self._attempts[attempt.target] = attempt
        self._stages[attempt.target] = text
        self._show(attempt.target)

    def _show(self, target: str) -> None:
        self._world.changed(target)


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


class _Nothing:
    """The hook of an attempt that is only verified: it is never called."""

    timeout_seconds = 1.0

    async def refusal(self, call: HookCall) -> str | None:
        return "an attempt that was taken up is never called again"

    async def restart(self, call: HookCall) -> HookResult:
        return HookResult(
            outcome=REFUSED, text="an attempt that was taken up is never called again"
        )

    async def rehearse(self, call: HookCall) -> list[Finding]:
        return []


async def _renew(lock: Lock | None) -> None:
    """Keep a lock while an attempt is under way; what it finds is asked before the hook is called."""
    while lock is not None:
        await asyncio.sleep(lock.ttl_seconds * RENEW_SHARE)
        held = await lock.renew()
        if held.held is not True:
            _log.error("lock_not_renewed", because=held.text)
