"""Compares an engine with its own past: its work, requests without tokens, and clients without answers.

Each test has `add`, which takes a block, and finds evidence or None.
"""

from collections import deque
from math import exp, floor, log
from statistics import median
from typing import NamedTuple

from vllm_watch.detectors.base import Evidence
from vllm_watch.samples.engine import EngineSample
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.scales import (
    ALIKE,
    DAYTIME_SECONDS,
    FEW,
    FIVE_MINUTES_SECONDS,
    HALF_MINUTE_SECONDS,
    KEPT_MAX,
    MANY,
    MINUTE_SECONDS,
    ODD_TIMES,
    PART_SHARE,
    TWICE,
)
from vllm_watch.signals.step_model import GRAIN
from vllm_watch.signals.throughput import LEARNT_SECONDS
from vllm_watch.support.quantities import in_words

TIMES_MIN = 3.0
"""The running requests and the step time must both be this many times their usual values. Adapters,
grammars and images lengthen steps by up to half."""


class Work(NamedTuple):
    """An engine's mean load, tokens per second and step time."""

    running: float = 0.0
    generated: float = 0.0
    prompted: float = 0.0
    kv_usage: float = 0.0
    step_seconds: float = 0.0

    def times(self, usual: "Work") -> tuple[float, float]:
        """Return how many times as many requests run, and as long steps take, as usual."""
        return self.running / usual.running, self.step_seconds / usual.step_seconds

    def is_behind(self, usual: "Work", least: float, more: float) -> bool:
        """Return True if both are at least `least` times as usual, and no more is done than `more` times the usual work."""
        if self.generated > more * usual.generated:
            return False
        if usual.prompted and self.prompted > more * usual.prompted:
            return False
        alike = self.kv_usage / self.running <= ALIKE * usual.kv_usage / usual.running
        return alike and min(self.times(usual)) >= least

    def mixed(self, now: "Work", share: float) -> "Work":
        return Work(*[old + share * (new - old) for old, new in zip(self, now, strict=True)])


class OwnWork:
    """Finds a process that runs far more requests at once than before, for the same work."""

    def __init__(self) -> None:
        self.now = self._lately = Work()
        self.at_s = self._seconds = 0.0
        self.behind_s: float | None = None
        self._usual: dict[int, tuple[float, Work]] = {}  # grouped rate → (seconds, means)
        self._found: Evidence | None = None

    @property
    def known(self) -> bool:
        return self._seconds >= LEARNT_SECONDS

    def add(self, block: Block) -> None:
        if block.recomputed or not (
            block.step_seconds and block.generated and block.running and block.kv_usage
        ):
            return
        prompted = block.prompted or 0.0
        seen = Work(block.running, block.generated, prompted, block.kv_usage, block.step_seconds)
        self.now = self.now.mixed(seen, share_of(block.seconds, self._seconds))
        self._lately = self._lately.mixed(seen, 1.0 - exp(-block.seconds / HALF_MINUTE_SECONDS))
        self.at_s, self._seconds = block.at_s, self._seconds + block.seconds
        if not self.known:
            return
        rate = floor(log(self.now.generated) / GRAIN)
        seconds, usual = self._usual.get(rate, (0.0, self.now))
        known = seconds >= LEARNT_SECONDS
        lasts = known and self.now.is_behind(usual, TIMES_MIN, ALIKE)
        least, most = (ODD_TIMES, ODD_TIMES) if self._found else (TWICE, ALIKE)
        present = lasts and self._lately.is_behind(usual, least, most)
        self._found = self._evidence(usual) if present else None
        odd = known and min(self.now.times(usual)) >= ODD_TIMES
        if not odd and (rate in self._usual or len(self._usual) < KEPT_MAX):
            seconds = min(seconds + block.seconds, DAYTIME_SECONDS)
            self._usual[rate] = seconds, usual.mixed(self.now, block.seconds / seconds)

    def found(self) -> Evidence | None:
        return self._found

    def _evidence(self, usual: Work) -> Evidence:
        requests, steps = self.now.times(usual)
        text = (
            f"it runs {requests:.1f} times as many requests at once as usual and produces no more tokens per second;"
            f" each step takes {steps:.1f} times as long"
        )
        return Evidence(name="step_time_ratio", value=steps, expected=1.0, text=text)


def share_of(seconds: float, before_s: float) -> float:
    """Return a block's weight in a mean over five minutes, in which requests even out."""
    return max(1.0 - exp(-seconds / FIVE_MINUTES_SECONDS), seconds / (before_s + seconds))


