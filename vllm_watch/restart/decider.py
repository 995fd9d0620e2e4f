"""Collect the input of the guard (guard.py): facts, and the answers of hook, blockers, gang and lock."""

import asyncio
import time
from dataclasses import dataclass, replace

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart import guard
from vllm_watch.restart.backends import Backends
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.facts import Answer, Facts, RestartRequest
from vllm_watch.restart.guard import Decision
from vllm_watch.restart.hooks.base import HookCall
from vllm_watch.restart.ledger import AHEAD_SECONDS, Ledger
from vllm_watch.restart.locks.base import Held, Lock
from vllm_watch.restart.schedule import condition
from vllm_watch.restart.targets import ManagedTarget, Targets, another
from vllm_watch.restart.verify import Before
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal, approval
from vllm_watch.support.visible import printable

_log = structlog.get_logger()

ASK_HOOK_SECONDS = 15.0
"""Timeout of a hook's check, which changes nothing."""

AHEAD_MAX = 1000
"""If other watchers' clocks are ahead, their attempts have future times. At most this many such attempts are remembered."""


@dataclass(slots=True)
class PendingRequest:
    """An unfinished request, and the last decision on it."""

    request: RestartRequest
    decision: Decision | None = None
    after_s: float = 0.0
    attempt_id: str | None = None  # set while its attempt has not ended
    withdrawn: bool = False


