"""Keeps the lengths and preemptions of recent requests."""

from collections.abc import Sequence

from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block

LENGTH_HALF_SECONDS = 120.0
"""Half-life of a finished request's weight in the mean length."""

LENGTH_REQUESTS_MIN = 8.0
"""A mean length needs this many requests."""

LATE_REQUESTS_MIN = 3.0
"""This many requests suffice for a mean length if all of them began after a change."""

LATE_LIVES = 2.0
"""Requests from before a change count as ended after this many times the usual duration."""

LATE_SECONDS_MIN, LATE_SECONDS_MAX = 15.0, 90.0
"""Requests from before a change count as ended after at least LATE_SECONDS_MIN and at most
LATE_SECONDS_MAX."""

PREEMPTED_MIN = 0.5
"""Requests preempt each other if the decayed count of preemptions exceeds this. One preemption
counts for LENGTH_HALF_SECONDS."""

LONG_PROMPT = 5.0
"""A prompt is long if it has this many times the usual total tokens of a request."""


class Finished:
    """Counts recently finished requests."""

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
        return self._tokens / self._requests if self._requests >= at_least else None

    @property
    def preempting(self) -> bool:
        return self._preempted > PREEMPTED_MIN

    @property
    def preempted_share(self) -> float | None:
        return self._preempted / self._requests if self._requests > 0.0 else None


def late_seconds(life_seconds: float) -> float:
    """Return the seconds until requests from before a change count as ended."""
    return min(LATE_SECONDS_MAX, max(LATE_SECONDS_MIN, LATE_LIVES * life_seconds))


class LongPrompts:
    """Counts recent prompts that are far longer than usual requests."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self._prompts = 0.0

    def export_state(self) -> list[float]:
        return [self.tokens, self._prompts]

    def restore(self, state: Sequence[float]) -> None:
        self.tokens, self._prompts = stored.numbers(state, 2)

    def add(self, block: Block, request_tokens: float | None) -> None:
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
        return self.tokens / self._prompts if self._prompts > 0.0 else 0.0
