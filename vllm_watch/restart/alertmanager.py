"""What Alertmanager sends to a webhook, read into wishes. Pure.

A firing alert asks for a restart of the target that its labels name; the same alert, by its fingerprint
and the moment at which it began to fire, is one wish, however often it is sent. A resolved one asks no
more. Source: Alertmanager's webhook payload, version 4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from vllm_watch.errors import WatchError
from vllm_watch.samples.target import Target

VERSION = "4"
ALERTS_MAX = 10_000
_TEXT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of the group."""

    fingerprint: str
    name: str
    firing: bool
    began: str  # as Alertmanager wrote it
    labels: Mapping[str, str]

    @property
    def reason(self) -> str:
        """In words; the same for the same episode of the same alert, and for no other."""
        return f"alert {self.name} ({self.fingerprint}) fires since {self.began}"


def read(document: Mapping[str, Any]) -> list[Alert]:
    """Return the alerts. Raises WatchError where it is not what Alertmanager sends."""
    if document.get("version") != VERSION:
        cause = f"the payload's version is {str(document.get('version'))[:20]!r}, not {VERSION!r}"
        raise WatchError(cause, "Send it from Alertmanager's webhook_configs")
    alerts = document.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > ALERTS_MAX:
        raise WatchError("alerts is no list", "Send it from Alertmanager's webhook_configs")
    return [_alert(each) for each in alerts]


def _alert(said: Any) -> Alert:
    labels = said.get("labels") if isinstance(said, dict) else None
    if not isinstance(labels, dict) or said.get("status") not in ("firing", "resolved"):
        raise WatchError("an alert has no labels or no status", "Send it from Alertmanager")
    fingerprint = said.get("fingerprint")
    if not isinstance(fingerprint, str) or not fingerprint:
        raise WatchError("an alert has no fingerprint", "Send it from Alertmanager 0.19 or later")
    texts = {str(key): str(value) for key, value in labels.items()}
    return Alert(
        fingerprint=_line(fingerprint),
        name=_line(texts.get("alertname", "without a name")),
        firing=said["status"] == "firing",
        began=_line(str(said.get("startsAt", ""))),
        labels=texts,
    )


def _line(text: str) -> str:
    """It is shown on terminals, where control characters could do more than say something."""
    text = text[:_TEXT_CHARACTERS_MAX]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def target_of(alert: Alert, targets: Iterable[Target]) -> Target | None:
    """Return the target that the alert's labels name: `target` by its name, else `instance` by name or address."""
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