class Decider:
    """Asks the guard about one request at a time."""

    def __init__(
        self, targets: Targets, journal: Journal, controls: Controls, backends: Backends
    ) -> None:
        self.targets = targets
        self.backends = backends
        self.ledger = Ledger(journal)
        self._journal = journal
        self._controls = controls
        self._ahead_t: dict[str, float] = {}  # attempt id → Unix time first seen

    async def decide(
        self, request: RestartRequest, managed: ManagedTarget, attempt_id: str, lock: Lock | None,
        asker: str | None = None,
    ) -> Decision:  # fmt: skip
        """`asker` is the gang member that holds the lock. Its restart includes this target."""
        request = self.without_revoked(request)
        hook: Answer | None = None
        blockers: tuple[Answer, ...] | None = None
        alone = asker is not None or not self.targets.gang(request.target)
        gang: tuple[Answer, ...] | None = () if alone else None
        held = None if asker is None else Held(held=True, text=f"{asker} holds it")
        befores: dict[str, Before] = {}
        while True:
            others = () if held is None else held.others
            facts = replace(
                await self._gather(request, managed, attempt_id, others), hook=hook, blockers=blockers, gang=gang, asker=asker,
                lock=None if held is None else Answer(name="lock", allows=held.held, text=held.text),
            )  # fmt: skip
            before = self.targets.before(request.target)  # from the same scrape as the facts
            decision = guard.decide(request, managed.settings, facts)
            if decision.verdict != guard.ASK:
                return replace(decision, befores={request.target: before, **befores})
            if decision.check == "hook":
                call = HookCall.of(request, managed.target, attempt_id, before)
                hook = await self._ask_hook(managed.settings.hook, call)
            elif decision.check == "blockers":
                blockers = await self.backends.ask_blockers(managed.settings.blockers)
            elif decision.check == "gang":
                gang, befores = await self._ask_gang(request, managed, attempt_id)
            else:
                held = await self._take(request, managed, attempt_id, lock)

    def without_revoked(self, request: RestartRequest) -> RestartRequest:
        name = approval(request.incident_id or "", request.target)
        if request.approved_by and self._controls.revoked(request.approved_by, "approve", name):
            return replace(request, approved_by=None)
        return request

    async def _gather(
        self, request: RestartRequest, managed: ManagedTarget, attempt_id: str, shared: tuple[Attempt, ...]
    ) -> Facts:  # fmt: skip
        now_t, name, controls, targets = time.time(), request.target, self._controls, self.targets
        refusal = await self._journal_refusal(now_t)
        attempts = await self._attempts(name, now_t, attempt_id, shared)
        busies = {self.ledger.busy.get(each) for each in targets.same_engine(name)}
        signals = targets.signals(name)
        incident = targets.incident(request.incident_id)
        return Facts(
            t=now_t,
            state=None if signals is None else signals.state,
            attempts=attempts,
            busy=next(iter(busies - {None, attempt_id}), None),
            breaker_reset_t=controls.breaker_reset_t,
            journal_refusal=refusal,
            pause=controls.pause(now_t),
            incident=incident,
            stale=targets.stale(name, incident),
            replaced=self._replaced(request),
            condition=self._condition(request, managed),
            revoked=self._revoked(request),
            silenced=controls.silenced(request.incident_id or "", now_t),
            startup_seconds=targets.startup_seconds(name),
            start_failure=targets.start_failure(name),
            peers=targets.peers(name),
            version_first_t=controls.version_first_t,
        )

    async def _ask_gang(
        self, request: RestartRequest, managed: ManagedTarget, attempt_id: str
    ) -> tuple[tuple[Answer, ...], dict[str, Before]]:
        wanted = guard.final_decision(request, managed.settings).verdict
        answers: list[Answer] = []
        befores: dict[str, Before] = {}
        for name in self.targets.gang(request.target):
            member = self.targets.managed[name]
            if member.settings.lock != managed.settings.lock:
                return (
                    Answer(name=name, allows=False, text="it has a different restart.lock"),
                ), {}
            of_it = replace(request, target=name, process=None)
            decision = await self.decide(of_it, member, attempt_id, None, asker=request.target)
            allows = decision.verdict in (wanted, guard.ACT)
            answers.append(Answer(name=name, allows=allows, text=decision.text))
            befores |= decision.befores
            if not allows:
                break
        return tuple(answers), befores

    def _replaced(self, request: RestartRequest) -> str | None:
        now = self.targets.process(request.target)
        if request.process is None or request.process.is_same(now) is not False:
            return None
        return another(now)

    def _revoked(self, request: RestartRequest) -> str | None:
        if request.trigger != "manual" or not self._controls.revoked(request.actor, "restart"):
            return None
        return f"the token {request.actor} was revoked"

    def _condition(self, request: RestartRequest, managed: ManagedTarget) -> str | None:
        if request.schedule is None:
            return None
        schedules = managed.settings.schedules
        schedule = next((each for each in schedules if each.name == request.schedule), None)
        if schedule is None:
            return "the schedule is no longer configured"
        return condition(schedule, self.targets.signals(request.target))

    async def _attempts(
        self, name: str, now_t: float, attempt_id: str, shared: tuple[Attempt, ...]
    ) -> tuple[Attempt, ...] | None:
        since_t = self.targets.history_since_t(now_t)
        try:
            stored = await self.ledger.read(since_t)
        except JournalError:
            return None
        others = {each.id: each for each in stored if each.id != attempt_id}
        theirs = [each for each in shared if each.id not in others and each.acted_t >= since_t]
        ours = await self.ledger.without_future(others.values(), now_t)
        return self.targets.history(name, (*ours, *self._dated(theirs, now_t)))

    def _dated(self, shared: list[Attempt], now_t: float) -> list[Attempt]:
        ahead = {each.id for each in shared if each.acted_t > now_t + AHEAD_SECONDS}
        for name in ahead:
            self._ahead_t.setdefault(name, now_t)
        for name in list(self._ahead_t)[:-AHEAD_MAX]:
            del self._ahead_t[name]
        return [
            replace(each, began_t=self._ahead_t[each.id], called_t=None) if each.id in ahead else each
            for each in shared
        ]  # fmt: skip

    async def _journal_refusal(self, now_t: float) -> str | None:
        await self._controls.load(now_t)
        if self._journal.trouble is not None:
            await self._journal.probe()
        if self._journal.trouble is not None:
            return self._journal.trouble
        if not (self.ledger.resumed and self._controls.known):
            return "past restarts and settings cannot be read"
        return self._controls.history_lost

    async def _ask_hook(self, name: str, call: HookCall) -> Answer:
        hook = self.backends.hook(name)
        if hook is None:
            return Answer(name=name, allows=False, text="it is not configured")
        try:
            async with asyncio.timeout(ASK_HOOK_SECONDS):
                refusal = await hook.refusal(call)
        except TimeoutError:
            return Answer(name=name, allows=None, text="its check timed out")
        except Exception as error:  # noqa: BLE001 - the hook is not called then
            _log.exception("hook_broke", target=call.target, hook=name)
            return Answer(name=name, allows=None, text=f"its check failed: {type(error).__name__}")
        return Answer(name=name, allows=refusal is None, text=printable(refusal or "it can"))

    async def _take(
        self, request: RestartRequest, managed: ManagedTarget, attempt_id: str, lock: Lock | None
    ) -> Held:
        if lock is None:
            return Held(held=None, text="it could not be created")
        hook, address = managed.settings.hook, managed.target.address
        begins = request.attempt(attempt_id, "intent", hook, time.time(), address)
        return await lock.acquire(self.backends.holder, attempt_id, begins)
