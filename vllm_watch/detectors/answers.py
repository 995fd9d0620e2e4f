"""What users get: answers that are empty, cut off after a token, or never end by themselves, against the engine's own past.

An engine that generates garbage looks healthy by every latency; how long its answers are and why they end shows it.
A helper of `engine_failing`. Requests that asked for no more than they got are no trouble (classification and prefill
with max_tokens=1, benchmarks that ignore the end of a text), nor are those of another kind than came before.
"""

from math import log
from operator import add
from typing import Any

from vllm_watch.detectors.failures import Ends
from vllm_watch.samples.record import record
from vllm_watch.signals import stored

EMPTY, TRUNCATED, ENDLESS = "empty_answers", "truncated_answers", "endless_answers"

ALL_RATIO, STILL_RATIO = 0.9, 0.5
"""Nearly every answer is so, and it is over when half are well again."""

SURE = 14.0
"""Natural logarithm of the odds that as many such answers come by chance where their usual share holds: one in a
million, as often as a busy engine has windows in a year."""

LEARNT_ANSWERS, LEARNT_SECONDS = 50.0, 600.0
"""So many answers, over so long, are a past to compare with."""

PAST_HALF_SECONDS = 3 * 3600.0
"""A past of hours: what changes within minutes does not become it."""

ALIKE_FACTOR = 2.0
"""Requests whose mean sizes differ by more are other clients' requests."""

ADOPT_SECONDS = 3600.0
"""Requests of another kind that still come after so long are what this engine serves now."""


PRIOR_ANSWERS, PRIOR_RATIO = 5.0, 0.2
"""Without a past: one of five answers may be so."""


@record
class Finding:
    """Nearly all answers are of one kind that they usually are not."""

    cause: str
    severity: str
    count: float
    of: float
    usual: float  # share of such answers in the past
    since_s: float
    present: bool  # are those of the last look so, too?


class Answers:
    """Follows one engine."""

    def __init__(self, model: str | None) -> None:
        self.model = model
        self._past, self._seconds = Ends(), 0.0
        self._quiet_s = 0.0  # since a request ended
        self._strange, self._strange_s = Ends(), 0.0  # since what is found now began
        self._at_s: float | None = None
        self._found: Finding | None = None

    def export_state(self) -> dict[str, Any]:
        """Return the past as plain values; what is found now is found again within seconds."""
        return {"model": self.model, "past": list(self._past), "seconds": self._seconds}

    @classmethod
    def restored(cls, state: stored.Stored) -> "Answers":
        """Raises one of stored.DAMAGE."""
        answers = cls(stored.text_or_none(state["model"]))
        answers._past = Ends(*stored.numbers(state["past"], len(Ends())))
        answers._seconds = stored.number(state["seconds"], 0.0)
        return answers

    def look(self, at_s: float, newest: Ends, window: Ends, window_s: float) -> Finding | None:
        """Take one poll; return what is wrong with the answers of the window, which is `window_s` long."""
        seconds, before = at_s - (at_s if self._at_s is None else self._at_s), self._found
        self._at_s, self._found = at_s, None
        for cause in (EMPTY,) if window.stop >= window.length else (TRUNCATED, ENDLESS):
            goes_on = before is not None and before.cause == cause
            usual = (_count(cause, self._past) + PRIOR_ANSWERS * PRIOR_RATIO) / (self._past.done + PRIOR_ANSWERS)  # fmt: skip
            count, done = _count(cause, window), window.done
            sure = done and done * _divergence(count / done, usual) >= SURE
            if not sure or count < (STILL_RATIO if goes_on else ALL_RATIO) * done:
                continue
            # The longer it lasts, the better known are these requests.
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
        """Take a look into the past, which a night without requests does not fade."""
        self._quiet_s += seconds
        passed_s = min(self._quiet_s, LEARNT_SECONDS) if newest.ended else 0.0
        self._quiet_s = 0.0 if newest.ended else self._quiet_s
        keep = 0.5 ** (passed_s / PAST_HALF_SECONDS)
        self._past = _sum(Ends(*(keep * each for each in self._past)), newest)
        self._seconds = keep * self._seconds + passed_s

    def _severity(self, cause: str, now: Ends) -> str | None:
        """Return how bad such answers are; None where requests may have asked for them."""
        past = self._past
        if cause != ENDLESS and now.asked >= ALL_RATIO * now.done:
            return "page"
        if cause == EMPTY and now.tokens < now.short:  # nobody asked for no token at all
            return "page"
        if past.done < LEARNT_ANSWERS or self._seconds < LEARNT_SECONDS:
            return "ticket" if cause == EMPTY else None
        # Whoever never ends writes more than before, unless clients allow less; others may allow another number.
        if cause == ENDLESS and (
            _mean(now.tokens, now.done) <= _mean(past.tokens, past.done)
            or (now.asked and past.asked and not _alike(now.asked_tokens, now.asked, past.asked_tokens, past.asked))
        ):  # fmt: skip
            return None
        if not _alike(now.prompt_tokens, now.prompts, past.prompt_tokens, past.prompts):
            return "ticket"
        return "page" if cause == ENDLESS else self._in_place_of_others(cause, now)

    def _in_place_of_others(self, cause: str, now: Ends) -> str | None:
        """Return how bad short answers are of which nobody knows if they were asked for: classification wants one token.

        They are a trouble only in place of as many others, request for request.
        """
        usual, is_now = (
            _count(cause, self._past) / self._seconds,
            _count(cause, now) / self._strange_s,
        )
        if is_now < ALIKE_FACTOR * usual:
            return None  # most of them always come
        missing = self._past.done / self._seconds - usual - (now.done / self._strange_s - is_now)
        return "page" if _alike(is_now - usual, 1.0, missing, 1.0) else "ticket"


def _count(cause: str, ends: Ends) -> float:
    """Return how many answers were so."""
    return {EMPTY: ends.short, TRUNCATED: max(ends.short, ends.cut), ENDLESS: ends.length}[cause]


def _sum(one: Ends, other: Ends) -> Ends:
    return Ends(*map(add, one, other))


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def _alike(total: float, count: float, past_total: float, past_count: float) -> bool:
    one, other = _mean(total, count), _mean(past_total, past_count)
    return 0.0 < max(one, other) <= ALIKE_FACTOR * min(one, other)


def _divergence(share: float, usual: float) -> float:
    """Return how unlikely one answer makes it that the share is the usual one (Kullback-Leibler)."""
    if share <= usual:
        return 0.0
    rest = (1.0 - share) * log((1.0 - share) / (1.0 - usual)) if share < 1.0 else 0.0
    return share * log(share / usual) + rest
