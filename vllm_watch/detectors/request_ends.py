"""Counts how requests ended recently, and finds empty, truncated and endless answers that they did not ask for."""

from collections import deque
from collections.abc import Sequence
from math import log
from operator import add, ge, sub
from typing import ClassVar, NamedTuple

from vllm_watch.samples.engine import EngineSample, Histogram, Labelled
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.scales import (
    DAYTIME_SECONDS,
    FEW,
    FIVE_MINUTES_SECONDS,
    HALF,
    HALF_MINUTE_SECONDS,
    HOUR_SECONDS,
    MANY,
    MOMENT_SECONDS,
    NEARLY_ALL,
    PART_SHARE,
    TWICE,
)
from vllm_watch.signals.throughput import LEARNT_SECONDS
from vllm_watch.signals.totals import Numbers

SERVER_ERROR = "5xx"


class Ends(NamedTuple):
    """Counters of ended requests, or their growth."""

    api: float = 0.0  # 5xx responses except intended 503
    explained: float = 0.0  # 5xx responses that engines also count as errors
    errors: float = 0.0
    stop: float = 0.0
    length: float = 0.0
    aborted: float = 0.0
    repeated: float = 0.0  # ended by the repetition check that the client requested
    tokens: float = 0.0
    prompts: float = 0.0  # `prompts` to `asked_tokens` come from histograms
    prompt_tokens: float = 0.0
    answers: float = 0.0
    answer_tokens: float = 0.0
    asked: float = 0.0
    asked_tokens: float = 0.0
    doubtful: float = 0.0  # aborted without a token, or repeated
    short: float = 0.0  # at most one token, although more were allowed
    cut: float = 0.0  # ended as `length` far below max_tokens

    def since(self, then: "Ends") -> "Ends":
        return Ends(*map(sub, self, then))

    @property
    def done(self) -> float:
        return self.stop + self.length

    @property
    def failed(self) -> float:
        return max(self.errors, self.api - self.explained, 0.0)

    @property
    def ended(self) -> float:
        return self.failed + self.done + self.doubtful


def of_engine(sample: EngineSample, *, alone: bool) -> Ends:
    """Return an engine's counters. `alone` is True if the API server has no other engine."""
    by = sample.request_success or {}
    prompts, prompt_tokens = _totals(sample.request_prompt_tokens)
    answers, answer_tokens = _totals(sample.request_generation_tokens)
    asked, asked_tokens = _totals(sample.request_params_max_tokens)
    api, told = _server_errors(sample) if alone else 0.0, by.get
    return Ends(
        api, 0.0, told("error", 0.0), told("stop", 0.0), told("length", 0.0), told("abort", 0.0),
        told("repetition", 0.0), sample.generation_tokens or 0.0, prompts, prompt_tokens,
        answers, answer_tokens, asked, asked_tokens,
    )  # fmt: skip


def of_server(samples: Sequence[EngineSample]) -> Ends:
    """Return the API server's counters."""
    each = [of_engine(sample, alone=False) for sample in samples]
    return Ends(
        api=_server_errors(samples[0]),
        explained=sum(ends.errors for ends in each),
        stop=sum(ends.done for ends in each),
        tokens=sum(ends.tokens for ends in each),
    )


def _totals(histogram: Histogram | None) -> tuple[float, float]:
    if histogram is None or histogram.sum is None:
        return 0.0, 0.0
    return histogram.count, histogram.sum


def _server_errors(sample: EngineSample) -> float:
    refused = sum((sample.admission_rejections or {}).values())
    return (sample.http_responses or {}).get(SERVER_ERROR, 0.0) - refused


