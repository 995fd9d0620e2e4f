"""One phase of one alert for one notifier: queued, in a begun message, sent, or dropped."""

from dataclasses import dataclass

from vllm_watch.notify.alert import Alert

OPENED, WORSE, CHANGED, REMINDER, RESOLVED, SAID = (
    "opened", "worse", "changed", "reminder", "resolved", "said",
)  # fmt: skip
"""Of lasting alerts; `changed`: the first step changed. Restart steps have only `said`."""

DROPPED = "dropped"
"""Replaces the message's key; the key of the message that reported the drop follows."""

Key = tuple[str, str, str]  # notifier, alert id, name of the phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Times are Unix seconds."""

    notifier: str
    name: str  # unique per alert: "reminder 2"
    t: float  # due since
    alert: Alert  # as sent, or to be sent
    sent_t: float | None = None  # None: queued
    message: str | None = None  # its key

    @property
    def key(self) -> Key:
        return self.notifier, self.alert.id, self.name

    @property
    def phase(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def dropped(self) -> bool:
        return (self.message or "").startswith(DROPPED)
