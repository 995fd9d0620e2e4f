"""Decide the next phase of each alert for each notifier."""

from collections.abc import Sequence

from vllm_watch.incidents.incident import severity_rank
from vllm_watch.notify.alert import INCIDENT, RESTART, Alert
from vllm_watch.notify.notification import (
    CHANGED,
    OPENED,
    REMINDER,
    RESOLVED,
    SAID,
    WORSE,
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
