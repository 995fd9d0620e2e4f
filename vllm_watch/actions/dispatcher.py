"""Takes wishes for restarts, asks the guard until it says yes or they are void, and carries them out.

A wish lasts as long as its reason: an incident's until it ends, a schedule's until it is too late, a
person's is answered at once. What is decided is written down whenever it changes.
"""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from dataclasses import dataclass, replace

import structlog

from vllm_watch.actions import guard
from vllm_watch.actions.attempt import Attempt
from vllm_watch.actions.attempts import Attempts
from vllm_watch.actions.facts import Answer, Facts
from vllm_watch.actions.guard import Decision
from vllm_watch.actions.hooks.base import HookCall
from vllm_watch.actions.journal import Entry, Journal
from vllm_watch.actions.locks.base import Lock
from vllm_watch.actions.means import Means
from vllm_watch.actions.request import RestartRequest
from vllm_watch.actions.standing import Standing
from vllm_watch.actions.world import World
from vllm_watch.errors import JournalError
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings

_log = structlog.get_logger()

ASK_SECONDS = 5.0
"""From one asking of the guard to the next while a wish waits; blockers are asked no more often."""

WISHES_MAX = 1000
HISTORY_SECONDS = 7 * 86400.0
"""What of the journal the guard is shown: budgets look back a day, breakers at the last attempt."""


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


class Dispatcher:
    """One watcher's restarts."""

    def __init__(self, world: World, journal: Journal, standing: Standing, means: Means) -> None:
        self.attempts = Attempts(world, journal)
        self._world = world
        self._journal = journal
        self._standing = standing
        self._means = means
        self._wishes: dict[str, Wish] = {}
        self._woken = asyncio.Event()
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
                self._world.changed(wish.request.target)

    def waiting(self, incident_id: str) -> Wish | None:
        """The wish of this incident."""
        wishes = self._wishes.values()
        return next((wish for wish in wishes if wish.request.incident_id == incident_id), None)

    def of_target(self, target: str) -> list[Wish]:
        """What waits for this target, oldest first."""
        return [wish for wish in self._wishes.values() if wish.request.target == target]

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

    async def resume(self) -> None:
        """Take up what an earlier run of the watcher left. Never raises."""
        try:
            await self._standing.load(time.time())
            await self.attempts.resume()
        except (JournalError, TypeError, KeyError, ValueError) as error:
            _log.error("journal_not_resumed", error=str(error))

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
            await lock.release(used=False)
        expired = request.expires_t is not None and time.time() >= request.expires_t
        if decision.verdict == guard.OBSERVE or expired:
            self._wishes.pop(wish.key, None)
        self._world.changed(request.target)
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
                    settings.hook, self.attempts.call(request, target, attempt_id)
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
                self.attempts.outcomes[request.target, request.trigger, "dry_run"] += 1
                dry = self.attempts.make(request, secrets.token_hex(8), "dry_run")
                await self._journal.write(replace(dry, ended_t=dry.began_t, text=decision.text))

    def _begin(
        self, request: RestartRequest, target: Target, settings: RestartSettings,
        lock: Lock | None, attempt_id: str,
    ) -> Attempt:  # fmt: skip
        hook = self._means.hook(settings.hook)
        assert hook is not None  # noqa: S101 - it was asked a moment ago, and said yes

        async def objection() -> str | None:
            if lock is not None:
                held = await lock.renew()
                if held.held is not True or not lock.still_ours():
                    return f"the lock was lost: {held.text}"
            decision = await self._decide(request, target, settings, lock, attempt_id)
            return None if decision.verdict == guard.ACT else f"{decision.gate}: {decision.text}"

        return self.attempts.begin(request, target, settings, attempt_id, hook, lock, objection)
