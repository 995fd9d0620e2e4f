"""People's side of the guard: restart, approve, silence, pause, resume, and Alertmanager's webhook.

Each is answered with what came of it in words, and written down with who asked, from where, why, and what
was before and after.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_watch.board.board import Board
from vllm_watch.errors import JournalError
from vllm_watch.export.guarded import Caller
from vllm_watch.incidents.incident import Incident
from vllm_watch.restart import alertmanager, guard, plan
from vllm_watch.restart.attempt import Attempt
from vllm_watch.restart.daemon_world import DaemonWorld
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.facts import Pause
from vllm_watch.restart.guard import Decision
from vllm_watch.restart.journal import Entry, Journal
from vllm_watch.restart.request import RestartRequest
from vllm_watch.restart.standing import Standing
from vllm_watch.samples.target import Target

ALERT_SECONDS = 3600.0
"""An alert that nobody has told again for so long asks no more: Alertmanager repeats what still fires
after five minutes where its group changes, and its end may not be sent to us."""

FIRING_MAX = 100
"""Alerts remembered of one target."""

OK, ACCEPTED, NOT_FOUND, REFUSED, UNAVAILABLE = 200, 202, 404, 409, 503

Said = tuple[int, Mapping[str, Any]]


class DaemonPeople:
    """Fulfils export.people_api.People over one dispatcher."""

    def __init__(
        self, board: Board, world: DaemonWorld, dispatcher: Dispatcher, standing: Standing,
        journal: Journal, *, lasting: bool,
    ) -> None:  # fmt: skip
        """`lasting`: is the journal on a disk? Without one nothing is restarted."""
        self._board = board
        self._world = world
        self._dispatcher = dispatcher
        self._standing = standing
        self._journal = journal
        self._lasting = lasting
        self._firing: dict[str, dict[str, RestartRequest]] = {}  # target → fingerprint → its wish

    # --- restart and approve

    async def restart(
        self, caller: Caller, target: str, reason: str, override_reason: str | None
    ) -> Said:
        found = self._world.target(target)
        if found is None:
            return _no("There is no target " + repr(target[:100]), NOT_FOUND)
        request = RestartRequest(
            target=found.name, group=found.group, trigger="manual", reason=reason, actor=caller.actor,
            asked_t=time.time(), override_reason=override_reason,
        )  # fmt: skip
        why = reason if override_reason is None else f"{reason}; override: {override_reason}"
        return await self._now(caller, "restart", request, why)

    async def approve(self, caller: Caller, incident_id: str) -> Said:
        wish = self._dispatcher.waiting(incident_id)
        if wish is None:
            return self._nothing_waits(incident_id)
        approved = replace(wish.request, approved_by=caller.actor)
        status, said = await self._now(caller, "approve", approved, wish.request.reason)
        if said.get("verdict") == guard.WAIT and self._dispatcher.waiting(incident_id) is wish:
            wish.request = approved  # the yes holds until the gate opens, or the incident ends
            self._world.changed(approved.target)
            text = f"approved; it waits: {said['text']}"
            return ACCEPTED, {**said, "text": text}
        return status, said

    def _nothing_waits(self, incident_id: str) -> Said:
        incident = self._board.incidents.find(incident_id)
        if incident is None:
            return _no("There is no incident " + repr(incident_id[:100]), NOT_FOUND)
        if not incident.open:
            return _no("The incident has ended", REFUSED)
        text = "No restart waits for this incident's approval"
        remedy = f"To restart all the same: vllm-watch restart {incident.target}"
        return REFUSED, {"error": text, "remedy": remedy}

    async def _now(self, caller: Caller, action: str, request: RestartRequest, why: str) -> Said:
        if not self._lasting:
            text = "Nothing is restarted without a journal on a disk"
            return REFUSED, {"error": text, "remedy": "Set state_dir"}
        before = self._state(request.target)
        try:
            decision, attempt = await self._dispatcher.ask_now(request)
        except JournalError as error:
            return _unavailable(error)
        trouble = await self._noted(
            caller, action, request.target, why, before, f"{decision.verdict}: {decision.text}"
        )
        if trouble is not None and attempt is None:
            return trouble
        return _decided(decision, attempt)

    # --- silence, pause, resume

    async def silence(self, caller: Caller, incident_id: str, reason: str, minutes: float) -> Said:
        incident = self._board.incidents.find(incident_id)
        if incident is None or not incident.open:
            return _no(f"There is no open incident {incident_id[:100]!r}", NOT_FOUND)
        now_t = time.time()
        until_t = now_t + minutes * 60.0
        before = "silenced" if self._standing.silenced(incident_id, now_t) else "not silenced"
        text = f"no restart for {incident_id} until {guard.clock(until_t)}"
        try:
            await self._standing.silence(incident_id, caller.actor, reason, until_t)
        except JournalError as error:
            return _unavailable(error)
        await self._noted(caller, "silence", incident.target, reason, before, text)
        self._tell_of(incident)
        return OK, {"text": text, "until_timestamp_seconds": until_t}

    async def pause(self, caller: Caller, reason: str, minutes: float | None) -> Said:
        now_t = time.time()
        until_t = None if minutes is None else now_t + minutes * 60.0
        before = _paused(self._standing.pause(now_t))
        pause = Pause(actor=caller.actor, reason=reason, until_t=until_t)
        try:
            await self._standing.set_pause(pause)
        except JournalError as error:
            return _unavailable(error)
        await self._noted(caller, "pause", "", reason, before, _paused(pause))
        self._tell_all()
        return OK, {"text": _paused(pause), "until_timestamp_seconds": until_t}

    async def resume(self, caller: Caller, reason: str) -> Said:
        now_t = time.time()
        before = _paused(self._standing.pause(now_t))
        lost = self._standing.history_lost
        try:
            await self._standing.set_pause(None)
            await self._standing.reset_breakers(now_t)
        except JournalError as error:
            return _unavailable(error)
        after = "not paused; every breaker is closed"
        if lost is not None:
            before, after = f"{before}; {lost}", f"{after}; the lost history is accepted"
        await self._noted(caller, "resume", "", reason, before, after)
        self._tell_all()
        return OK, {"text": after, "before": before}

    # --- Alertmanager

    async def alerts(self, caller: Caller, document: Mapping[str, Any]) -> Said:
        said: dict[str, list[str]] = {"asked": [], "known": [], "cancelled": [], "ignored": []}
        targets = [each.target for each in self._world.followed.values()]
        for alert in alertmanager.read(document):
            target = alertmanager.target_of(alert, targets)
            if target is None or self._world.settings(target.name).mode == "off":
                said["ignored"].append(alert.fingerprint)
                continue
            try:
                what = await self._take(caller, alert, target)
            except JournalError as error:
                return _unavailable(error)  # a 5xx, so that it is sent again
            said[what].append(alert.fingerprint)
        return OK, said

    async def _take(self, caller: Caller, alert: alertmanager.Alert, target: Target) -> str:
        firing = self._firing.setdefault(target.name, {})
        if not alert.firing:
            known = firing.pop(alert.fingerprint, None)
            if known is None:
                return "known"
            await self._entry(caller, target.name, alert.reason, "asked for", "it is resolved")
            self._dispatcher.withdraw(known)
            for other in list(firing.values())[:1]:
                self._dispatcher.ask(other)
            return "cancelled"
        now_t = time.time()
        known = firing.get(alert.fingerprint)
        same = known is not None and known.reason == alert.reason
        if same and known is not None and (known.expires_t or 0.0) > now_t + ALERT_SECONDS / 2:
            return "known"
        if await self._was_restarted(target, alert.reason):
            return "known"
        request = RestartRequest(
            target=target.name, group=target.group, trigger="alertmanager", reason=alert.reason,
            asked_t=now_t, actor=caller.actor, expires_t=now_t + ALERT_SECONDS,
        )  # fmt: skip
        if not same:
            await self._entry(caller, target.name, alert.reason, "", "asked for")
        firing[alert.fingerprint] = request
        while len(firing) > FIRING_MAX:
            del firing[next(iter(firing))]
        if same and known is not None:
            self._dispatcher.withdraw(known)
        self._dispatcher.ask(request)
        return "known" if same else "asked"

    async def _was_restarted(self, target: Target, reason: str) -> bool:
        """Has this episode of this alert had its restart? It may go on firing for a while after."""
        known = await self._journal.attempts(target.group, time.time() - 7 * 86400.0)
        return any(
            each.target == target.name
            and each.reason == reason
            and (each.spent or each.open or each.state == "dry_run")
            for each in known
        )

    async def _entry(
        self, caller: Caller, target: str, reason: str, before: str, after: str
    ) -> None:
        await self._journal.note(Entry(
            t=time.time(), actor=caller.actor, source=caller.source, action="alert", target=target,
            reason=reason, before=before, after=after,
        ))  # fmt: skip

    # ---

    async def _noted(
        self, caller: Caller, action: str, target: str, reason: str, before: str, after: str
    ) -> Said | None:
        """Write it down; an answer where that failed."""
        try:
            await self._journal.note(Entry(
                t=time.time(), actor=caller.actor, source=caller.source, action=action,
                target=target, reason=reason, before=before, after=after,
            ))  # fmt: skip
        except JournalError as error:
            return _unavailable(error)
        return None

    def _state(self, target: str) -> str:
        signals = self._world.signals(target)
        return "not looked at yet" if signals is None else f"{signals.state}: {signals.state_text}"

    def _tell_of(self, incident: Incident) -> None:
        self._dispatcher.wake()
        self._world.changed(incident.target)

    def _tell_all(self) -> None:
        self._dispatcher.wake()
        for name in self._world.followed:
            self._world.changed(name)


def _decided(decision: Decision, attempt: Attempt | None) -> Said:
    said: dict[str, Any] = {
        "verdict": decision.verdict, "gate": decision.gate, "text": decision.text,
        "until_timestamp_seconds": decision.until_t, "gates": plan.gates(decision),
        "attempt": None if attempt is None else attempt.id,
    }  # fmt: skip
    if decision.verdict == guard.ACT:
        return ACCEPTED, said
    return REFUSED, {**said, "error": decision.text, "remedy": _remedy(decision)}


def _remedy(decision: Decision) -> str:
    if decision.gate in ("freeze", "window"):
        return "Wait until then, or say --override-freeze REASON"
    if decision.until_t is not None:
        return f"Ask again {guard.clock(decision.until_t)}"
    return "See its page, or /api/v1/status, for all that refuses"


def _no(text: str, status: int) -> Said:
    return status, {"error": text, "remedy": "See /api/v1/status for what is watched and waits"}


def _unavailable(error: JournalError) -> Said:
    return UNAVAILABLE, {"error": error.cause, "remedy": error.remedy}


def _paused(pause: Pause | None) -> str:
    if pause is None:
        return "not paused"
    until = (
        "until somebody resumes" if pause.until_t is None else f"until {guard.clock(pause.until_t)}"
    )
    return f"paused by {pause.actor} {until}: {pause.reason}"
