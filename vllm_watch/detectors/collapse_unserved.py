"""Finds an engine that crawls or serves none of its clients. Does not need the engine's past."""

from vllm_watch.detectors.base import Evidence
from vllm_watch.samples.engine import EngineSample
from vllm_watch.signals.blocks import Block
from vllm_watch.support.durations import in_words

CRAWL_STEP_SECONDS = 1.0
"""Minimum step time of an engine that crawls: a step for few tokens only reads the weights once. GPUs read all memory
in 20 to 60 ms, GPUs with shared host memory in 0.5 s."""

CRAWL_TOKENS_MAX = 16.0
"""Up to this many tokens, a step takes no longer than reading the weights."""

CRAWL_SECONDS = 60.0
"""Seconds of work that the engine must crawl without a break."""

LEFT_MIN, LEFT_SECONDS = 10.0, 300.0
"""No client is served if, for LEFT_SECONDS, LEFT_MIN requests abort and none finishes: some clients hang up by chance, but
not all of them for minutes."""


class Unserved:
    """Follows one process of an engine."""

    def __init__(self) -> None:
        self._crawled_s = self._step_seconds = 0.0
        self._tokens = 0.0
        self._done: float | None = None
        self._aborted = self._at_s = 0.0  # count and time at the last finish
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
