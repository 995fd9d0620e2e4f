"""What predictions are worth against the truth: recall, precision, false alarms, delay, causes. Pure.

A *span* is the life of an incident under one kind, from "opened" (or an "updated" that changes the kind) to
"resolved" or the end of the recording. The rules:

- An event is found by a span of its kind, on its engine where the truth names one, that is open at any time
  between the event's first effect and its end plus two intervals, and that was not opened earlier than
  two intervals before the event began: what rang before says nothing about it.
- Time to detection counts from the first effect and is never negative.
- A collapse, stall or down that overlaps no event of these three kinds is a false alarm, unless a note excuses
  it. Events last five minutes longer for this: queues drain, averages lag.
- Other kinds must overlap an event of their own kind; an overload beside one of the three is forgiven.
- Precision is of the spans of the three kinds alone. The cause that counts is the last one said in the event.
- Restart advice is right when, in a recording with a collapse, a stall or an API hang, some incident during the
  event advised it where it helps, and none did where it does not. Where nothing was said, nothing is counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HARD = ("throughput_collapse", "engine_stalled", "engine_down")
GRACE_SECONDS = 300.0

Event = Mapping[str, Any]


@dataclass
class Span:
    """One incident under one kind."""

    kind: str
    engine: str | None
    opened: float
    closed: float
    causes: list[tuple[float, str]]
    page: bool
    advised: bool


@dataclass
class Found:
    """What became of one event."""

    kind: str
    cause: str
    delay_s: float | None = None  # None: missed
    cause_right: bool = False
    duplicates: int = 0
    resolved_in_time: bool | None = None  # None: too close to the end to tell


@dataclass
class Score:
    """One recording's."""

    scenario: str
    seconds: float
    events: list[Found] = field(default_factory=list)
    false_alarms: int = 0
    other_false_alarms: int = 0
    spans_right: int = 0  # of the three kinds
    advice_right: bool | None = None
    pages_outside: int = 0


def spans(events: Iterable[Event], end: float) -> list[Span]:
    """The spans that incident events tell of, by their opening."""
    open_: dict[str, Span] = {}
    done: list[Span] = []
    for event in events:
        name, t = event["id"], float(event["t"])
        known = open_.get(name)
        if event["event"] == "resolved":
            if known is not None:
                known.closed = t
                done.append(open_.pop(name))
            continue
        if known is not None and known.kind == event["kind"]:
            known.causes.append((t, event["cause"]))
            known.page |= event.get("severity") == "page"
            known.advised |= bool(event.get("restart_advised"))
            continue
        if known is not None:
            known.closed = t
            done.append(known)
        open_[name] = Span(
            kind=event["kind"], engine=event.get("engine"), opened=t, closed=end,
            causes=[(t, event["cause"])], page=event.get("severity") == "page",
            advised=bool(event.get("restart_advised")),
        )  # fmt: skip
    return sorted([*done, *open_.values()], key=lambda span: span.opened)


class _Judge:
    """One recording's truth, and what is asked of it."""

    def __init__(self, truth: Mapping[str, Any]) -> None:
        self.end: float = truth["t1"]
        self.slack = 2.0 * truth["interval_s"]
        self.grace = max(GRACE_SECONDS, self.slack)
        self.events: Sequence[Event] = truth["events"]
        self.notes: Sequence[Event] = truth.get("notes") or ()

    def end_of(self, event: Event) -> float:
        return self.end if event["end"] is None else float(event["end"])

    def finds(self, span: Span, event: Event) -> bool:
        effect = event.get("effect_start") or event["start"]
        return (
            span.kind == event["kind"]
            and _same_engine(span, event)
            and span.opened <= self.end_of(event) + self.slack
            and span.closed >= effect
            and span.opened >= event["start"] - self.slack
        )

    def within(self, t: float, event: Event, after: float) -> bool:
        return bool(event["start"] - self.slack <= t <= self.end_of(event) + after)

    def explained(self, span: Span, kinds: tuple[str, ...]) -> bool:
        """Does the span begin in an event of one of these kinds?"""
        return any(
            event["kind"] in kinds
            and (span.kind not in HARD or _same_engine(span, event))
            and self.within(span.opened, event, self.grace)
            for event in self.events
        )

    def excused(self, span: Span, *, any_kind: bool = False) -> bool:
        return any(
            (any_kind or note["kind"] == span.kind) and self.within(span.opened, note, self.grace)
            for note in self.notes
        )


