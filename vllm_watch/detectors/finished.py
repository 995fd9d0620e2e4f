"""What requests were like lately: how long those that finished, how often preempted, how long the prompts.

A helper of `throughput_collapse`: when the requests themselves have changed, the engine has not.
"""

from collections.abc import Sequence

from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block

LENGTH_HALF_SECONDS = 120.0
"""Lengths of finished requests are averaged over about this time."""

LENGTH_REQUESTS_MIN = 8.0
"""Finished requests needed to speak of their length: the first to finish are those that were nearly done."""

LATE_REQUESTS_MIN = 3.0
"""... and of those that finish later: fewer tell, for they are of today's kind."""

LATE_LIVES = 2.0
"""A request from before the trouble is through after so many usual times in the engine ..."""

LATE_SECONDS_MIN, LATE_SECONDS_MAX = 15.0, 90.0
"""... or, since it may be preempted, and since steps may be longer, after these at least and at most."""

PREEMPTED_MIN = 0.5
"""What is left of one preemption after LENGTH_HALF_SECONDS."""

LONG_PROMPT = 5.0
"""Prompts that many times as long as whole requests were are not of the usual kind; ..."""


class Finished:
    """How long the requests were that finished lately, and how often they were preempted."""

    def __init__(self) -> None:
        self._requests = self._tokens = self._preempted = 0.0

    def export_state(self) -> list[float]:
        """Return the sums as plain values."""
        return [self._requests, self._tokens, self._preempted]

    def restore(self, state: Sequence[float]) -> None:
        """Go on with the sums."""
        self._requests, self._tokens, self._preempted = stored.numbers(state, 3)

    def add(self, block: Block) -> None:
        """Take a block in."""
        keep = 0.5 ** (block.seconds / LENGTH_HALF_SECONDS)
        self._requests = self._requests * keep + (block.finished or 0.0)
        self._tokens = self._tokens * keep + (block.finished_tokens or 0.0)
        self._preempted = self._preempted * keep + (block.preempted or 0.0)

    def tokens(self, at_least: float = LENGTH_REQUESTS_MIN) -> float | None:
        """Prompt and output tokens of a request, mean; None while too few finished."""
        return self._tokens / self._requests if self._requests >= at_least else None

    @property
    def preempting(self) -> bool:
        """Were requests preempted lately?"""
        return self._preempted > PREEMPTED_MIN

    @property
    def preempted_share(self) -> float | None:
        """Preemptions for each request that finished; None while none did."""
        return self._preempted / self._requests if self._requests > 0.0 else None


def late_seconds(life_seconds: float) -> float:
    """How long after the trouble began those that finish are of its time. `life_seconds`: of a request, usual."""
    return min(LATE_SECONDS_MAX, max(LATE_SECONDS_MIN, LATE_LIVES * life_seconds))


class LongPrompts:
    """Prompts that came lately and are far longer than requests were when fresh."""

    def __init__(self) -> None:
        self.tokens = 0.0  # of all of them
        self._prompts = 0.0

    def export_state(self) -> list[float]:
        """Return the sums as plain values."""
        return [self.tokens, self._prompts]

    def restore(self, state: Sequence[float]) -> None:
        """Go on with the sums."""
        self.tokens, self._prompts = stored.numbers(state, 2)

    def add(self, block: Block, request_tokens: float | None) -> None:
        """Take a block in; `request_tokens`: of a request when fresh."""
        keep = 0.5 ** (block.seconds / LENGTH_HALF_SECONDS)
        self.tokens, self._prompts = self.tokens * keep, self._prompts * keep
        if not block.prompts or block.prompted is None or request_tokens is None:
            return
        tokens = block.prompted * block.seconds
        if tokens >= LONG_PROMPT * request_tokens * block.prompts:
            self.tokens += tokens
            self._prompts += block.prompts

    @property
    def each(self) -> float:
        """Tokens of one of them, mean; 0 where there were none."""
        return self.tokens / self._prompts if self._prompts > 0.0 else 0.0
