"""Finds an engine that crawls, or that serves none of its clients."""

from vllm_watch.detectors.base import Evidence
from vllm_watch.samples.engine import EngineSample
from vllm_watch.signals.blocks import Block
from vllm_watch.support.durations import in_words

CRAWL_STEP_SECONDS = 1.0
"""An engine crawls if a step takes this long. A GPU reads all weights in 20 to 60 ms, or in 0.5 s
from shared host memory."""

CRAWL_TOKENS_MAX = 16.0
"""A healthy step of at most this many tokens takes no longer than reading the weights."""

CRAWL_SECONDS = 60.0
"""Crawling for this many seconds is a finding."""

LEFT_MIN, LEFT_SECONDS = 10.0, 300.0
"""Clients are unserved if this many requests were aborted, and none has finished for this many
seconds."""


class Unserved:
    """Follows one process of an engine."""

    def __init__(self) -> None:
        self._crawled_s = self._step_seconds = 0.0
        self._tokens = 0.0
        self._done: float | None = None
        self._aborted = self._at_s = 0.0  # aborts and time at the last finished request
        self._last, self._last_s = 0.0, 0.0
        self.left: Evidence | None = None

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
            self._done, self._aborted, self._at_s, self.left = done, aborted, at_s, None
        if aborted != self._last:
            self._last, self._last_s = aborted, at_s
        if at_s - self._last_s > LEFT_SECONDS:
            self.left = None
            return
        count, seconds = aborted - self._aborted, at_s - self._at_s
        if count >= LEFT_MIN and seconds >= LEFT_SECONDS:
            text = f"clients have aborted {count:.0f} requests in {in_words(seconds)}, and none finished"
            self.left = Evidence(name="requests_aborted", value=count, expected=0.0, text=text)

    def crawls(self) -> Evidence | None:
        if self._crawled_s < CRAWL_SECONDS:
            return None
        text = f"{self._step_seconds:.2f} s for a step of {self._tokens:.0f} tokens, far longer than any GPU needs to read its whole memory"
        return Evidence(name="step_seconds", value=self._step_seconds, unit="s", text=text)
