"""Decide the next phase of each alert, and choose the next message."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vllm_watch.incidents.incident import severity_rank
from vllm_watch.notify.alert import (
    CHANGED,
    INCIDENT,
    OPENED,
    REMINDER,
    RESOLVED,
    RESTART,
    SAID,
    WORSE,
    Alert,
    Notification,
)
from vllm_watch.settings.notifications import NotifierSettings
from vllm_watch.story.base import UNKNOWN

RECENT_SECONDS = 3600.0
"""Restart steps older than this are not reported. A new notifier would otherwise report them
all."""


def due(
    settings: NotifierSettings, alert: Alert, known: Sequence[Notification], now_t: float
) -> str | None:
    """Return the phase that is due, or None."""
    if alert.about == RESTART:
        return SAID if not known and _wants_step(settings, alert, now_t) else None
    if any(each.phase == RESOLVED for each in known):
        return None
    if not alert.incident.open:
        heard = any(not each.dropped for each in known)
        return RESOLVED if heard and settings.resolved else None
    if (
        alert.incident.recovering
        or alert.silenced
        or alert.inhibited
        or not _wants(settings, alert)
    ):
        return None
    if not known:
        return OPENED
    if severity_rank(alert.severity) < min(severity_rank(each.alert.severity) for each in known):
        return WORSE
    if _is_news(alert, known):
        return CHANGED
    return REMINDER if _reminds(settings, alert, known, now_t) else None


def _wants(settings: NotifierSettings, alert: Alert) -> bool:
    return (
        alert.severity in settings.severities
        and (not settings.kinds or alert.incident.kind in settings.kinds)
        and _is_of(settings, alert)
    )


def _wants_step(settings: NotifierSettings, alert: Alert, now_t: float) -> bool:
    recent = now_t - alert.incident.opened_t <= RECENT_SECONDS
    return recent and alert.incident.cause in settings.restarts and _is_of(settings, alert)


def _is_of(settings: NotifierSettings, alert: Alert) -> bool:
    return not settings.groups or not alert.group or alert.group in settings.groups


def _is_news(alert: Alert, known: Sequence[Notification]) -> bool:
    told, now = [each.alert.incident for each in known], alert.incident
    advised = now.restart_advised and not any(each.restart_advised for each in told)
    named = now.cause != UNKNOWN and all(each.cause == UNKNOWN for each in told)
    return alert.about == INCIDENT and (advised or named)


def _reminds(
    settings: NotifierSettings, alert: Alert, known: Sequence[Notification], now_t: float
) -> bool:
    if alert.about != INCIDENT or alert.severity != "page" or not settings.reminder_hours:
        return False
    times = [each.sent_t for each in known if each.sent_t is not None]
    if len(times) < len(known):
        return False
    return now_t - max(times) >= settings.reminder_hours * 3600.0


HOUR_SECONDS = 3600.0

READY_MAX = 5
"""If more groups of alerts than this are ready, they are sent as one digest."""

DIGEST_SECONDS = 300.0
"""If a critical alert waits, a digest is sent this long after the last message, despite the hourly
limit."""

EXPIRE_SECONDS = {"page": 24 * 3600.0, "ticket": 4 * 3600.0, "info": 3600.0}
"""Unsent notifications are dropped after this time. A page is still news after a night."""

CLOCK_SECONDS = 1.0

WAITING_MAX = 500
"""At most this many notifications are queued. Beyond this, the oldest of the lowest severity are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One alert in a message."""

    phase: str
    alert: Alert
    late: bool = False  # the alert ended before its opening was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The content of one message."""

    items: tuple[Item, ...]  # worst first
    notifications: tuple[Notification, ...] = ()
    digest: bool = False

    @property
    def severity(self) -> str:
        return self.items[0].alert.severity


def choose(
    settings: NotifierSettings,
    waiting: Sequence[Notification],
    sent_t: Sequence[float],
    now_t: float,
) -> tuple[Batch | None, float | None]:
    """Return the batch to send now, or the time of the next call. `sent_t` lists the times of the last hour's messages."""
    groups = _groups(waiting)
    # A time in the future was written before the clock was set back.
    ready = [
        each for each in groups
        if not each.since_t <= now_t + CLOCK_SECONDS or each.since_t + settings.group_seconds <= now_t
    ]  # fmt: skip
    if not ready:
        soonest = min((each.since_t for each in groups), default=None)
        return None, None if soonest is None else soonest + settings.group_seconds
    recent = sorted(t for t in sent_t if now_t - HOUR_SECONDS < t <= now_t)
    left = settings.messages_per_hour_max - len(recent)
    if left > 1 or (left == 1 and len(ready) == 1):
        return _batch(ready if len(ready) > READY_MAX else ready[:1]), None
    if left == 1:
        return _batch(ready), None
    again_t = recent[len(recent) - settings.messages_per_hour_max] + HOUR_SECONDS
    if any(each.severity == "page" for each in ready):
        again_t = min(again_t, recent[-1] + DIGEST_SECONDS)
        if again_t <= now_t:
            return _batch(ready), None
    return None, again_t


def again(waiting: Sequence[Notification]) -> Batch:
    """Rebuild the batch of an interrupted message, which may have been sent."""
    return _batch(_groups(waiting))


def too_many(waiting: Sequence[Notification], now_t: float) -> list[Notification]:
    """Return the notifications that expired or exceed WAITING_MAX."""
    old: list[Notification] = []
    kept: list[Notification] = []
    for each in waiting:
        expired = now_t - each.t > EXPIRE_SECONDS.get(each.alert.severity, 0.0)
        (old if expired else kept).append(each)
    kept.sort(key=lambda each: (-severity_rank(each.alert.severity), each.t))
    return old + kept[: max(0, len(kept) - WAITING_MAX)]


@dataclass(slots=True)
class _Group:
    items: list[Item]
    notifications: list[Notification]
    since_t: float
    severity: str


def _groups(waiting: Iterable[Notification]) -> list[_Group]:
    of_alert: dict[str, list[Notification]] = {}
    for each in sorted(waiting, key=lambda each: each.t):
        of_alert.setdefault(each.alert.id, []).append(each)
    groups: dict[tuple[str, ...], _Group] = {}
    for phases in of_alert.values():
        item, since_t = _folded(phases), phases[0].t
        alert, incident = item.alert, item.alert.incident
        place = incident.target if alert.about == RESTART or not alert.group else ""
        key = (item.phase, str(item.late), alert.group, place, incident.kind, incident.cause, alert.severity)  # fmt: skip
        group = groups.setdefault(key, _Group([], [], since_t, alert.severity))
        group.items.append(item)
        group.notifications += phases
        group.since_t = min(group.since_t, since_t)
    return sorted(groups.values(), key=lambda each: (severity_rank(each.severity), each.since_t))


def _folded(phases: Sequence[Notification]) -> Item:
    last, names = phases[-1], {each.phase for each in phases}
    if OPENED not in names or last.phase == OPENED:
        return Item(phase=last.phase, alert=last.alert)
    if RESOLVED in names:
        return Item(phase=RESOLVED, alert=last.alert, late=True)
    return Item(phase=OPENED, alert=last.alert)


def _batch(groups: Sequence[_Group]) -> Batch:
    items = sorted((item for each in groups for item in each.items), key=_worst_first)
    notifications = tuple(one for each in groups for one in each.notifications)
    return Batch(items=tuple(items), notifications=notifications, digest=len(groups) > 1)


def _worst_first(item: Item) -> tuple[bool, int, float, str]:
    incident = item.alert.incident
    over = item.phase == RESOLVED
    return over, severity_rank(incident.severity), incident.opened_t, incident.id