class Stuck:
    """Finds requests that run for minutes without a token, although others are served.

    A stuck request neither decodes nor prefills.
    """

    def __init__(self) -> None:
        self._sums = [0.0, 0.0, 0.0, 0.0]  # seconds, running, decoding, prefilling
        self._tokens: deque[float] = deque(maxlen=KEPT_MAX)  # per step and running request
        self._usual: deque[float] = deque(maxlen=KEPT_MAX)  # shares of stuck requests
        self._minutes: deque[tuple[float, float]] = deque(maxlen=MANY)  # excess share, running

    def add(self, block: Block) -> None:
        if not block.steps or block.first_token_seconds is None or block.generated <= 0.0:
            self._minutes.clear()
            self._sums = [0.0, 0.0, 0.0, 0.0]
            return
        decoding = block.generated * block.seconds / block.steps
        prefilling = block.first_token_seconds / block.seconds
        for index, value in enumerate((1.0, block.running, decoding, prefilling)):
            self._sums[index] += value * block.seconds
        seconds, running, decoding, prefilling = self._sums
        if seconds >= MINUTE_SECONDS:
            self._sums = [0.0, 0.0, 0.0, 0.0]
            if running > 0.0:
                self._close(running / seconds, decoding / running, prefilling / running)

    def _close(self, running: float, decoding: float, prefilling: float) -> None:
        self._tokens.append(decoding)
        # Speculative decoding yields more tokens for each step and request.
        if median(self._tokens) > ALIKE:
            self._minutes.clear()
            return
        share = max(0.0, 1.0 - decoding - prefilling)
        beyond = share - median(self._usual) if self._usual else 0.0
        if len(self._usual) >= MANY:
            self._minutes.append((beyond, running))
        if beyond < 0.5 * PART_SHARE:
            self._usual.append(share)

    def found(self) -> Evidence | None:
        if len(self._minutes) < MANY:
            return None
        share = min(beyond for beyond, _ in self._minutes)
        running = self._minutes[-1][1]
        count = share * running
        if share < PART_SHARE or count < FEW:
            return None
        text = f"{count:.0f} of {running:.0f} running requests have got no token for {MANY} minutes, while others come and go"
        return Evidence(name="requests_stuck", value=round(count), expected=0.0, text=text)


CRAWL_STEP_SECONDS = 1.0
"""An engine crawls if a step takes this long. A GPU reads all weights in 20 to 60 ms, or in 0.5 s
from shared host memory."""

CRAWL_TOKENS_MAX = 16.0
"""A healthy step of at most this many tokens takes no longer than reading the weights."""


class Unserved:
    """Finds a process that crawls, or that serves none of its clients."""

    def __init__(self) -> None:
        self._crawled_s = self._step_seconds = 0.0
        self._tokens = 0.0
        self._done: float | None = None
        self._aborted = self._at_s = 0.0  # aborts and time at the last finished request
        self._last, self._last_s = 0.0, 0.0
        self._left: Evidence | None = None

    def add(self, block: Block) -> None:
        step, tokens = block.step_seconds, block.tokens_per_step
        if not step or tokens is None:
            self._crawled_s = 0.0
            return
        crawls = step >= CRAWL_STEP_SECONDS and tokens <= CRAWL_TOKENS_MAX
        self._crawled_s = self._crawled_s + block.seconds if crawls else 0.0
        self._step_seconds, self._tokens = step, tokens

    def look(self, at_s: float, sample: EngineSample, *, known: bool) -> None:
        ends = sample.request_success
        if ends is None:
            return
        aborted = ends.get("abort", 0.0)
        done = sum(ends.values()) - aborted - ends.get("error", 0.0)
        if not known or done != self._done or aborted < self._aborted:
            self._done, self._aborted, self._at_s, self._left = done, aborted, at_s, None
        if aborted != self._last:
            self._last, self._last_s = aborted, at_s
        if at_s - self._last_s > FIVE_MINUTES_SECONDS:
            self._left = None
            return
        count, seconds = aborted - self._aborted, at_s - self._at_s
        if count >= MANY and seconds >= FIVE_MINUTES_SECONDS:
            text = f"clients have aborted {count:.0f} requests in {in_words(seconds)}, and none finished"
            self._left = Evidence(name="requests_aborted", value=count, expected=0.0, text=text)

    def left(self) -> Evidence | None:
        return self._left

    def crawls(self) -> Evidence | None:
        if self._crawled_s < MINUTE_SECONDS:
            return None
        text = f"{self._step_seconds:.2f} s for a step of {self._tokens:.0f} tokens, far longer than any GPU needs to read its whole memory"
        return Evidence(name="step_seconds", value=self._step_seconds, unit="s", text=text)