def _same_engine(span: Span, event: Event) -> bool:
    wanted = event.get("engine")
    return wanted is None or span.engine in (None, "") or str(span.engine) == str(wanted)


def score(truth: Mapping[str, Any], predictions: Iterable[Event]) -> Score:
    """Compare what was said about one recording with its truth."""
    judge = _Judge(truth)
    # An incident that is never resolved outlives the recording.
    said = spans(predictions, float("inf"))
    result = Score(truth["scenario"], truth["t1"] - truth["t0"])
    result.events = [_found(judge, event, said) for event in judge.events]
    for span in said:
        if span.kind in HARD:
            if judge.explained(span, HARD):
                result.spans_right += 1
            elif not judge.excused(span):
                result.false_alarms += 1
        elif not (
            judge.explained(span, (span.kind,))
            or judge.excused(span)
            or (span.kind == "overload" and judge.explained(span, HARD))
        ):
            result.other_false_alarms += 1
        inside = any(judge.within(span.opened, each, judge.grace) for each in judge.events)
        result.pages_outside += span.page and not inside and not judge.excused(span, any_kind=True)
    result.advice_right = _advice(judge, truth.get("restart_helps"), said)
    return result


def _found(judge: _Judge, event: Event, said: Sequence[Span]) -> Found:
    found = Found(event["kind"], event["cause"])
    hits = [span for span in said if judge.finds(span, event)]
    if not hits:
        return found
    end = judge.end_of(event)
    found.delay_s = max(0.0, hits[0].opened - (event.get("effect_start") or event["start"]))
    causes = [cause for span in hits for t, cause in span.causes if t <= end]
    found.cause_right = (causes or [hits[0].causes[0][1]])[-1] == event["cause"]
    found.duplicates = len(hits) - 1
    if end < judge.end - GRACE_SECONDS - 30.0:
        limit = end + GRACE_SECONDS + judge.slack
        found.resolved_in_time = all(span.closed <= limit for span in hits)
    return found


def _advice(judge: _Judge, helps: bool | None, said: Sequence[Span]) -> bool | None:
    asked = any(
        event["kind"] in ("throughput_collapse", "engine_stalled") or event["cause"] == "api_hang"
        for event in judge.events
    )
    during = [
        span
        for span in said
        if span.kind in HARD
        and any(
            span.opened <= judge.end_of(event) + judge.slack
            and span.closed >= event["start"] - judge.slack
            for event in judge.events
        )
    ]
    if helps is None or not asked or not during:
        return None
    return any(span.advised for span in during) == helps


def summary(scores: Sequence[Score]) -> dict[str, float | None]:
    """The figures of the table, over all recordings."""
    events = [event for each in scores for event in each.events]
    hard = [event for event in events if event.kind in HARD]
    found = [event for event in hard if event.delay_s is not None]
    delays = sorted(event.delay_s or 0.0 for event in found)
    days = sum(each.seconds for each in scores) / 86_400.0
    right, wrong = sum(s.spans_right for s in scores), sum(s.false_alarms for s in scores)
    return {
        "recordings": len(scores),
        "days": round(days, 2),
        "events": len(hard),
        "recall_collapse": _share([e.delay_s is not None for e in hard if e.kind == HARD[0]]),
        "recall": _share([e.delay_s is not None for e in hard]),
        "precision": right / (right + wrong) if right + wrong else None,
        "false_alarms_per_day": wrong / days,
        "delay_median_s": _quantile(delays, 0.5),
        "delay_p95_s": _quantile(delays, 0.95),
        "cause_right": _share([e.cause_right for e in found]),
        "advice_right": _share([s.advice_right for s in scores if s.advice_right is not None]),
        "duplicates": sum(e.duplicates for e in events),
        "resolved_in_time": _share(
            [e.resolved_in_time for e in found if e.resolved_in_time is not None]
        ),
        "recall_other": _share([e.delay_s is not None for e in events if e.kind not in HARD]),
        "other_false_alarms_per_day": sum(s.other_false_alarms for s in scores) / days,
        "pages_outside": sum(s.pages_outside for s in scores),
    }


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    return ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))] if ordered else None
