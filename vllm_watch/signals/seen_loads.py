"""Keeps the step times of the healthy engine by load.

These times limit the healthy step time at any other load: a step with twice the tokens and three
times the KV cache takes at most three times as long.
"""

from collections.abc import Sequence
from math import floor, log

from vllm_watch.signals import stored

NEAR = 1.5
"""Loads that differ by less than this factor may count as the same load."""

GRAIN = log(NEAR)

BLOCKS_MIN = 2

LOADS_MAX = 64
"""At most this many loads are kept. Eight by eight loads cover a factor of 25 in tokens and in KV usage."""

USAGE_MIN, TOKENS_MIN = 0.01, 1.0
"""Smaller KV usage and fewer tokens cost no measurable time, and are raised to these values."""


class SeenLoads:
    """Means of step time, tokens per step and KV usage for each load."""

    def __init__(self) -> None:
        self._met: dict[tuple[int, int], list[float]] = {}  # blocks, seconds, tokens, usage

    def export_state(self) -> list[list[float]]:
        return [[*key, *met] for key, met in self._met.items()]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        rows = [stored.numbers(row, 6) for row in state[:LOADS_MAX]]
        self._met = {(int(row[0]), int(row[1])): row[2:] for row in rows}

    def learn(self, step_seconds: float, tokens_per_step: float, kv_usage: float) -> None:
        tokens, usage = max(TOKENS_MIN, tokens_per_step), max(USAGE_MIN, kv_usage)
        key = _key(tokens, usage)
        met = self._met.get(key)
        if met is None:
            if len(self._met) < LOADS_MAX:
                self._met[key] = [1.0, step_seconds, tokens, usage]
            return
        met[0] += 1.0
        for index, value in enumerate((step_seconds, tokens, usage), 1):
            met[index] += (value - met[index]) / met[0]

    def has(self, tokens_per_step: float, kv_usage: float) -> bool:
        """Return True if a load of about this size, or a larger one, has occurred."""
        tokens, usage = tokens_per_step / NEAR, kv_usage / NEAR
        return any(
            blocks >= BLOCKS_MIN and most_tokens >= tokens and most_usage >= usage
            for blocks, _, most_tokens, most_usage in self._met.values()
        )

    def nearest(self, tokens_per_step: float, kv_usage: float) -> list[float] | None:
        """Return step seconds, tokens and KV usage of the most similar load."""
        a, b = _key(max(TOKENS_MIN, tokens_per_step), max(USAGE_MIN, kv_usage))
        met = (
            (abs(x - a) + abs(y - b), each[1:])
            for (x, y), each in self._met.items()
            if each[0] >= BLOCKS_MIN
        )
        return min(met, default=(0, None))[1]

    def longest_seconds(self, tokens_per_step: float, kv_usage: float) -> float | None:
        limits = [
            seconds * max(1.0, tokens_per_step / tokens, kv_usage / usage)
            for blocks, seconds, tokens, usage in self._met.values()
            if blocks >= BLOCKS_MIN
        ]
        return min(limits, default=None)


def _key(tokens: float, usage: float) -> tuple[int, int]:
    return floor(log(tokens) / GRAIN), floor(log(usage) / GRAIN)
