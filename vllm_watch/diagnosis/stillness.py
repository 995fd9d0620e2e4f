"""A log without an error whose engine does not work: its statistics stop while requests run, or it never comes up.

Source: LoggingStatLogger of vllm/v1/metrics/loggers.py: a line every ten seconds, and none after one in which
nothing was done; so a last line with running requests is followed by another one, unless the engine hangs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vllm_watch.diagnosis import lines

SILENT_SECONDS = 60.0
"""Six lines of statistics that did not come."""

START_SECONDS = 600.0
"""Between two signs of progress of a start; compiling and reading from a slow disk take minutes."""

PROBES = 6
"""Lines of the access log have no time; so many that follow the last statistics are a minute or more of probes."""

_TIME = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b|\b\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_COUNTS = re.compile(r"Running: (\d{1,6}) reqs.{0,80}?(?:Waiting|Pending): (\d{1,6}) reqs")
_PROBE = re.compile(r'"GET /(?:health|metrics|ping|ready|v1/models)\S* HTTP')
_SERVED = re.compile(r'"POST /\S+ HTTP/[\d.]+" 200|generation throughput')
_DAY, _MONTH_DAYS = 86_400, 31


@dataclass(frozen=True, slots=True)
class Silence:
    """Since when, after which line, and until when the log goes on."""

    number: int
    line: str
    since: str  # as the log writes it
    seconds: float | None  # None: the lines after it have no time
    running: int = 0
    waiting: int = 0


def of_statistics(statistics: tuple[int, bytes] | None, last: Iterable[bytes]) -> Silence | None:
    """Return the silence after the last statistics, if requests were running then."""
    if statistics is None:
        return None
    number, raw = statistics
    text = lines.clean(raw)
    counts = _COUNTS.search(text)
    if counts is None or counts[1] == counts[2] == "0":
        return None
    after = [lines.clean(each) for each in last]
    if text in after:
        after = after[len(after) - after[::-1].index(text) :]
    if any(_SERVED.search(each) for each in after):
        return None
    seconds = _between(text, after)
    probes = sum(_PROBE.search(each) is not None for each in after)
    if (seconds is None or seconds < SILENT_SECONDS) and (seconds is not None or probes < PROBES):
        return None
    return Silence(number, lines.shown(text, 0), _when(text), seconds, int(counts[1]), int(counts[2]))


def of_start(progress: tuple[int, str] | None, last: Iterable[bytes]) -> Silence | None:
    """Return the silence after the last line that showed progress of a start, if it is long."""
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
    return None if times[-1] < begin else float(times[-1] - begin)  # else another year began


def _seconds(text: str) -> int | None:
    """Of a made-up year whose months all have 31 days: right between two lines of one month."""
    found = _TIME.search(text)
    if found is None:
        return None
    month, day, hour, minute, second = (int(each) for each in found.groups() if each is not None)
    return ((month * _MONTH_DAYS + day) * _DAY) + hour * 3600 + minute * 60 + second
