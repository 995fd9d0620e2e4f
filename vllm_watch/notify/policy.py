"""Who is told what, and when again: one message per matter and phase, whatever restarts in between. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.notify.matter import INCIDENT, RESTART, Matter, rank
from vllm_watch.settings.notifications import ToldSettings

OPENED, WORSE, REMINDER, RESOLVED, SAID = "opened", "worse", "reminder", "resolved", "said"
"""Phases of what lasts; `said` is the only one of a step of a restart."""

RECENT_SECONDS = 3600.0
"""A step of a restart that is older when it is first seen is no news: the notifier is new, or was off."""


@dataclass(frozen=True, slots=True)
class Told:
    """One phase of one matter that a notifier was told, or is to be told."""

    phase: str
    severity: str  # as it was then
    told_t: float | None  # Unix seconds; None: it waits
    dropped: bool = False  # it was given up then, and not told


def due(settings: ToldSettings, matter: Matter, known: Sequence[Told], now_t: float) -> str | None:
    """Return the phase that this notifier has yet to be told of; None: nothing new. `known`: oldest first."""
    if matter.about == RESTART:
        return SAID if not known and _wants_step(settings, matter, now_t) else None
    if any(each.phase == RESOLVED for each in known):
        return None  # its end was told: an id does not come back
    if matter.ended_t is not None:
        heard = any(not each.dropped for each in known)
        return RESOLVED if heard and settings.resolved else None
    if matter.silenced or matter.held or not _wants(settings, matter):
        return None
    if not known:
        return OPENED
    if rank(matter.severity) > max(rank(each.severity) for each in known):
        return WORSE
    return REMINDER if _reminds(settings, matter, known, now_t) else None


def _wants(settings: ToldSettings, matter: Matter) -> bool:
    return (
        matter.severity in settings.severities
        and (not settings.kinds or matter.kind in settings.kinds)
        and _is_of(settings, matter)
    )


def _wants_step(settings: ToldSettings, matter: Matter, now_t: float) -> bool:
    recent = now_t - matter.t <= RECENT_SECONDS
    return recent and matter.cause in settings.restarts and _is_of(settings, matter)


def _is_of(settings: ToldSettings, matter: Matter) -> bool:
    """What is of no group concerns everybody."""
    return not settings.groups or not matter.group or matter.group in settings.groups


def _reminds(
    settings: ToldSettings, matter: Matter, known: Sequence[Told], now_t: float
) -> bool:  # fmt: skip
    if matter.about != INCIDENT or matter.severity != "page" or not settings.reminder_hours:
        return False
    last = [each.told_t for each in known]
    times = [t for t in last if t is not None]
    if len(times) < len(last):  # one still waits to be told
        return False
    return now_t - max(times) >= settings.reminder_hours * 3600.0
