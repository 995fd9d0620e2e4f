"""Turn alerts from Alertmanager's webhook (payload version 4) into restart requests.

Alerts with equal fingerprint and startsAt become one request.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from vllm_watch.errors import WatchError
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.facts import RestartRequest
from vllm_watch.restart.targets import HISTORY_SECONDS, Targets
from vllm_watch.samples.target import Target
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.support.token_file import Caller
from vllm_watch.support.visible import visible

VERSION = "4"
ALERTS_MAX = 10_000
_TEXT_CHARACTERS_MAX = 200

REPEAT_SECONDS = 3600.0
"""A request expires after this many seconds if its alert is not repeated, because the message "resolved" may get lost."""

FIRING_MAX = 100


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of the payload."""

    fingerprint: str
    name: str
    firing: bool
    began: str
    labels: Mapping[str, str]

    @property
    def began_t(self) -> float:
        """Unix seconds; infinity if `began` cannot be parsed."""
        try:
            return datetime.fromisoformat(self.began).timestamp()
        except (ValueError, OverflowError, OSError):
            return math.inf

    @property
    def reason(self) -> str:
        return f"alert {self.name} ({self.fingerprint}) fires since {self.began}"


def read(document: Mapping[str, Any]) -> list[Alert]:
    """Return the alerts. Raises WatchError for any other payload."""
    if document.get("version") != VERSION:
        cause = f"the payload's version is {str(document.get('version'))[:20]!r}, not {VERSION!r}"
        raise WatchError(cause, "Send it from Alertmanager's webhook_configs")
    alerts = document.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > ALERTS_MAX:
        raise WatchError("alerts is not a list", "Send it from Alertmanager's webhook_configs")
    return [_alert(each) for each in alerts]


def _alert(sent: Any) -> Alert:
    labels = sent.get("labels") if isinstance(sent, dict) else None
    if not isinstance(labels, dict) or sent.get("status") not in ("firing", "resolved"):
        raise WatchError("an alert has no labels or no status", "Send it from Alertmanager")
    fingerprint = sent.get("fingerprint")
    if not isinstance(fingerprint, str) or not fingerprint:
        raise WatchError("an alert has no fingerprint", "Send it from Alertmanager 0.19 or later")
    texts = {str(key): str(value) for key, value in labels.items()}
    return Alert(
        fingerprint=_line(fingerprint),
        name=_line(texts.get("alertname", "without a name")),
        firing=sent["status"] == "firing",
        began=_line(str(sent.get("startsAt", ""))),
        labels=texts,
    )


def _line(text: str) -> str:
    return visible(text[:_TEXT_CHARACTERS_MAX])


def target_of(alert: Alert, targets: Iterable[Target]) -> Target | None:
    """Return the target that the label `target` names.

    Without this label, return the only target with the name or address in the label `instance`.
    """
    known = {each.name: each for each in targets}
    name = alert.labels.get("target")
    if name:
        return known.get(name)
    instance = alert.labels.get("instance", "")
    if not instance:
        return None
    found = [
        each for each in known.values() if instance in (each.name, each.url, urlsplit(each.url).netloc)
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


class AlertRequests:
    """Turns firing alerts into restart requests."""

    def __init__(self, targets: Targets, dispatcher: Dispatcher, journal: Journal) -> None:
        self._targets = targets
        self._dispatcher = dispatcher
        self._journal = journal
        self._firing: dict[str, dict[str, RestartRequest]] = {}

    async def take(self, caller: Caller, document: Mapping[str, Any]) -> Mapping[str, list[str]]:
        taken: dict[str, list[str]] = {"asked": [], "known": [], "cancelled": [], "ignored": []}
        managed = self._targets.managed
        for alert in read(document):
            target = target_of(alert, (each.target for each in managed.values()))
            if target is None or managed[target.name].settings.mode == "off":
                taken["ignored"].append(alert.fingerprint)
            elif alert.firing:
                taken[await self._fires(caller, alert, target)].append(alert.fingerprint)
            else:
                taken[await self._resolved(caller, alert, target)].append(alert.fingerprint)
        return taken

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
            await self._note(caller, alert, target, "", "asked for")
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
        await self._note(caller, alert, target, "asked for", "it is resolved")
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
        self, caller: Caller, alert: Alert, target: Target, before: str, after: str
    ) -> None:
        await self._journal.note(Entry(
            t=time.time(), actor=caller.actor, source=caller.source, action="alert",
            target=target.name, reason=alert.reason, before=before, after=after,
        ))  # fmt: skip
