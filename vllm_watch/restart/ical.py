"""Reads freezes from an iCalendar file: what people keep in the calendar that they have. Pure.

Only what calendars write for events is read: times in UTC, in a named zone or without one, whole days,
durations, and the rules of recurrence below. Whatever else a file says about when something happens is an
error, and an error blocks restarts: a freeze that is not understood must not be taken for none. An
instance that was moved freezes both times.
Source: RFC 5545. A library would bring seven packages for this one file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from vllm_watch.restart import ical_rule
from vllm_watch.settings.windows import Freeze

EVENTS_MAX = 5000
"""Beyond it this is no calendar of freezes."""

RECURRING_MAX = 200
"""Each costs a look at every day since it began."""

YEAR_MIN, YEAR_MAX = 1970, 2200
"""No freeze begins or ends outside of these."""

_LINE = re.compile(r'([A-Za-z0-9-]+)((?:;[A-Za-z0-9-]+=(?:"[^"]*"|[^";:])*)*):(.*)', re.DOTALL)
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=("[^"]*"|(?:[^";:])*)')
_DURATION = re.compile(
    r"\+?P(?:(?P<weeks>\d{1,4})W|(?:(?P<days>\d{1,5})D)?"
    r"(?:T(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,6})M)?(?:(?P<seconds>\d{1,6})S)?)?)"
)
_DAY = timedelta(days=1)
_TEXT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class _Property:
    """One line's value and parameters."""

    value: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Moment:
    """A reading of a clock, and whose clock."""

    wall: datetime  # without zone
    zone: tzinfo
    whole_day: bool

    def times(self) -> tuple[float, float]:
        """The Unix times that it may mean, the first and the last."""
        both = [self.wall.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1)]
        return min(both), max(both)


_Event = dict[str, list[_Property]]


def freezes(text: str, zone: tzinfo, begin_t: float, end_t: float) -> tuple[Freeze, ...]:
    """Return the freezes that touch the span of Unix times; `zone` is that of times without one.

    Raises ValueError: what was not understood, in words.
    """
    found: list[Freeze] = []
    recurring = 0
    for number, event in enumerate(_events(text), 1):
        if number > EVENTS_MAX:
            raise ValueError(f"there are more than {EVENTS_MAX} events")
        if _one(event, "STATUS") == "CANCELLED":
            continue
        recurring += "RRULE" in event
        if recurring > RECURRING_MAX:
            raise ValueError(f"there are more than {RECURRING_MAX} recurring events")
        try:
            found += _spans(event, zone, begin_t, end_t)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"event {_summary(event)!r}: {error}") from None
    return tuple(found)


def _spans(event: _Event, zone: tzinfo, begin_t: float, end_t: float) -> list[Freeze]:
    start = _moment(_required(event, "DTSTART"), zone)
    length = _length(event, start, zone)
    if length <= timedelta(0):
        return []
    reason = _summary(event)
    spans: list[Freeze] = []
    for wall in _starts(event, start, length, zone, begin_t, end_t):
        first_t = Moment(wall, start.zone, start.whole_day).times()[0]
        last_t = Moment(wall + length, start.zone, start.whole_day).times()[1]
        if first_t < end_t and last_t > begin_t:
            spans.append(Freeze(first_t, last_t, reason))
    return spans


def _starts(
    event: _Event, start: Moment, length: timedelta, zone: tzinfo, begin_t: float, end_t: float
) -> Iterator[datetime]:
    left_out = {m.wall for m in _moments(event, "EXDATE", start, zone)}
    starts = {start.wall, *(m.wall for m in _moments(event, "RDATE", start, zone))}
    if (rules := event.get("RRULE")) is not None:
        if len(rules) > 1:
            raise ValueError("it has several RRULEs")
        until = _until(rules[0].value, start, zone)
        from_ = datetime.fromtimestamp(begin_t, UTC).replace(tzinfo=None) - length - 2 * _DAY
        to = datetime.fromtimestamp(end_t, UTC).replace(tzinfo=None) + 2 * _DAY
        rule = ical_rule.parse(rules[0].value)
        for day in ical_rule.days(rule, start.wall.date(), from_.date(), to.date()):
            wall = datetime.combine(day, start.wall.time())
            if until is None or Moment(wall, start.zone, start.whole_day).times()[0] <= until:
                starts.add(wall)
    if "EXRULE" in event:
        raise ValueError("it has an EXRULE")
    yield from sorted(starts - left_out)


def _until(rule: str, start: Moment, zone: tzinfo) -> float | None:
    match = re.search(r"UNTIL=([^;]*)", rule)
    if match is None:
        return None
    text = match[1]
    moment = _read(text, start.zone if not start.whole_day else zone)
    if moment.whole_day and not start.whole_day:
        moment = Moment(moment.wall + _DAY, start.zone, whole_day=False)
    return moment.times()[1]


