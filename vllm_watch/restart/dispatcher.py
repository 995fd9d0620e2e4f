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

from vllm_watch.errors import JournalError
from vllm_watch.restart import guard
from vllm_watch.restart.attempts import Attempts
from vllm_watch.restart.facts import Answer, Facts
from vllm_watch.restart.guard import Decision
from vllm_watch.restart.hooks.base import HookCall
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.means import Means
from vllm_watch.restart.request import RestartRequest
from vllm_watch.restart.standing import Standing
from vllm_watch.restart.world import World
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Entry, Journal

_log = structlog.get_logger()

ASK_SECONDS = 5.0
"""From one asking of the guard to the next while a wish waits; blockers are asked no more often."""

ASK_HOOK_SECONDS = 15.0
"""For a hook to say whether it can: it looks at processes and asks a supervisor, and changes nothing."""

AGAIN_SECONDS = 60.0
"""From an attempt that was given up before the call, or could not be written down, to the next asking:
what was against it, and a readiness gate that was closed for nothing, must not come and go every few
seconds."""

WISHES_MAX = 1000
HISTORY_SECONDS = 7 * 86400.0
"""What of the journal the guard is shown: budgets look back a day, breakers at the last attempt."""


@dataclass(slots=True)
class Wish:
    """One request that waits or is being fulfilled, and what was last decided of it."""

    request: RestartRequest
    decision: Decision | None = None
    after_s: float = 0.0  # monotonic; before it nobody is asked
    attempt_id: str | None = None  # the attempt that fulfils it; it stays, and can be withdrawn

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
        self.attempts = Attempts(world, journal, means, self._over)
        self._world = world
        self._journal = journal
        self._standing = standing
        self._means = means
        self._wishes: dict[str, Wish] = {}
        self._woken = asyncio.Event()
        self._resumed = False
        self._not_resumed = ""  # why not, as it was last said
        # From the facts to the intent on disk: two wishes must not both see that nothing is under way.
        self._deciding = asyncio.Lock()
        self.blocked: Counter[tuple[str, str]] = Counter()  # target, blocker

    # --- wishes

    def ask(self, request: RestartRequest) -> None:
        """Take a wish in; the same one twice is one. It is asked about until it is void."""
        key = key_of(request)
        if key in self._wishes:
            return
        if len(self._wishes) >= WISHES_MAX:
            _log.error("restart_not_taken_in", target=request.target, waiting=WISHES_MAX)
            return
        self._wishes[key] = Wish(request)
        self._woken.set()

    def drop(self, incident_id: str) -> None:
        """The incident has ended: nobody wants a restart for it any more."""
        for key, wish in list(self._wishes.items()):
            if wish.request.incident_id == incident_id:
                del self._wishes[key]
                self._world.changed(wish.request.target)

    def withdraw(self, request: RestartRequest) -> None:
        """Nobody wants this any more."""
        if self._wishes.pop(key_of(request), None) is not None:
            self._world.changed(request.target)

    def wake(self) -> None:
        """Something has changed that a wish may wait for: ask about all of them now."""
        self._woken.set()

    def waiting(self, incident_id: str) -> Wish | None:
        """The wish of this incident that waits."""
        wishes = (wish for wish in self._wishes.values() if wish.attempt_id is None)
        return next((wish for wish in wishes if wish.request.incident_id == incident_id), None)

    def of_target(self, target: str) -> list[Wish]:
        """What waits for this target, oldest first."""
        return [
            wish
            for wish in self._wishes.values()
            if wish.request.target == target and wish.attempt_id is None
        ]

    async def ask_now(self, request: RestartRequest) -> tuple[Decision, Attempt | None]:
        """Decide about a person's request at once; it does not wait for another moment."""
        return await self._consider(Wish(request))

    async def run(self) -> None:
        """Ask about every wish again and again, until cancelled."""
        while True:
            await self._go_on()
            for wish in list(self._wishes.values()):
                asleep = wish.attempt_id is not None or time.monotonic() < wish.after_s
                if wish.key in self._wishes and not asleep:
                    await self._look_at(wish)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    await self._woken.wait()
            self._woken.clear()

    async def _go_on(self) -> None:
        try:
            if self._resumed:
                await self.attempts.go_on()
            else:
                await self.resume()
        except Exception:  # noqa: BLE001 - wishes are to be answered all the same
            _log.exception("restarts_not_taken_up")

    async def _look_at(self, wish: Wish) -> None:
        try:
            await self._consider(wish)
        except Exception:  # noqa: BLE001 - one wish's trouble must not keep the others waiting
            _log.exception("restart_not_decided", target=wish.request.target)

    async def resume(self) -> None:
        """Take up what an earlier run of the watcher left; `run` tries again what a bad disk prevents."""
        await self._standing.load(time.time())
        try:
            await self.attempts.resume()
        except JournalError as error:
            if error.cause != self._not_resumed:
                self._not_resumed = error.cause
                _log.error("journal_not_resumed", cause=error.cause, remedy=error.remedy)
            return
        self._resumed = True

    # --- deciding

    async def _consider(self, wish: Wish) -> tuple[Decision, Attempt | None]:
        request = wish.request
        target = self._world.target(request.target)
        if target is None:
            self._wishes.pop(wish.key, None)
            self._world.changed(request.target)
            text = "it is not watched any more"
            return Decision(verdict=guard.REFUSE, gate="trigger", text=text), None
        if request.expires_t is not None and time.time() >= request.expires_t:
            self._wishes.pop(wish.key, None)
            text = f"it was not wanted any more after {guard.clock(request.expires_t)}"
            late = Decision(verdict=guard.REFUSE, gate="trigger", text=text)
            await self._note(wish, late)
            self._world.changed(request.target)
            return late, None
        decision, attempt = await self._decide_and_begin(wish, target)
        if decision.verdict == guard.OBSERVE or self._is_void(request):
            self._wishes.pop(wish.key, None)
        self._world.changed(request.target)
        return decision, attempt

    def _is_void(self, request: RestartRequest) -> bool:
        """Has the incident ended, without anybody saying so?"""
        if request.incident_id is None:
            return False
        incident = self._world.incident(request.incident_id)
        return incident is None or not incident.open

    def _over(self, attempt: Attempt) -> None:
        """One that was given up before the call has fulfilled no wish."""
        for key, wish in list(self._wishes.items()):
            if wish.attempt_id != attempt.id:
                continue
            if attempt.state != "cancelled":
                del self._wishes[key]
            else:
                wish.attempt_id, wish.after_s = None, time.monotonic() + AGAIN_SECONDS

    async def _decide_and_begin(
        self, wish: Wish, target: Target
    ) -> tuple[Decision, Attempt | None]:
        request, settings = wish.request, self._world.settings(target.name)
        lock, attempt_id, attempt = self._means.lock(settings), secrets.token_hex(8), None
        try:
            async with self._deciding:
                decision = await self._decide(request, target, settings, lock, attempt_id)
                await self._note(wish, decision)
                if decision.verdict == guard.ACT:
                    attempt = await self._begin(request, target, settings, lock, attempt_id)
        except JournalError as error:
            _log.error("restart_not_possible", target=request.target, cause=error.cause)
            text = f"the journal cannot be written: {error.cause}"
            decision = Decision(verdict=guard.REFUSE, gate="journal", text=text)
            await self._note(wish, decision)
            wish.after_s = time.monotonic() + AGAIN_SECONDS
        finally:
            if attempt is None and lock is not None:
                await lock.release(used=False)
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
        refusal = await self._journal_refusal(now_t)
        with contextlib.suppress(JournalError):
            kept = await self._journal.attempts(target.group, now_t - HISTORY_SECONDS)
            others = (each for each in kept if each.id != attempt_id)
            attempts = self.attempts.newest(others)
        busy = self.attempts.busy(target.name)
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
            busy=None if busy == attempt_id else busy,
            breaker_reset_t=self._standing.breaker_reset_t,
            journal_refusal=refusal,
            pause=self._standing.pause(now_t),
            incident=incident,
            load_seconds=self._world.load_seconds(target.name),
            start_failure=self._world.start_failure(target.name),
            peers=self._world.peers(target.name),
            version_first_t=self._standing.version_first_t,
        )

    async def _journal_refusal(self, now_t: float) -> str | None:
        """Why nothing can be written down, or what was written is not all known, in words."""
        if not self._resumed:
            await self.resume()
        else:
            await self._standing.load(now_t)
        if self._journal.trouble is not None:
            await self._journal.probe()
        if self._journal.trouble is not None:
            return self._journal.trouble
        if not (self._resumed and self._standing.known):
            return "what was done and set before cannot be read"
        return self._standing.history_lost

    async def _ask_hook(self, name: str, call: HookCall) -> Answer:
        hook = self._means.hook(name)
        if hook is None:
            return Answer(name=name, free=False, text="it is not configured (any more)")
        try:
            async with asyncio.timeout(ASK_HOOK_SECONDS):
                refusal = await hook.refusal(call)
        except TimeoutError:
            return Answer(name=name, free=None, text="it did not say in time whether it could")
        except Exception as error:  # noqa: BLE001 - a hook that cannot even say so is not called
            _log.exception("hook_broke", target=call.target, hook=name)
            return Answer(name=name, free=None, text=f"it broke: {type(error).__name__}")
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

    async def _begin(
        self, request: RestartRequest, target: Target, settings: RestartSettings,
        lock: Lock | None, attempt_id: str,
    ) -> Attempt:  # fmt: skip
        hook = self._means.hook(settings.hook)
        assert hook is not None  # noqa: S101 - it was asked a moment ago, and said yes
        wish = self._wishes.get(key_of(request))

        async def objection() -> str | None:
            if wish is not None and self._wishes.get(wish.key) is not wish:
                return "nobody wants it any more"
            if lock is not None:
                held = await lock.renew()
                if held.held is not True or not lock.still_ours():
                    return f"the lock was lost: {held.text}"
            decision = await self._decide(request, target, settings, lock, attempt_id)
            return None if decision.verdict == guard.ACT else f"{decision.gate}: {decision.text}"

        attempt = await self.attempts.begin(
            request, target, settings, attempt_id, hook, lock, objection
        )
        if wish is not None:
            wish.attempt_id = attempt_id
        return attempt
