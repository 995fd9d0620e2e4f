"""Find hangs in logs without an error.

While requests run, LoggingStatLogger (vllm/v1/metrics/loggers.py) writes a report every ten seconds. If the reports
stop while requests run, the engine hangs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vllm_watch.diagnosis import lines

SILENT_SECONDS = 60.0
"""Seconds without a report after which a hang is diagnosed."""

START_SECONDS = 600.0
"""Seconds without progress after which a start hangs. Compilation or a slow disk may take minutes."""

IDLE_REPORTS = 12
"""Reports with requests but without tokens after which a hang is diagnosed. They take two minutes."""

_IDLE_SECONDS, IDLE_REPORTS_MIN = 120.0, 3

QUEUED_SECONDS = 600.0
"""Seconds without an admitted request after which a queue is reported. Long answers may occupy all slots for minutes."""

UNACCEPTED = 2
"""Reports of almost no accepted draft token after which drafts are reported. They take twenty seconds."""

_USELESS_SHARE = 0.02
_DRAFTS = re.compile(rb"Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens")

REPORTS = 6
"""Missing reports after which a hang is diagnosed, in logs without times. Their number is estimated from the number of lines."""

PROBES = 60
"""Lines without a second report after which a hang is diagnosed, in logs without times."""

_TIME = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b|\b\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")  # fmt: skip
_COUNTS = re.compile(r"Running: (\d{1,6}) reqs.{0,80}?(?:Waiting|Pending): (\d{1,6}) reqs")
_USED = re.compile(r"KV cache usage: (\d{1,3}(?:\.\d{1,4})?)%")
SERVED = re.compile(r'"POST /\S+ HTTP/[\d.]+" 200|generation throughput')
_NOTICE = "block found in"
_WORKS = re.compile(r"\((?:\w* )?(?:Vllm|Ray)?Worker[^()]{0,60}pid=\d+\) INFO (?!.{0,80}(?:[Ss]hut|[Ee]xit|[Tt]erminat|signal))")  # fmt: skip
_DAY, _MONTH_DAYS = 86_400, 31


@dataclass(frozen=True, slots=True)
class Reports:
    """The throughput reports that a scanner has read."""

    last: tuple[int, bytes] | None  # line number and line
    idle: int  # latest consecutive reports with requests but no tokens
    idle_from: bytes  # the first of them
    lines: int  # most lines from one report to the next
    after: int  # lines since the last report
    queued_from: bytes = b""  # the first of the latest reports of a queue without admissions
    most_running: int = 0
    before: bytes = b""  # the report before the last


@dataclass(frozen=True, slots=True)
class Silence:
    """A period without progress. `line` is the last line that shows progress."""

    number: int
    line: str
    since: str
    seconds: float | None  # None if the lines after `line` have no time
    running: int = 0
    waiting: int = 0
    reports: int = 0  # consecutive reports without tokens


def no_tokens(line: bytes) -> bool:
    """Return True if the report shows requests but no tokens."""
    if b"generation throughput: 0.0 " not in line or b"prompt throughput: 0.0 " not in line:
        return False
    counts = _COUNTS.search(lines.clean(line))
    return counts is not None and counts[1] + counts[2] != "00"


def queued(line: bytes) -> bool:
    """Return True if requests wait, but prompt throughput is 0."""
    if b"prompt throughput: 0.0 " not in line:
        return False
    counts = _COUNTS.search(lines.clean(line))
    return counts is not None and counts[2] != "0"


FULL_PERCENT = 90.0
LARGE_BLOCK = 512
"""Tokens of a block that was enlarged for the state of a hybrid model. Other blocks have 16 to 256."""


def used_percent(reports: Reports) -> float:
    """Return the use of the KV cache in the last report, or 0."""
    found = None if reports.last is None else _USED.search(lines.clean(reports.last[1]))
    return 0.0 if found is None else float(found[1])


def counts(line: bytes) -> re.Match[str] | None:
    """Return the match of a report's running (1) and waiting (2) requests."""
    return _COUNTS.search(lines.clean(line))


def of_queue(reports: Reports) -> Silence | None:
    """Return the period without admitted requests if it reached QUEUED_SECONDS."""
    if reports.last is None or not reports.queued_from:
        return None
    number, raw = reports.last
    text = lines.clean(raw)
    first = lines.clean(reports.queued_from)
    seconds = _between(first, [text])
    counts = _COUNTS.search(text)
    if counts is None or seconds is None or seconds < QUEUED_SECONDS:
        return None
    return Silence(number, lines.shown(text, 0), _when(first), seconds, int(counts[1]), int(counts[2]))  # fmt: skip