class Failures:
    """Follows one engine, or one server."""

    def __init__(self) -> None:
        self._begin(0.0, None, None, 0)

    def _begin(
        self, at_s: float, ends: Ends | None, sample: EngineSample | None, restarts: int
    ) -> None:
        self._looks = deque(() if ends is None else ((at_s, ends),))
        self._sample, self._restarts = sample, restarts
        self._kv_then: Labelled = {}
        self.began_s: float | None = None
        self._until_s = 0.0
        self._last_end_s = 0.0
        self.newest = self.window = Ends()
        self.kv_failed: dict[str, float] = {}

    def look(
        self, at_s: float, ends: Ends, sample: EngineSample | None, restarts: int, *, asleep: bool
    ) -> None:
        then = self._looks[-1][1] if self._looks else None
        # If one of these counters falls, it was reset. The last three are computed.
        if then is None or asleep or restarts != self._restarts or not all(map(ge, ends[1:-3], then[1:-3])):  # fmt: skip
            self._begin(at_s, ends, sample, restarts)
            return
        # vLLM counts a refusal before its 503, so `api` may fall.
        if ends.api < then.api:
            ends = ends._replace(api=then.api)
        grown, before = ends.since(then), self._sample
        hung_up = 0.0 if grown.tokens or not ends.tokens else grown.aborted
        short, cut = _short_and_cut(grown, before, sample)
        doubtful = then.doubtful + hung_up + grown.repeated
        now = Ends(*ends[:-3], doubtful, then.short + short, then.cut + cut)
        self._sample, self.newest = sample, now.since(then)
        self._looks.append((at_s, now))
        self.window = self._trimmed(at_s, now)
        kv, kv_before = (dict((each and each.kv_failures) or {}) for each in (sample, before))
        self._follow(at_s, kv, kv_before)

    def _trimmed(self, at_s: float, now: Ends) -> Ends:
        looks, window = self._looks, None
        # The window grows until enough requests have ended.
        while looks[1][0] <= at_s - HALF_MINUTE_SECONDS:
            rest = now.since(looks[1][1])
            # Few ended requests suffice if all of them failed.
            enough = rest.ended >= (MANY if rest.done else FEW)
            # If no request ends for longer, the clients have stopped.
            if not enough and looks[1][0] > at_s - FIVE_MINUTES_SECONDS:
                break
            looks.popleft()
            window = rest
        return window or now.since(looks[0][1])

    def _follow(self, at_s: float, kv: Labelled, kv_before: Labelled) -> None:
        failed, doubtful = self.newest.failed, self.newest.doubtful
        if failed or doubtful or self.newest.done:
            self._last_end_s = at_s
        if failed or doubtful:
            if self.began_s is None:
                self.began_s, self._kv_then = at_s, kv_before
            self._until_s = at_s
        elif self.began_s is not None and self.quiet(at_s):
            self.began_s = None
        self.kv_failed = {} if self.began_s is None else {
            name: count - self._kv_then.get(name, 0.0)
            for name, count in kv.items()
            if count > self._kv_then.get(name, 0.0)
        }  # fmt: skip

    @property
    def window_s(self) -> float:
        return self._looks[-1][0] - self._looks[0][0]

    def quiet(self, at_s: float) -> bool:
        if self.began_s is None:
            return True
        ago_s = at_s - self._until_s
        return ago_s > FIVE_MINUTES_SECONDS or (
            ago_s > HALF_MINUTE_SECONDS and self._last_end_s > self._until_s
        )

    def present(self, at_s: float) -> bool:
        return at_s - self._until_s <= MOMENT_SECONDS or self._last_end_s <= self._until_s

    @property
    def lasted_s(self) -> float:
        return 0.0 if self.began_s is None else self._until_s - self.began_s

    def share(self, *, doubtful: bool = False) -> float:
        failed = self.window.failed + (self.window.doubtful if doubtful else 0.0)
        return failed / (failed + self.window.done) if failed else 0.0

    @property
    def text(self) -> str:
        now = self.window
        failed, how = (now.failed, "failed") if now.failed else (now.doubtful, "ended without an answer")  # fmt: skip
        none = ", and no token was generated" if not now.tokens else ""
        return f"{failed:.0f} of {failed + now.done:.0f} recent requests {how}{none}"


def _short_and_cut(
    grown: Ends, before: EngineSample | None, now: EngineSample | None
) -> tuple[float, float]:
    if before is None or now is None or not grown.done or not now.generation_tokens:
        return 0.0, 0.0  # a pooling model has no answers
    bounds, got = _at_most(before.request_generation_tokens, now.request_generation_tokens)
    limits, asked = _at_most(before.request_params_max_tokens, now.request_params_max_tokens)
    others = grown.aborted + grown.errors + grown.repeated
    # All other answers have at least two tokens.
    short = max(_ones(bounds, got) - others, 2 * grown.done - grown.tokens) - _ones(limits, asked)
    allowed, found = dict(zip(limits, asked, strict=False)), zip(bounds, got, strict=False)
    cut = max([count - allowed[each] for each, count in found if each in allowed], default=0.0)
    others += grown.stop + max(grown.answers - grown.asked, 0.0)
    return min(max(short, 0.0), grown.done), min(max(cut - others, 0.0), grown.length)


