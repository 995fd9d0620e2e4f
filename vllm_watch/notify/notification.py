"""A phase of an alert for one notifier: queued, begun, sent, or dropped."""

from dataclasses import dataclass

from vllm_watch.notify.alert import Alert

OPENED, WORSE, CHANGED, REMINDER, RESOLVED, SAID = (
    "opened", "worse", "changed", "reminder", "resolved", "said",
)  # fmt: skip
"""`changed`: the first step changed. Restart steps have only `said`."""

DROPPED = "dropped"
"""Replaces the message's key, before that of the report."""

Key = tuple[str, str, str]  # notifier, alert id, phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Times are Unix."""

    notifier: str
    name: str  # "reminder 2"
    t: float  # due
    alert: Alert
    sent_t: float | None = None  # None: queued
    message: str | None = None

    @property
    def key(self) -> Key:
        return self.notifier, self.alert.id, self.name

    @property
    def phase(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def dropped(self) -> bool:
        return (self.message or "").startswith(DROPPED)
