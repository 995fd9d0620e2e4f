"""Read alerts from Alertmanager's webhook (payload version 4), and find their targets."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from vllm_watch.errors import WatchError
from vllm_watch.samples.target import Target
from vllm_watch.support.visible import visible

VERSION = "4"
ALERTS_MAX = 10_000
_TEXT_CHARACTERS_MAX = 200


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