BLOCKED_WAITING_MIN, BLOCKED_RUNNING_MIN, BLOCKED_RATIO, USED_PERCENT_MAX = 10, 16, 4, 50.0
"""Limits of a blocked queue: least waiting requests, least running ones before, their least ratio to those that run now, and the most of the KV cache in use (vLLM #53130)."""


def of_blocked_queue(reports: Reports) -> Silence | None:
    """Return the queue of the last two reports if few requests run and the KV cache has room."""
    if reports.last is None or reports.most_running < BLOCKED_RUNNING_MIN:
        return None
    number, raw = reports.last
    running = waiting = 0
    for text in map(lines.clean, (reports.before, raw)):
        counts, used = _COUNTS.search(text), _USED.search(text)
        if counts is None or used is None or float(used[1]) > USED_PERCENT_MAX:
            return None
        running, waiting = int(counts[1]), int(counts[2])
        if waiting < BLOCKED_WAITING_MIN or running * BLOCKED_RATIO > reports.most_running:
            return None
    return Silence(number, lines.shown(lines.clean(raw), 0), "", None, running, waiting)


def idle(reports: Reports) -> bool:
    """Return True if the last report shows no requests."""
    counts = None if reports.last is None else _COUNTS.search(lines.clean(reports.last[1]))
    return counts is not None and counts[1] == counts[2] == "0"


def went_on(last: Iterable[bytes]) -> bool:
    """Return True if a worker logged a line after the last notice that it does not answer."""
    after = False
    for text in map(lines.clean, last):
        after = _NOTICE not in text and (after or _WORKS.search(text) is not None)
    return after


def of_statistics(reports: Reports, last: Iterable[bytes]) -> Silence | None:
    """Return the hang if reports stop or show no tokens while requests run."""
    if reports.last is None:
        return None
    number, raw = reports.last
    text = lines.clean(raw)
    counts = _COUNTS.search(text)
    if counts is None or counts[1] == counts[2] == "0":
        return None
    running, waiting = int(counts[1]), int(counts[2])
    # A long prompt explains reports without tokens only if a request runs.
    long = running == 0 or (_between(lines.clean(reports.idle_from), [text]) or 0) >= _IDLE_SECONDS
    if reports.idle >= IDLE_REPORTS or (reports.idle >= IDLE_REPORTS_MIN and long):
        return Silence(number, lines.shown(text, 0), "", None, running, waiting, reports.idle)
    after = [lines.clean(each) for each in last]
    if text in after:
        after = after[len(after) - after[::-1].index(text) :]
    seconds = _between(text, after)
    if seconds is None:
        served = reports.idle == 0 and any(SERVED.search(each) for each in after)
        if served or reports.after < (REPORTS * reports.lines or PROBES):
            return None
    elif seconds < SILENT_SECONDS:
        return None
    return Silence(number, lines.shown(text, 0), _when(text), seconds, running, waiting)


def of_start(progress: tuple[int, str] | None, last: Iterable[bytes]) -> Silence | None:
    """Return the hang if the start made no progress for START_SECONDS."""
    if progress is None:
        return None
    number, text = progress
    seconds = _between(text, [lines.clean(each) for each in last])
    if seconds is None or seconds < START_SECONDS:
        return None
    return Silence(number, lines.shown(text, 0), _when(text), seconds)


def _when(text: str) -> str:
    found = _TIME.search(text)
    return "" if found is None else found[0]


def _between(text: str, after: Iterable[str]) -> float | None:
    begin = _seconds(text)
    times = [each for each in map(_seconds, after) if each is not None]
    if begin is None or not times:
        return None
    return None if times[-1] < begin else float(times[-1] - begin)  # a new year began


def _seconds(text: str) -> int | None:
    """Convert a date to seconds, with 31 days per month. Differences within a month are exact."""
    found = _TIME.search(text)
    if found is None:
        return None
    month, day, hour, minute, second = (int(each) for each in found.groups() if each is not None)
    return ((month * _MONTH_DAYS + day) * _DAY) + hour * 3600 + minute * 60 + second


def unaccepted(report: bytes) -> bool:
    """Return True if almost none of the drafted tokens was accepted."""
    found = _DRAFTS.search(report)
    if found is None:  # a wrapped line
        return b"Accepted: 0 tokens" in report
    return int(found[2]) > 0 and int(found[1]) <= _USELESS_SHARE * int(found[2])
