"""Publish restart requests, blockers and attempts on the board."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import structlog

from vllm_watch.board.board import Board
from vllm_watch.board.restarts import (
    PAST_MAX,
    AttemptShown,
    Gate,
    RestartCounts,
    RestartPlan,
    RestartState,
    Waiting,
)
from vllm_watch.errors import JournalError
from vllm_watch.restart import checks
from vllm_watch.restart.checks import DAY_SECONDS, HOUR_SECONDS
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.decider import PendingRequest
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.facts import Facts, RestartRequest
from vllm_watch.restart.schedule import Schedule
from vllm_watch.restart.targets import ManagedTarget, Targets
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

_log = structlog.get_logger()

SHOW_SECONDS = 30.0
"""The plan is updated at least this often, because budgets and pauses also change without an event."""

SHOW_PAUSE_SECONDS = 0.2


class PlanPublisher:
    """Keeps the board's restart section up to date."""

    def __init__(
        self, board: Board, targets: Targets, dispatcher: Dispatcher, controls: Controls,
        journal: Journal, schedule: Schedule,
    ) -> None:  # fmt: skip
        self.people = False
        self.attempts: tuple[Attempt, ...] | None = None
        self._board = board
        self._targets = targets
        self._dispatcher = dispatcher
        self._controls = controls
        self._journal = journal
        self._schedule = schedule
        self._trouble: str | None = None

    async def run(self) -> None:
        while True:
            names = await self._targets.changes(SHOW_SECONDS)
            try:
                await self.read_attempts()
                self._board.restarts = RestartState(
                    paused=self._controls.pause(time.time()), journal_trouble=self._trouble,
                    people=self.people,
                )  # fmt: skip
                for name in names:
                    managed = self._targets.managed.get(name)
                    if managed is not None:
                        self._show(name, managed)
            except Exception:  # noqa: BLE001 - an error here must not affect restarts
                _log.exception("restarts_not_shown")
            await asyncio.sleep(SHOW_PAUSE_SECONDS)

    async def read_attempts(self) -> None:
        try:
            since_t = self._targets.history_since_t(time.time())
            self.attempts = await self._dispatcher.attempts.ledger.read(since_t)
            trouble = self._journal.trouble or self._controls.history_lost
        except JournalError as error:
            self.attempts, trouble = None, error.cause
        if trouble is not None and trouble != self._trouble:
            _log.error("restarts_blocked", because=trouble)
        self._trouble = trouble

    def _show(self, name: str, managed: ManagedTarget) -> None:
        dispatcher = self._dispatcher
        if managed.settings.mode == "off" and dispatcher.attempts.ledger.last(name) is None:
            self._board.show_restart(name, None, RestartCounts())
            return
        outcomes, blocked = dispatcher.attempts.outcomes.items(), dispatcher.blocked.items()
        counts = RestartCounts(
            outcomes={(trigger, end): n for (of, trigger, end), n in outcomes if of == name},
            blocked={check: n for (of, check), n in blocked if of == name},
        )
        self._board.show_restart(name, self._plan(name, managed), counts)

    def _plan(self, name: str, managed: ManagedTarget) -> RestartPlan:
        now_t, settings = time.time(), managed.settings
        group = None if self.attempts is None else self._targets.history(name, self.attempts)
        own = [each for each in group or () if name in each.names]
        past = [_shown(each, each.text) for each in reversed(own) if not each.open][:PAST_MAX]
        payoffs = [each.payoff_ratio for each in own if each.payoff_ratio is not None]
        last = self._dispatcher.attempts.ledger.last(name)
        return RestartPlan(
            mode=settings.mode,
            hook=settings.hook,
            waiting=tuple(_waiting(each) for each in self._dispatcher.waiting(name)),
            under_way=_shown(*last) if last is not None and last[0].open else None,
            last=past[0] if past else None,
            past=tuple(past),
            draining=managed.draining,
            paused=self._controls.pause(now_t),
            journal_trouble=self._trouble,
            breaker=None if group is None else self._breaker(managed, group, now_t),
            budget_remaining=budget_remaining(settings, group, now_t),
            payoff_ratio=payoffs[-1] if payoffs else None,
            next_scheduled_timestamp_seconds=self._schedule.next_t(name),
        )

    def _breaker(
        self, managed: ManagedTarget, attempts: Sequence[Attempt], now_t: float
    ) -> str | None:
        target = managed.target
        request = RestartRequest(
            target=target.name, group=target.group, trigger="incident", reason="", asked_t=now_t
        )
        reset_t = self._controls.breaker_reset_t
        facts = Facts(t=now_t, state=None, attempts=tuple(attempts), breaker_reset_t=reset_t)
        refusal = checks.breaker(request, managed.settings, facts)
        return None if refusal is None else refusal.text


def budget_remaining(
    settings: RestartSettings, attempts: Sequence[Attempt] | None, now_t: float
) -> int | None:
    """Return how many restarts the budgets still allow; None if unknown."""
    if attempts is None:
        return None
    times = [each.acted_t for each in attempts if each.spent]
    limits = ((settings.budget_per_hour, HOUR_SECONDS), (settings.budget_per_day, DAY_SECONDS))
    left = (limit - sum(t > now_t - seconds for t in times) for limit, seconds in limits)
    return max(0, min(left))


def _shown(attempt: Attempt, text: str) -> AttemptShown:
    return AttemptShown(
        id=attempt.id, state=attempt.state, trigger=attempt.trigger, reason=attempt.reason,
        actor=attempt.actor, hook=attempt.hook, text=text, incident_id=attempt.incident_id,
        began_timestamp_seconds=attempt.began_t, called_timestamp_seconds=attempt.called_t,
        ended_timestamp_seconds=attempt.ended_t, payoff_ratio=attempt.payoff_ratio,
    )  # fmt: skip


def _waiting(pending: PendingRequest) -> Waiting:
    request, decision = pending.request, pending.decision
    waiting = Waiting(
        trigger=request.trigger, reason=request.reason, asked_timestamp_seconds=request.asked_t,
        incident_id=request.incident_id, schedule=request.schedule, approved_by=request.approved_by,
        expires_timestamp_seconds=request.expires_t,
    )  # fmt: skip
    if decision is None:
        return waiting
    gates = tuple(
        Gate(gate=check, text=each.text, until_timestamp_seconds=each.until_t)
        for check, each in decision.refusals.items()
    )
    return replace(
        waiting, verdict=decision.verdict, gate=decision.check, text=decision.text,
        until_timestamp_seconds=decision.until_t, gates=gates,
    )  # fmt: skip
