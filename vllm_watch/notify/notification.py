"""One phase of one alert for one notifier: queued, in a message that was begun, sent, or dropped."""

from dataclasses import dataclass

from vllm_watch.notify.alert import Alert

OPENED, WORSE, CHANGED, REMINDER, RESOLVED, SAID = (
    "opened", "worse", "changed", "reminder", "resolved", "said",
)  # fmt: skip
"""Phases of an alert that lasts; `changed`: the first step changed. `said` is the only phase of a restart step."""

DROPPED = "dropped"
"""In place of a message key; followed by the key of the message that reported the drop."""

Key = tuple[str, str, str]  # notifier, alert id, name of the phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Times are Unix seconds."""

    notifier: str
    name: str  # unique per alert: the second reminder is "reminder 2"
    t: float  # due since
    alert: Alert  # as sent, or to be sent
    sent_t: float | None = None  # None: queued
    message: str | None = None  # key of its message

    @property
    def key(self) -> Key:
        return self.notifier, self.alert.id, self.name

    @property
    def phase(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def dropped(self) -> bool:
        return (self.message or "").startswith(DROPPED)