def _length(event: _Event, start: Moment, zone: tzinfo) -> timedelta:
    if "DTEND" in event:
        end = _moment(_required(event, "DTEND"), zone)
        if end.zone is start.zone or str(end.zone) == str(start.zone):
            return end.wall - start.wall
        local = datetime.fromtimestamp(end.times()[1], start.zone)
        return local.replace(tzinfo=None) - start.wall
    if "DURATION" in event:
        return _duration(_required(event, "DURATION").value)
    return _DAY if start.whole_day else timedelta(0)


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text[:50]!r} is no duration")
    return timedelta(**{unit: int(number) for unit, number in match.groupdict("0").items()})


def _moments(event: _Event, name: str, start: Moment, zone: tzinfo) -> Iterator[Moment]:
    for each in event.get(name, ()):
        if each.parameters.get("VALUE", "") == "PERIOD":
            raise ValueError(f"{name} names periods")
        for text in each.value.split(","):
            found = _moment(_Property(text, each.parameters), zone)
            if str(found.zone) != str(start.zone):
                local = datetime.fromtimestamp(found.times()[0], start.zone)
                found = Moment(local.replace(tzinfo=None), start.zone, start.whole_day)
            yield found


def _moment(property_: _Property, zone: tzinfo) -> Moment:
    name = property_.parameters.get("TZID")
    if name is not None:
        try:
            zone = ZoneInfo(name.lstrip("/"))
        except (KeyError, ValueError, OSError):
            raise ValueError(f"{name[:50]!r} is no time zone that is known here") from None
    return _read(property_.value, zone)


def _read(text: str, zone: tzinfo) -> Moment:
    try:
        if len(text) == len("20261224"):
            return Moment(
                datetime.combine(_date(text), time()), zone, whole_day=True
            )  # fmt: skip
        if text.endswith("Z"):
            zone, text = UTC, text[:-1]
        if not re.fullmatch(r"\d{8}T\d{6}", text):
            raise ValueError  # noqa: TRY301 - said in words below
        wall = datetime.combine(
            _date(text[:8]), time(int(text[9:11]), int(text[11:13]), min(59, int(text[13:15])))
        )
    except ValueError:
        raise ValueError(f"{text[:50]!r} is no date or time") from None
    return Moment(wall, zone, whole_day=False)


def _date(text: str) -> date:
    found = date(int(text[:4]), int(text[4:6]), int(text[6:8]))
    if not YEAR_MIN <= found.year <= YEAR_MAX:
        raise ValueError
    return found


# --- the lines


def _events(text: str) -> Iterator[_Event]:
    """The VEVENTs of the file, each by the names of its properties."""
    open_: list[str] = []
    event: _Event = {}
    whole = False
    for name, property_ in _lines(text):
        if name == "BEGIN":
            open_.append(property_.value.upper())
            if open_ == ["VCALENDAR", "VEVENT"]:
                event = {}
        elif name == "END":
            if not open_ or open_[-1] != property_.value.upper():
                raise ValueError(f"END:{property_.value[:50]} ends nothing that was begun")
            if open_ == ["VCALENDAR", "VEVENT"]:
                yield event
            open_.pop()
            whole = not open_
        elif not open_ or open_[0] != "VCALENDAR":
            raise ValueError("it is no iCalendar file")
        elif open_ == ["VCALENDAR", "VEVENT"]:
            event.setdefault(name, []).append(property_)
    if not whole:
        raise ValueError("it is no iCalendar file, or its end is missing")


def _lines(text: str) -> Iterator[tuple[str, _Property]]:
    unfolded = re.sub(r"\r?\n[ \t]", "", text.lstrip("\ufeff"))
    for line in unfolded.splitlines():
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{line[:50]!r} is no line of an iCalendar file")
        parameters = {key.upper(): value.strip('"') for key, value in _PARAMETER.findall(match[2])}
        yield match[1].upper(), _Property(match[3].strip(), parameters)


def _required(event: _Event, name: str) -> _Property:
    found = event.get(name, ())
    if len(found) != 1:
        raise ValueError(f"it has {len(found) or 'no'} {name}")
    return found[0]


def _one(event: _Event, name: str) -> str:
    return event[name][0].value.upper() if event.get(name) else ""


def _summary(event: _Event) -> str:
    text = event["SUMMARY"][0].value if event.get("SUMMARY") else ""
    return re.sub(r"\\([\\,;nN])", lambda m: " " if m[1] in "nN" else m[1], text)[
        :_TEXT_CHARACTERS_MAX
    ]
