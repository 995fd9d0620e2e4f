"""Operators' commands: restart, approve, silence, pause, resume, reload.

Each command is written to the journal. If the write fails, the command has no effect and raises
JournalError, except that a reload is already in effect.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import structlog

from vllm_watch.board.restarts import Paused
from vllm_watch.config import Config
from vllm_watch.errors import JournalError
from vllm_watch.restart import alertmanager, guard
from vllm_watch.restart.alertmanager import Alert
from vllm_watch.restart.checks import clock, trouble_over
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.facts import RestartRequest
from vllm_watch.restart.guard import Decision
from vllm_watch.restart.targets import HISTORY_SECONDS, Targets
from vllm_watch.samples.target import Target
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.support.redaction import excerpt
from vllm_watch.support.token_file import Caller

_log = structlog.get_logger()

OK, ACCEPTED, NOT_FOUND, REFUSED = 200, 202, 404, 409

RELOAD_CHARACTERS_MAX = 2000
_VALUE_CHARACTERS_MAX = 80

_REMEDY = "See /api/v1/status for targets and waiting requests"

REPEAT_SECONDS = 3600.0
"""A request expires after this many seconds if its alert is not repeated, because the message "resolved" may get lost."""

FIRING_MAX = 100

Reply = tuple[int, Mapping[str, Any]]
"""HTTP status and JSON."""


class Operators:
    """Handles the requests of operators and of Alertmanager."""

    def __init__(
        self, targets: Targets, dispatcher: Dispatcher, controls: Controls, journal: Journal,
        *, lasting: bool,
    ) -> None:  # fmt: skip
        """`lasting` is False if the journal is not on disk. In that case nothing is restarted."""
        self._targets = targets
        self._dispatcher = dispatcher
        self._controls = controls
        self._journal = journal
        self._lasting = lasting
        self._firing: dict[str, dict[str, RestartRequest]] = {}  # by target and fingerprint

    async def restart(
        self, caller: Caller, target: str, reason: str, override_reason: str | None
    ) -> Reply:
        managed = self._targets.managed.get(target)
        if managed is None:
            return _not_found("There is no target " + repr(target[:100]))
        request = RestartRequest(
            target=target, group=managed.target.group, trigger="manual", reason=reason,
            actor=caller.actor, asked_t=time.time(), override_reason=override_reason,
        )  # fmt: skip
        why = reason if override_reason is None else f"{reason}; override: {override_reason}"
        status, reply = await self._decide_now(caller, "restart", request, why)
        over = self._trouble_over(target)
        if status == ACCEPTED and over is not None:
            return status, {**reply, "text": f"{reply['text']}; but {over}"}
        return status, reply

    def _trouble_over(self, target: str) -> str | None:
        own = [each for each in self._targets.incidents() if each.target == target]
        found = [trouble_over(each) for each in own]
        return found[0] if found and None not in found else None

    async def approve(self, caller: Caller, incident_id: str) -> Reply:
        pending = self._dispatcher.waiting_for(incident_id)
        if pending is None:
            return self._nothing_to_approve(incident_id)
        approved = replace(pending.request, approved_by=caller.actor)
        # Write the approval before confirming it, so that it survives this process. The hook call removes the approval.
        await self._controls.approve(incident_id, approved.target, caller.actor, time.time())
        status, reply = await self._decide_now(caller, "approve", approved, approved.reason)
        waits = reply.get("verdict") == guard.WAIT
        if waits and self._dispatcher.waiting_for(incident_id) is pending:
            status, reply = ACCEPTED, {**reply, "text": f"approved; it waits: {reply['text']}"}
        if status == ACCEPTED:
            pending.request = approved
            self._targets.mark_changed(approved.target)
        else:
            self._controls.void_approvals(incident_id, approved.target)
        return status, reply

    def _nothing_to_approve(self, incident_id: str) -> Reply:
        incident = self._targets.incident(incident_id)
        if incident is None:
            return _not_found("There is no incident " + repr(incident_id[:100]))
        over = trouble_over(incident)
        if over is not None:
            return _refused(over[0].upper() + over[1:], "Nothing to do; see its page")
        names = incident.restart_targets or (incident.target,)
        remedy = f"To restart all the same: vllm-watch restart {names[0]}"
        return _refused("No restart waits for this incident's approval", remedy)

    async def _decide_now(
        self, caller: Caller, action: str, request: RestartRequest, why: str
    ) -> Reply:
        if not self._lasting:
            return _refused("Nothing is restarted without a journal on a disk", "Set state_dir")
        signals = self._targets.signals(request.target)
        before = "not scraped yet" if signals is None else f"{signals.state}: {signals.state_text}"
        decision, attempt = await self._dispatcher.decide_now(request)
        after = f"{decision.verdict}: {decision.text}"
        required = attempt is None
        await self._note(caller, action, request.target, why, before, after, required=required)
        return _reply(decision, attempt)

    async def silence(self, caller: Caller, incident_id: str, reason: str, minutes: float) -> Reply:
        incident = self._targets.incident(incident_id)
        if incident is None or not incident.open:
            return _not_found(f"There is no open incident {incident_id[:100]!r}")
        now_t = time.time()
        until_t = now_t + minutes * 60.0
        before = "silenced" if self._controls.silenced(incident_id, now_t) else "not silenced"
        await self._controls.silence(incident_id, caller.actor, reason, until_t)
        text = f"no restart for {incident_id} until {clock(until_t)}"
        await self._note(caller, "silence", incident.target, reason, before, text)
        self._changed(incident.restart_targets or (incident.target,))
        return OK, {"text": text, "until_timestamp_seconds": until_t}

    async def pause(self, caller: Caller, reason: str, minutes: float | None) -> Reply:
        now_t = time.time()
        until_t = None if minutes is None else now_t + minutes * 60.0
        before = _paused(self._controls.pause(now_t))
        pause = Paused(actor=caller.actor, reason=reason, until_timestamp_seconds=until_t)
        await self._controls.set_pause(pause)
        await self._note(caller, "pause", "", reason, before, _paused(pause))
        self._changed(self._targets.managed)
        return OK, {"text": _paused(pause), "until_timestamp_seconds": until_t}

    async def resume(self, caller: Caller, reason: str) -> Reply:
        now_t = time.time()
        before, lost = _paused(self._controls.pause(now_t)), self._controls.history_lost
        await self._controls.set_pause(None)
        await self._controls.reset_breakers(now_t)
        after = "not paused; every breaker is closed"
        if lost is not None:
            before, after = f"{before}; {lost}", f"{after}; the lost history is accepted"
        await self._note(caller, "resume", "", reason, before, after)
        self._changed(self._targets.managed)
        return OK, {"text": after, "before": before}

    async def alerts(self, caller: Caller, document: Mapping[str, Any]) -> Reply:
        """Alerts with equal fingerprint and startsAt become one request."""
        taken: dict[str, list[str]] = {"asked": [], "known": [], "cancelled": [], "ignored": []}
        managed = self._targets.managed
        for alert in alertmanager.read(document):
            target = alertmanager.target_of(alert, (each.target for each in managed.values()))
            if target is None or managed[target.name].settings.mode == "off":
                taken["ignored"].append(alert.fingerprint)
            elif alert.firing:
                taken[await self._fires(caller, alert, target)].append(alert.fingerprint)
            else:
                taken[await self._resolved(caller, alert, target)].append(alert.fingerprint)
        return OK, taken

    async def _fires(self, caller: Caller, alert: Alert, target: Target) -> str:
        firing, now_t = self._firing.setdefault(target.name, {}), time.time()
        known = firing.get(alert.fingerprint)
        if known is not None and known.reason != alert.reason:
            known = None
        if known is not None and (known.expires_t or 0.0) > now_t + REPEAT_SECONDS / 2:
            return "known"
        if await self._was_restarted(target, alert):
            return "known"
        request = RestartRequest(
            target=target.name, group=target.group, trigger="alertmanager", reason=alert.reason,
            asked_t=now_t, actor=caller.actor, expires_t=now_t + REPEAT_SECONDS,
            process=self._targets.process(target.name),
        )  # fmt: skip
        if known is None:
            await self._note(
                caller, "alert", target.name, alert.reason, "", "asked for", required=True
            )
        else:
            self._dispatcher.withdraw(known)
        firing[alert.fingerprint] = request
        while len(firing) > FIRING_MAX:
            del firing[next(iter(firing))]
        self._dispatcher.submit(request)
        return "asked" if known is None else "known"

    async def _resolved(self, caller: Caller, alert: Alert, target: Target) -> str:
        firing = self._firing.get(target.name, {})
        known = firing.pop(alert.fingerprint, None)
        if known is None:
            return "known"
        await self._note(
            caller, "alert", target.name, alert.reason, "asked for", "it is resolved", required=True
        )
        self._dispatcher.withdraw(known)
        for other in list(firing.values())[:1]:
            self._dispatcher.submit(other)
        return "cancelled"

    async def _was_restarted(self, target: Target, alert: Alert) -> bool:
        attempts = await self._journal.attempts(target.group, time.time() - HISTORY_SECONDS)
        return any(
            each.helped_since(target.name, alert.began_t)
            or each.made_for(target.name, alert.reason)
            for each in attempts
        )

    async def _note(
        self, caller: Caller, action: str, target: str, reason: str, before: str, after: str,
        *, required: bool = False,
    ) -> None:  # fmt: skip
        """Write to the journal. Raises JournalError only if `required`, because other actions have already taken effect."""
        try:
            await self._journal.note(Entry(
                t=time.time(), actor=caller.actor, source=caller.source, action=action,
                target=target, reason=reason, before=before, after=after,
            ))  # fmt: skip
        except JournalError:
            if required:
                raise

    def _changed(self, names: Iterable[str]) -> None:
        self._dispatcher.wake()
        for name in names:
            self._targets.mark_changed(name)


def _reply(decision: Decision, attempt: Attempt | None) -> Reply:
    reply: dict[str, Any] = {
        "verdict": decision.verdict, "gate": decision.check, "text": decision.text,
        "until_timestamp_seconds": decision.until_t,
        "gates": [
            {"gate": check, "text": refusal.text, "until_timestamp_seconds": refusal.until_t}
            for check, refusal in decision.refusals.items()
        ],
        "attempt": None if attempt is None else attempt.id,
    }  # fmt: skip
    if decision.verdict == guard.ACT:
        return ACCEPTED, reply
    return REFUSED, {**reply, "error": decision.text, "remedy": _remedy(decision)}


def _remedy(decision: Decision) -> str:
    if decision.check in ("freeze", "window"):
        return "Wait until then, or add --override-freeze REASON"
    if decision.until_t is not None:
        return f"Ask again {clock(decision.until_t)}"
    return "See its page, or /api/v1/status, for all refusals"


def _refused(error: str, remedy: str) -> Reply:
    return REFUSED, {"error": error, "remedy": remedy}


def _not_found(error: str) -> Reply:
    return NOT_FOUND, {"error": error, "remedy": _REMEDY}


def _paused(pause: Paused | None) -> str:
    if pause is None:
        return "not paused"
    until_t = pause.until_timestamp_seconds
    until = "until resumed" if until_t is None else f"until {clock(until_t)}"
    return f"paused by {pause.actor} {until}: {pause.reason}"


async def note_reload(journal: Journal, actor: str, source: str, old: Config, new: Config) -> None:
    """Write the reload to the journal. Never raises: the new configuration is already in use."""
    before, after = _reload_diff(old, new)
    entry = Entry(
        t=time.time(), actor=actor, source=source, action="reload", before=before, after=after
    )
    try:
        await journal.note(entry)
    except JournalError as error:
        _log.error("reload_not_journaled", cause=error.cause)


def _reload_diff(old: Config, new: Config) -> tuple[str, str]:
    before, after = dict(_leaves(_plain(old), "")), dict(_leaves(_plain(new), ""))
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return _values_text(before, changed), _values_text(after, changed)


def _plain(config: Config) -> dict[str, Any]:
    plain = config.model_dump(mode="json", exclude={"targets"})
    plain["targets"] = {
        target.name: target.model_dump(mode="json", exclude_unset=True) for target in config.targets
    }
    return plain


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{path}.{key}" if path else str(key))
    else:
        yield path, excerpt(str(value), _VALUE_CHARACTERS_MAX)


def _values_text(values: Mapping[str, str], keys: list[str]) -> str:
    lines = [f"{key}: {values.get(key, 'not set')}" for key in keys]
    return "; ".join(lines)[:RELOAD_CHARACTERS_MAX] or "nothing changed"
