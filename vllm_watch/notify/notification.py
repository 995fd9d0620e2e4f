"""One phase of one alert for one notifier."""

from dataclasses import dataclass

from vllm_watch.notify.alert import Alert

OPENED, WORSE, CHANGED, REMINDER, RESOLVED, SAID = (
    "opened", "worse", "changed", "reminder", "resolved", "said",
)  # fmt: skip
"""CHANGED: a restart is now advised, or the cause is now known. A restart step has only the phase
SAID."""

DROPPED = "dropped"
"""Message key of a dropped notification. The key of the message that reports the drop is appended
later."""

Key = tuple[str, str, str]  # notifier, alert id, name of the phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One notification. Times are Unix seconds."""

    notifier: str
    name: str  # such as "reminder 2"
    t: float  # when the phase fell due
    alert: Alert
    sent_t: float | None = None  # None while queued
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
