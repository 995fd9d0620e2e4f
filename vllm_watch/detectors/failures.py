"""Counts how requests ended recently."""

from collections import deque
from collections.abc import Sequence
from operator import ge, sub
from typing import NamedTuple

from vllm_watch.samples.engine import EngineSample, Histogram

WINDOW_SECONDS = 30.0
"""Failures are counted over at least this many seconds. The window grows until enough requests have
ended."""

ENDS_MIN = 10.0
"""The window needs this many ended requests."""

RUN_MIN = 3.0
"""This many ended requests suffice if all of them failed."""

WINDOW_SECONDS_MAX = 300.0
"""The window covers at most this many seconds. If no request ends for longer, the clients have
stopped."""

PRESENT_SECONDS = 15.0
"""After this many seconds without a failure, a served request shows recovery."""

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

    @property
    def done(self) -> float:
        return self.stop + self.length

    @property
    def failed(self) -> float:
        return max(self.errors, self.api - self.explained, 0.0)

    @property
    def ended(self) -> float:
        return self.failed + self.done + self.doubtful


def growth(then: Ends, now: Ends) -> Ends:
    """Return each counter's growth."""
    return Ends(*map(sub, now, then))


def of_engine(sample: EngineSample, *, alone: bool) -> Ends:
    """Return an engine's counters. `alone` is True if the API server has no other engine."""
    by = sample.request_success or {}
    prompts, prompt_tokens = _totals(sample.request_prompt_tokens)
    answers, answer_tokens = _totals(sample.request_generation_tokens)
    asked, asked_tokens = _totals(sample.request_params_max_tokens)
    return Ends(
        errors=by.get("error", 0.0),
        api=_server_errors(sample) if alone else 0.0,
        stop=by.get("stop", 0.0),
        length=by.get("length", 0.0),
        aborted=by.get("abort", 0.0),
        repeated=by.get("repetition", 0.0),
        tokens=sample.generation_tokens or 0.0,
        prompts=prompts, prompt_tokens=prompt_tokens, answers=answers, answer_tokens=answer_tokens,
        asked=asked, asked_tokens=asked_tokens,
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
        self._kv_then: dict[str, float] = {}
        self._since_s: float | None = None
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
        ends = ends._replace(api=max(ends.api, then.api))
        grown = growth(then, ends)
        hung_up = 0.0 if grown.tokens or not ends.tokens else grown.aborted
        short, cut = _short_and_cut(grown, self._sample, sample)
        now = ends._replace(
            doubtful=then.doubtful + hung_up + grown.repeated,
            short=then.short + short,
            cut=then.cut + cut,
        )
        kv_before = dict((self._sample and self._sample.kv_failures) or {})
        self._sample, self.newest = sample, growth(then, now)
        self._looks.append((at_s, now))
        self._trim(at_s)
        self.window = growth(self._looks[0][1], now)
        self._follow(at_s, dict((sample and sample.kv_failures) or {}), kv_before)

    def _trim(self, at_s: float) -> None:
        looks = self._looks
        while looks[1][0] <= at_s - WINDOW_SECONDS:
            rest = growth(looks[1][1], looks[-1][1])
            enough = rest.ended >= (ENDS_MIN if rest.done else RUN_MIN)
            if not enough and looks[1][0] > at_s - WINDOW_SECONDS_MAX:
                break
            looks.popleft()

    def _follow(self, at_s: float, kv: dict[str, float], kv_before: dict[str, float]) -> None:
        if self.newest.ended:
            self._last_end_s = at_s
        if self.newest.failed or self.newest.doubtful:
            if self._since_s is None:
                self._since_s, self._kv_then = at_s, kv_before
            self._until_s = at_s
        elif self._since_s is not None and self.quiet(at_s):
            self._since_s = None
        self.kv_failed = {
            name: count - self._kv_then.get(name, 0.0)
            for name, count in kv.items()
            if self._since_s is not None and count > self._kv_then.get(name, 0.0)
        }

    @property
    def window_s(self) -> float:
        return self._looks[-1][0] - self._looks[0][0]

    def quiet(self, at_s: float) -> bool:
        if self._since_s is None:
            return True
        ago_s = at_s - self._until_s
        return ago_s > WINDOW_SECONDS_MAX or (
            ago_s > WINDOW_SECONDS and self._last_end_s > self._until_s
        )

    def present(self, at_s: float) -> bool:
        return at_s - self._until_s <= PRESENT_SECONDS or self._last_end_s <= self._until_s

    @property
    def began_s(self) -> float | None:
        return self._since_s

    @property
    def lasted_s(self) -> float:
        return 0.0 if self._since_s is None else self._until_s - self._since_s

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
    got = _at_most(before.request_generation_tokens, now.request_generation_tokens)
    asked = _at_most(before.request_params_max_tokens, now.request_params_max_tokens)
    others = grown.aborted + grown.errors + grown.repeated
    # All other answers have at least two tokens.
    short = max(got.get(1.0, 0.0) - others, 2 * grown.done - grown.tokens) - asked.get(1.0, 0.0)
    cut = max((got[each] - asked[each] for each in got.keys() & asked.keys()), default=0.0)
    others += grown.stop + max(grown.answers - grown.asked, 0.0)
    return min(max(short, 0.0), grown.done), min(max(cut - others, 0.0), grown.length)


def _at_most(before: Histogram | None, now: Histogram | None) -> dict[float, float]:
    if before is None or now is None or before.bounds != now.bounds:
        return {}
    return dict(zip(now.bounds, map(sub, now.cumulative, before.cumulative), strict=False))
