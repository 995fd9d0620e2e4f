"""Format a history judged from Prometheus as text."""

import time
from collections import Counter
from collections.abc import Sequence

from vllm_watch.cli.helpers.history.judged import Compared, Found, Judged
from vllm_watch.story.kinds import story_of

_LIVE_SECONDS = 5.0  # the daemon's scrape interval


def summary(judged: Sequence[Judged], compared: Compared, seconds: float) -> str:
    """Return one line with the number of incidents per kind."""
    head = f"{duration(seconds)}, {len(judged)} server{'s' * (len(judged) != 1)}"
    kinds = Counter(each.incident.kind for each in compared.found if each.incident.severity != "info")  # fmt: skip
    parts = []
    for kind, number in kinds.most_common():
        unseen_s = sum(each.unseen_seconds for each in compared.found if each.incident.kind == kind)
        unseen = f" ({duration(unseen_s)} unseen by your alerts)" if unseen_s else ""
        parts.append(f"{number} × {story_of(kind).title}{unseen}")
    said = f"{head}: {', '.join(parts) or 'nothing was wrong that can be seen there'}"
    fired, needless = len(compared.firings), len(compared.needless)
    if not fired:
        return f"{said}; none of your rules fired for them"
    return f"{said}; your rules fired {fired} time{'s' * (fired != 1)}, {needless} of them at healthy times"


def blind_spots(judged: Sequence[Judged]) -> list[str]:
    """Return sentences about the limits of this history."""
    intervals = sorted(each.interval_seconds for each in judged if each.interval_seconds)
    lines = []
    if intervals:
        slowest = intervals[-1]
        later = (
            f", and a stall or collapse is reported about {2 * (slowest - _LIVE_SECONDS):g} s later than with a scrape every {_LIVE_SECONDS:g} s"
            if slowest > _LIVE_SECONDS
            else ""
        )
        lines.append(f"Scraped every {slowest:g} s: events shorter than {3 * slowest:g} s are not seen{later}.")  # fmt: skip
    lines.append("Why a scrape failed is not stored: one that failed at once is taken for refused, one that took over 5 s for a hang.")  # fmt: skip
    lines.append("GPUs and who holds their memory, processes, logs, /health and canaries are not stored: faults of GPUs, stale memory and an engine that seems idle and does not answer are not seen.")  # fmt: skip
    empty = [each.target.name for each in judged if not each.looks]
    if empty:
        lines.append(f"No samples in that time of {', '.join(empty[:5])}{' …' if len(empty) > 5 else ''}.")  # fmt: skip # noqa: PLR2004
    return lines


def incident(found: Found) -> list[str]:
    """Return the incident's time, cause and alerts."""
    told, story = found.incident, story_of(found.incident.kind)
    cause = story.causes.get(told.cause)
    until = "still open at the end" if found.until_t is None else f"{clock(found.until_t)}, {duration(found.until_t - found.began_t)}"  # fmt: skip
    alerts = f"alerts: {', '.join(found.alerts)}; " if found.alerts else "no alert; "
    where = found.target if told.engine in (None, "0") else f"{found.target}/{told.engine}"
    return [
        f"{clock(found.began_t)} to {until}  {where}  {story.title}: {told.cause.replace('_', ' ')} ({told.severity})",
        f"  {told.summary}",
        f"  {alerts}unseen for {duration(found.unseen_seconds)}",
        f"  first step: {(cause and cause.first_step) or story.first_step}",
    ]


def clock(t: float) -> str:
    """Format Unix seconds as UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t))


def duration(seconds: float) -> str:
    """Format seconds in the two largest units."""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} day{'s' * (days != 1)}" + (f" {hours} h" if hours else "")
    if hours:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{minutes} min" if minutes else f"{whole} s"
