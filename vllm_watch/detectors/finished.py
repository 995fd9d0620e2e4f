"""Recent requests: length of finished ones, preemptions, prompt lengths. A helper of `throughput_collapse`.

If the requests have changed, the engine has not.
"""

from collections.abc import Sequence

from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block

LENGTH_HALF_SECONDS = 120.0
"""Averaging time of finished requests' lengths."""

LENGTH_REQUESTS_MIN = 8.0
"""Finished requests needed for a mean length: the first to finish were nearly done."""

LATE_REQUESTS_MIN = 3.0
"""Of late finishers fewer suffice, as all are of today's kind."""

LATE_LIVES = 2.0
"""A request from before the trouble has left after this many usual times in the engine."""

LATE_SECONDS_MIN, LATE_SECONDS_MAX = 15.0, 90.0
"""Bounds of that time: requests may be preempted, and steps may be longer."""

PREEMPTED_MIN = 0.5
"""Remainder of one preemption after LENGTH_HALF_SECONDS."""

LONG_PROMPT = 5.0
"""Prompts this many times as long as whole requests were are unusual."""


class Finished:
    """Lengths and preemptions of recently finished requests."""

    def __init__(self) -> None:
        self._requests = self._tokens = self._preempted = 0.0

    def export_state(self) -> list[float]:
        return [self._requests, self._tokens, self._preempted]

    def restore(self, state: Sequence[float]) -> None:
        self._requests, self._tokens, self._preempted = stored.numbers(state, 3)

    def add(self, block: Block) -> None:
        keep = 0.5 ** (block.seconds / LENGTH_HALF_SECONDS)
        self._requests = self._requests * keep + (block.finished or 0.0)
        self._tokens = self._tokens * keep + (block.finished_tokens or 0.0)
        self._preempted = self._preempted * keep + (block.preempted or 0.0)

    def tokens(self, at_least: float = LENGTH_REQUESTS_MIN) -> float | None:
        """Return the mean prompt and output tokens of a request; None while too few finished."""
        return self._tokens / self._requests if self._requests >= at_least else None

    @property
    def preempting(self) -> bool:
        return self._preempted > PREEMPTED_MIN

    @property
    def preempted_share(self) -> float | None:
        """Return preemptions per finished request; None if none finished."""
        return self._preempted / self._requests if self._requests > 0.0 else None


def late_seconds(life_seconds: float) -> float:
    """Return how long after the trouble began its requests finish. `life_seconds`: usual time of a request."""
    return min(LATE_SECONDS_MAX, max(LATE_SECONDS_MIN, LATE_LIVES * life_seconds))


class LongPrompts:
    """Recent prompts far longer than requests were when fresh."""

    def __init__(self) -> None:
        self.tokens = 0.0  # of all of them
        self._prompts = 0.0

    def export_state(self) -> list[float]:
        return [self.tokens, self._prompts]

    def restore(self, state: Sequence[float]) -> None:
        self.tokens, self._prompts = stored.numbers(state, 2)

    def add(self, block: Block, request_tokens: float | None) -> None:
        """Add a block. `request_tokens`: of a request when fresh."""
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
        """Return their mean tokens; 0 if none."""
        return self.tokens / self._prompts if self._prompts > 0.0 else 0.0