def _at_most(before: Histogram | None, now: Histogram | None) -> tuple[Numbers, Numbers]:
    """Return bounds, and how many answers came up to each."""
    if before is None or now is None or before.bounds != now.bounds:
        return (), ()
    return now.bounds, tuple(map(sub, now.cumulative, before.cumulative))


def _ones(bounds: Numbers, counts: Numbers) -> float:
    return counts[bounds.index(1.0)] if counts and 1.0 in bounds else 0.0


EMPTY, TRUNCATED, ENDLESS = "empty_answers", "truncated_answers", "endless_answers"


SURE = 14.0
"""A finding needs this log likelihood ratio. On a busy engine, chance exceeds it about once a
year."""

LEARNT_ANSWERS = 50.0
"""The reference is known after this many earlier answers, over LEARNT_SECONDS."""


PRIOR_ANSWERS = 5.0
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


class Answers(stored.Kept):
    """Finds nearly all answers of one engine to be empty, truncated or endless."""

    KEPT: ClassVar[stored.Fields] = {
        "model": stored.text_or_none,
        "past": lambda state: Ends(*stored.numbers(state, len(Ends()))),
        "seconds": stored.amount,
    }

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        self._past, self._seconds = Ends(), 0.0
        self._quiet_s = 0.0
        self._strange, self._strange_s = Ends(), 0.0
        self._at_s: float | None = None
        self._found: Finding | None = None

    def look(self, at_s: float, newest: Ends, window: Ends, window_s: float) -> Finding | None:
        seconds, before = at_s - (at_s if self._at_s is None else self._at_s), self._found
        self._at_s, self._found = at_s, None
        for cause in (EMPTY,) if window.stop >= window.length else (TRUNCATED, ENDLESS):
            goes_on = before is not None and before.cause == cause
            usual = (_count(cause, self._past) + PRIOR_ANSWERS * PART_SHARE) / (self._past.done + PRIOR_ANSWERS)  # fmt: skip
            count, done = _count(cause, window), window.done
            sure = done and done * _divergence(count / done, usual) >= SURE
            if not sure or count < (HALF if goes_on else NEARLY_ALL) * done:
                continue
            self._strange = Ends(*map(add, self._strange, newest)) if goes_on else window
            self._strange_s = self._strange_s + seconds if goes_on else window_s
            severity = self._severity(cause, self._strange)
            if severity is not None:
                self._found = Finding(
                    cause=cause, severity=severity, count=count, of=done, usual=usual,
                    since_s=before.since_s if before is not None and goes_on else at_s,
                    present=_count(cause, newest) >= HALF * newest.done,
                )  # fmt: skip
                break
        if self._found is None:
            self._learn(newest, seconds)
        elif self._found.severity == "ticket" and at_s - self._found.since_s >= HOUR_SECONDS:
            self._past, self._seconds = window, 0.0
        return self._found

    def _learn(self, newest: Ends, seconds: float) -> None:
        self._quiet_s += seconds
        passed_s = min(self._quiet_s, LEARNT_SECONDS) if newest.ended else 0.0
        self._quiet_s = 0.0 if newest.ended else self._quiet_s
        # The half-life is long, so that a fault does not become usual.
        keep = 0.5 ** (passed_s / DAYTIME_SECONDS)
        both = zip(self._past, newest, strict=True)
        self._past = Ends(*[keep * past + now for past, now in both])
        self._seconds = keep * self._seconds + passed_s

    def _severity(self, cause: str, now: Ends) -> str | None:
        past = self._past
        if cause != ENDLESS and now.asked >= NEARLY_ALL * now.done:
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
        usual = _count(cause, self._past) / self._seconds
        is_now = _count(cause, now) / self._strange_s
        if is_now < TWICE * usual:
            return None
        missing = self._past.done / self._seconds - usual - (now.done / self._strange_s - is_now)
        return "page" if _alike(is_now - usual, 1.0, missing, 1.0) else "ticket"


def _count(cause: str, ends: Ends) -> float:
    if cause == ENDLESS:
        return ends.length
    return ends.short if cause == EMPTY else max(ends.short, ends.cut)


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def _alike(total: float, count: float, past_total: float, past_count: float) -> bool:
    one, other = _mean(total, count), _mean(past_total, past_count)
    return 0.0 < max(one, other) <= TWICE * min(one, other)


def _divergence(share: float, usual: float) -> float:
    if share <= usual:
        return 0.0
    rest = (1.0 - share) * log((1.0 - share) / (1.0 - usual)) if share < 1.0 else 0.0
    return share * log(share / usual) + rest
