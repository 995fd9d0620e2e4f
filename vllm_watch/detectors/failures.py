"""How requests ended lately: served, failed, or in a way that leaves it open whose fault it was."""

from collections import deque
from collections.abc import Sequence
from operator import ge, sub
from typing import NamedTuple

from vllm_watch.samples.engine import EngineSample, Histogram

WINDOW_SECONDS = 30.0
"""Shares are taken over so long: half a minute of nothing but errors after hours of none is half of the window
after a quarter of a minute."""

ENDS_MIN = 10.0
"""... and over no fewer requests, ..."""

RUN_MIN = 3.0
"""... or these, where nothing but failures came, ..."""

WINDOW_SECONDS_MAX = 300.0
"""... unless these came longer ago. Where nothing fails for so long, and nothing succeeds, nobody asks any more."""

PRESENT_SECONDS = 15.0
"""A request that was served since the last failure is a sign of recovery only if none fails for so long."""

SERVER_ERROR = "5xx"


class Ends(NamedTuple):
    """Counters of ended requests since the start of an engine or of a server of several, or their growth."""

    api: float = 0.0  # answers 5xx, less refusals of admission, which are 503 on purpose
    explained: float = 0.0  # ... of which engines have counted an error themselves
    errors: float = 0.0  # that the engine ended with an error
    stop: float = 0.0
    length: float = 0.0
    aborted: float = 0.0
    repeated: float = 0.0  # ended for repetition, where a client has asked for that check
    tokens: float = 0.0  # generated, of unfinished requests too
    prompts: float = 0.0  # this and what follows: histograms of finished requests
    prompt_tokens: float = 0.0
    answers: float = 0.0
    answer_tokens: float = 0.0
    asked: float = 0.0  # requests with a known max_tokens
    asked_tokens: float = 0.0
    doubtful: float = 0.0  # aborted while no token was made, or repeated
    short: float = 0.0  # answers of at most one token, to requests that allowed more
    cut: float = 0.0  # answers that ended with `length` far below their max_tokens

    @property
    def done(self) -> float:
        """Requests that ended by a stop or by length."""
        return self.stop + self.length

    @property
    def failed(self) -> float:
        return max(self.errors, self.api - self.explained, 0.0)

    @property
    def ended(self) -> float:
        return self.failed + self.done + self.doubtful


def growth(then: Ends, now: Ends) -> Ends:
    """Return by how much each counter grew."""
    return Ends(*map(sub, now, then))


def of_engine(sample: EngineSample, *, alone: bool) -> Ends:
    """Of one engine; what the API server answered is its doing only if it is `alone` behind it."""
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
    """Of a server of several engines: what failed before an engine has seen it."""
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
        self._since_s: float | None = None  # the first look that saw a failure
        self._until_s = 0.0  # the last one
        self._last_end_s = 0.0
        self.newest = self.window = Ends()  # since the look before, and within the window
        self.kv_failed: dict[str, float] = {}  # transfers that failed since the first failure

    def look(
        self, at_s: float, ends: Ends, sample: EngineSample | None, restarts: int, *, asleep: bool
    ) -> None:
        """Take one look; counters that began anew say nothing of the time before, nor does one `asleep` on purpose.

        `sample`: of the engine; None for a server of several.
        """
        then = self._looks[-1][1] if self._looks else None
        # The first field may fall, and the last ones are counted here.
        if then is None or asleep or restarts != self._restarts or not all(map(ge, ends[1:-3], then[1:-3])):  # fmt: skip
            self._begin(at_s, ends, sample, restarts)
            return
        # A refusal is counted before its 503 is: only a new height is a failure.
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
        """How long the window is."""
        return self._looks[-1][0] - self._looks[0][0]

    def quiet(self, at_s: float) -> bool:
        """Has nothing failed for a while, in which something ended, or in which nobody asked any more?"""
        if self._since_s is None:
            return True
        ago_s = at_s - self._until_s
        return ago_s > WINDOW_SECONDS_MAX or (
            ago_s > WINDOW_SECONDS and self._last_end_s > self._until_s
        )

    def present(self, at_s: float) -> bool:
        """Do requests still fail, as far as any end?"""
        return at_s - self._until_s <= PRESENT_SECONDS or self._last_end_s <= self._until_s

    @property
    def began_s(self) -> float | None:
        """When the first of them failed; None while none did."""
        return self._since_s

    @property
    def lasted_s(self) -> float:
        """From the first failure to the last."""
        return 0.0 if self._since_s is None else self._until_s - self._since_s

    def share(self, *, doubtful: bool = False) -> float:
        """Of what ended within the window, how much has failed; with what is `doubtful`, or without."""
        failed = self.window.failed + (self.window.doubtful if doubtful else 0.0)
        return failed / (failed + self.window.done) if failed else 0.0

    @property
    def text(self) -> str:
        """The same in words."""
        now = self.window
        failed, how = (now.failed, "failed") if now.failed else (now.doubtful, "ended without an answer")  # fmt: skip
        none = ", and no token was generated" if not now.tokens else ""
        return f"{failed:.0f} of {failed + now.done:.0f} requests {how} of late{none}"


def _short_and_cut(
    grown: Ends, before: EngineSample | None, now: EngineSample | None
) -> tuple[float, float]:
    """Return how many answers since the look before are `Ends.short` and `Ends.cut`: never more than are known to be."""
    if before is None or now is None or not grown.done or not now.generation_tokens:
        return 0.0, 0.0  # the last is a pooling model
    got = _at_most(before.request_generation_tokens, now.request_generation_tokens)
    asked = _at_most(before.request_params_max_tokens, now.request_params_max_tokens)
    others = grown.aborted + grown.errors + grown.repeated
    # Every answer but a short one has at least two tokens.
    short = max(got.get(1.0, 0.0) - others, 2 * grown.done - grown.tokens) - asked.get(1.0, 0.0)
    cut = max((got[each] - asked[each] for each in got.keys() & asked.keys()), default=0.0)
    others += grown.stop + max(grown.answers - grown.asked, 0.0)
    return min(max(short, 0.0), grown.done), min(max(cut - others, 0.0), grown.length)


def _at_most(before: Histogram | None, now: Histogram | None) -> dict[float, float]:
    """Upper bound → how many more observations are at or under it."""
    if before is None or now is None or before.bounds != now.bounds:
        return {}
    return dict(zip(now.bounds, map(sub, now.cumulative, before.cumulative), strict=False))
