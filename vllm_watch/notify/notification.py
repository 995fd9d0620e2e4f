"""One phase of one alert, for one notifier: to be sent, in a message that was begun, sent, or given up."""

from dataclasses import dataclass

from vllm_watch.notify.alert import Alert

OPENED, WORSE, CHANGED, REMINDER, RESOLVED, SAID = (
    "opened", "worse", "changed", "reminder", "resolved", "said",
)  # fmt: skip
"""Phases of what lasts; `changed`: what to do first is another than was told. `said` is the only one of a step of a restart."""

DROPPED = "dropped"
"""Stands for the key of a message; behind it the key of the one that said how many were dropped."""

Key = tuple[str, str, str]  # notifier, id of the alert, name of the phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Times are Unix seconds."""

    notifier: str
    name: str  # of the phase, unique for this alert: the second reminder is "reminder 2"
    t: float  # since when it is to be sent
    alert: Alert  # as it is told, or was
    sent_t: float | None = None  # None: it waits
    message: str | None = None  # key of the message that it is in

    @property
    def key(self) -> Key:
        return self.notifier, self.alert.id, self.name

    @property
    def phase(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def dropped(self) -> bool:
        return (self.message or "").startswith(DROPPED)
