"""Finds empty, truncated and endless answers that the requests did not ask for."""

from math import log
from operator import add
from typing import Any

from vllm_watch.detectors.failures import Ends
from vllm_watch.samples.record import record
from vllm_watch.signals import stored

EMPTY, TRUNCATED, ENDLESS = "empty_answers", "truncated_answers", "endless_answers"

ALL_RATIO, STILL_RATIO = 0.9, 0.5
"""A finding begins at the first share of affected answers, and ends below the second."""

SURE = 14.0
"""A finding needs this log likelihood ratio. On a busy engine, chance exceeds it about once a
year."""

LEARNT_ANSWERS, LEARNT_SECONDS = 50.0, 600.0
"""The reference is known after this many earlier answers, over this many seconds."""

PAST_HALF_SECONDS = 3 * 3600.0
"""Half-life of an answer's weight in the reference. It is long, so that a fault does not become
usual."""

ALIKE_FACTOR = 2.0
"""Two values are similar if neither exceeds this many times the other."""

ADOPT_SECONDS = 3600.0
"""A finding that does not page becomes the new reference after this many seconds."""


PRIOR_ANSWERS, PRIOR_RATIO = 5.0, 0.2
"""The usual share of affected answers starts as if one of five earlier answers had been
affected."""


@record
class Finding:
    """Nearly all answers have a fault that is rare for this engine."""

    cause: str
    severity: str
    count: float
    of: float
    usual: float
    since_s: float
    present: bool


class Answers:
    """Follows one engine."""

    def __init__(self, model: str | None) -> None:
        self.model = model
        self._past, self._seconds = Ends(), 0.0
        self._quiet_s = 0.0
        self._strange, self._strange_s = Ends(), 0.0
        self._at_s: float | None = None
        self._found: Finding | None = None

    def export_state(self) -> dict[str, Any]:
        return {"model": self.model, "past": list(self._past), "seconds": self._seconds}

    @classmethod
    def restored(cls, state: stored.Stored) -> "Answers":
        answers = cls(stored.text_or_none(state["model"]))
        answers._past = Ends(*stored.numbers(state["past"], len(Ends())))
        answers._seconds = stored.number(state["seconds"], 0.0)
        return answers

    def look(self, at_s: float, newest: Ends, window: Ends, window_s: float) -> Finding | None:
        seconds, before = at_s - (at_s if self._at_s is None else self._at_s), self._found
        self._at_s, self._found = at_s, None
        for cause in (EMPTY,) if window.stop >= window.length else (TRUNCATED, ENDLESS):
            goes_on = before is not None and before.cause == cause
            usual = (_count(cause, self._past) + PRIOR_ANSWERS * PRIOR_RATIO) / (self._past.done + PRIOR_ANSWERS)  # fmt: skip
            count, done = _count(cause, window), window.done
            sure = done and done * _divergence(count / done, usual) >= SURE
            if not sure or count < (STILL_RATIO if goes_on else ALL_RATIO) * done:
                continue
            self._strange = _sum(self._strange, newest) if goes_on else window
            self._strange_s = self._strange_s + seconds if goes_on else window_s
            severity = self._severity(cause, self._strange)
            if severity is not None:
                self._found = Finding(
                    cause=cause, severity=severity, count=count, of=done, usual=usual,
                    since_s=before.since_s if before is not None and goes_on else at_s,
                    present=_count(cause, newest) >= STILL_RATIO * newest.done,
                )  # fmt: skip
                break
        if self._found is None:
            self._learn(newest, seconds)
        elif self._found.severity == "ticket" and at_s - self._found.since_s >= ADOPT_SECONDS:
            self._past, self._seconds = window, 0.0
        return self._found

    def _learn(self, newest: Ends, seconds: float) -> None:
        self._quiet_s += seconds
        passed_s = min(self._quiet_s, LEARNT_SECONDS) if newest.ended else 0.0
        self._quiet_s = 0.0 if newest.ended else self._quiet_s
        keep = 0.5 ** (passed_s / PAST_HALF_SECONDS)
        self._past = _sum(Ends(*(keep * each for each in self._past)), newest)
        self._seconds = keep * self._seconds + passed_s

    def _severity(self, cause: str, now: Ends) -> str | None:
        past = self._past
        if cause != ENDLESS and now.asked >= ALL_RATIO * now.done:
            return "page"
        if cause == EMPTY and now.tokens < now.short:  # clients cannot ask for zero tokens
            return "page"
        if past.done < LEARNT_ANSWERS or self._seconds < LEARNT_SECONDS:
            return "ticket" if cause == EMPTY else None
        # Long answers are normal if they are no longer than usual, or if max_tokens has changed.
        if cause == ENDLESS and (
            _mean(now.tokens, now.done) <= _mean(past.tokens, past.done)
            or (now.asked and past.asked and not _alike(now.asked_tokens, now.asked, past.asked_tokens, past.asked))
        ):  # fmt: skip
            return None
        if not _alike(now.prompt_tokens, now.prompts, past.prompt_tokens, past.prompts):
            return "ticket"
        return "page" if cause == ENDLESS else self._in_place_of_others(cause, now)

    def _in_place_of_others(self, cause: str, now: Ends) -> str | None:
        usual, is_now = (
            _count(cause, self._past) / self._seconds,
            _count(cause, now) / self._strange_s,
        )
        if is_now < ALIKE_FACTOR * usual:
            return None
        missing = self._past.done / self._seconds - usual - (now.done / self._strange_s - is_now)
        return "page" if _alike(is_now - usual, 1.0, missing, 1.0) else "ticket"


def _count(cause: str, ends: Ends) -> float:
    return {EMPTY: ends.short, TRUNCATED: max(ends.short, ends.cut), ENDLESS: ends.length}[cause]


def _sum(one: Ends, other: Ends) -> Ends:
    return Ends(*map(add, one, other))


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def _alike(total: float, count: float, past_total: float, past_count: float) -> bool:
    one, other = _mean(total, count), _mean(past_total, past_count)
    return 0.0 < max(one, other) <= ALIKE_FACTOR * min(one, other)


def _divergence(share: float, usual: float) -> float:
    if share <= usual:
        return 0.0
    rest = (1.0 - share) * log((1.0 - share) / (1.0 - usual)) if share < 1.0 else 0.0
    return share * log(share / usual) + rest
