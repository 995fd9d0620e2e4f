"""Predicts the step time of a healthy engine: a + b · tokens per step + c · KV cache in use (the
roofline of decoding).

The fit never forgets, so a creeping slowdown does not become normal. Source: vLLM's estimates of
flops and read bytes.

Step times by load limit the healthy step time at any other load: a step with twice the tokens and
three times the KV cache takes at most three times as long.
"""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from math import floor, inf, log, sqrt
from typing import Any, ClassVar

from vllm_watch.signals import stored
from vllm_watch.signals.scales import CONFIRMED, KEPT_MAX, MOMENT_SECONDS, ODD_TIMES, TWICE

GRAIN = log(ODD_TIMES)


USAGE_MIN, TOKENS_MIN = 0.01, 1.0
"""Smaller KV usage and fewer tokens cost no measurable time, and are raised to these values."""


class SeenLoads:
    """Means of step time, tokens per step and KV usage for each load."""

    def __init__(self) -> None:
        self._met: dict[tuple[int, int], list[float]] = {}  # blocks, seconds, tokens, usage

    def export_state(self) -> list[list[float]]:
        return [[*key, *met] for key, met in self._met.items()]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        rows = [stored.numbers(row, 6) for row in state[:KEPT_MAX]]
        self._met = {(int(row[0]), int(row[1])): row[2:] for row in rows}

    def learn(self, step_seconds: float, tokens_per_step: float, kv_usage: float) -> None:
        tokens, usage = max(TOKENS_MIN, tokens_per_step), max(USAGE_MIN, kv_usage)
        key = _key(tokens, usage)
        met = self._met.get(key)
        if met is None:
            if len(self._met) < KEPT_MAX:
                self._met[key] = [1.0, step_seconds, tokens, usage]
            return
        met[0] += 1.0
        for index, value in enumerate((step_seconds, tokens, usage), 1):
            met[index] += (value - met[index]) / met[0]

    def has(self, tokens_per_step: float, kv_usage: float) -> bool:
        """Return True if a load of about this size, or a larger one, has occurred."""
        tokens, usage = tokens_per_step / ODD_TIMES, kv_usage / ODD_TIMES
        return any(
            blocks >= CONFIRMED and most_tokens >= tokens and most_usage >= usage
            for blocks, _, most_tokens, most_usage in self._met.values()
        )

    def nearest(self, tokens_per_step: float, kv_usage: float) -> list[float] | None:
        """Return step seconds, tokens and KV usage of the most similar load."""
        a, b = _key(max(TOKENS_MIN, tokens_per_step), max(USAGE_MIN, kv_usage))
        here = self._met.get((a, b))
        if here is not None and here[0] >= CONFIRMED:
            return here[1:]
        met = (
            (abs(x - a) + abs(y - b), each[1:])
            for (x, y), each in self._met.items()
            if each[0] >= CONFIRMED
        )
        return min(met, default=(0, None))[1]

    def longest_seconds(self, tokens_per_step: float, kv_usage: float) -> float | None:
        limits = [
            seconds * max(1.0, tokens_per_step / tokens, kv_usage / usage)
            for blocks, seconds, tokens, usage in self._met.values()
            if blocks >= CONFIRMED
        ]
        return min(limits, default=None)


def _key(tokens: float, usage: float) -> tuple[int, int]:
    return floor(log(tokens) / GRAIN), floor(log(usage) / GRAIN)


PRIOR = 1e-3
"""Weight of the prior. It makes the equations solvable, and is negligible after a minute."""

SCATTER_FIRST = 0.25
"""Assumed scatter until it is measured. Healthy blocks of a real engine vary by this much."""

SCATTER_MIN = 0.05
"""Minimum scatter. A model with three parameters is never more exact."""

SCATTER_MEMORY_BLOCKS = 150.0
"""The scatter is averaged over this many blocks, 12 minutes at 5 s."""

READY_BLOCKS = 12
"""The model is used after this many blocks, four for each parameter."""

READY_SECONDS = 40.0
"""The model, and average throughput, are used after this many seconds of work. Restarted engines must
be covered within a minute or two."""

NEWS = 0.02
SOLVE_EVERY = 8
"""The fit is solved again after a block with more leverage than NEWS, or after this many blocks."""


_PARTS = (0, 1, 2)
_SUBSETS = [subset for size in (3, 2, 1) for subset in combinations(_PARTS, size)]

Vector = tuple[float, float, float]


def _gram(state: Any) -> list[list[float]]:
    gram = [stored.numbers(row, len(_PARTS)) for row in state]
    if len(gram) != len(_PARTS) or any(gram[i][i] < 0.0 for i in _PARTS):
        raise ValueError("the equations are not three")
    return gram


class StepModel(stored.Kept):
    """The fitted step time, and the scatter of blocks around it."""

    KEPT: ClassVar[stored.Fields] = {
        "blocks": stored.count,
        "seconds": stored.amount,
        "gram": _gram,
        "moment": partial(stored.numbers, count=len(_PARTS)),
        "scatter_square": stored.amount,
    }

    def __init__(self) -> None:
        self.blocks = 0
        self.seconds = 0.0
        self.coefficients: Vector = (0.0, 0.0, 0.0)
        self._gram: list[list[float]] = [[0.0] * 3 for _ in _PARTS]
        self._moment = [0.0, 0.0, 0.0]
        self._inverse: list[Vector] = []
        self._unsolved = 0
        self.met = SeenLoads()
        self._scatter_square = SCATTER_FIRST**2

    @property
    def ready(self) -> bool:
        return self.blocks >= READY_BLOCKS and self.seconds >= READY_SECONDS

    @property
    def scatter(self) -> float:
        return max(SCATTER_MIN, sqrt(self._scatter_square))

    def seconds_of(self, tokens_per_step: float, kv_usage: float) -> float | None:
        a, b, c = self.coefficients
        expected = a + b * tokens_per_step + c * kv_usage
        return expected if expected > 0 else None

    def usual_seconds(self, tokens_per_step: float, kv_usage: float) -> float | None:
        expected = self.seconds_of(tokens_per_step, kv_usage)
        near = self.met.nearest(tokens_per_step, kv_usage)
        fitted = near and self.seconds_of(near[1], near[2])
        if not (expected and near and fitted):
            return expected
        return expected * max(1.0, near[0] / fitted)

    def deviation(self, tokens_per_step: float, kv_usage: float) -> float:
        expected = self.seconds_of(tokens_per_step, kv_usage)
        if expected is None or not self._inverse:
            return SCATTER_FIRST
        row = (1.0 / expected, tokens_per_step / expected, kv_usage / expected)
        return self.scatter * sqrt(1.0 + self._leverage(row))

    def familiar(self, tokens_per_step: float, kv_usage: float) -> bool:
        return self.knows(tokens_per_step, kv_usage) and self.met.has(tokens_per_step, kv_usage)

    def knows(self, tokens_per_step: float, kv_usage: float) -> bool:
        if not self.seconds:
            return False
        leverage = (self.deviation(tokens_per_step, kv_usage) / self.scatter) ** 2 - 1.0
        # Blocks within this time share requests, because an answer takes 10 to 60 s.
        repeats = max(1.0, MOMENT_SECONDS * self.blocks / self.seconds)
        return 1.0 + repeats * max(0.0, leverage) <= TWICE**2

    def _leverage(self, row: Vector) -> float:
        """Return the fit's uncertainty at a load, from 0 (known) to over 1 (a guess)."""
        if not self._inverse:
            return inf
        x, y, z = row
        (a, b, c), (_, d, e), (_, _, f) = self._inverse
        return max(
            0.0, a * x * x + d * y * y + f * z * z + 2.0 * (b * x * y + c * x * z + e * y * z)
        )

    def learn(
        self, step_seconds: float, tokens_per_step: float, kv_usage: float, seconds: float
    ) -> None:
        expected = self.seconds_of(tokens_per_step, kv_usage)
        if self.blocks == 0:
            self._begin(step_seconds, tokens_per_step, kv_usage)
        elif expected is not None and self.blocks >= len(_PARTS):
            self._note(log(step_seconds / expected))
        # Scale a step by its expected time. Otherwise errors of short steps would weigh more.
        scale = max(step_seconds, expected or 0.0)
        row = (1.0 / scale, tokens_per_step / scale, kv_usage / scale)
        for i in _PARTS:
            self._moment[i] += row[i] * step_seconds / scale
            for j in _PARTS:
                self._gram[i][j] += row[i] * row[j]
        self.met.learn(step_seconds, tokens_per_step, kv_usage)
        self.blocks += 1
        self.seconds += seconds
        self._unsolved += 1
        if self._leverage(row) > NEWS or self._unsolved >= SOLVE_EVERY:
            self._unsolved = 0
            self._solve()

    def widen(self, log_ratios: list[float]) -> None:
        for log_ratio in log_ratios:
            self._note(log_ratio)

    def export_state(self) -> dict[str, Any]:
        return {**super().export_state(), "met": self.met.export_state()}

    def restore(self, state: stored.Stored) -> None:
        super().restore(state)
        self.met.restore(state["met"])
        if self.blocks:
            self._solve()

    def _begin(self, step_seconds: float, tokens_per_step: float, kv_usage: float) -> None:
        scales = (
            step_seconds,
            step_seconds / max(tokens_per_step, 1.0),
            step_seconds / max(kv_usage, 0.05),
        )
        for i, scale in enumerate(scales):
            self._gram[i][i] += PRIOR / scale**2
            self._moment[i] += PRIOR / 3.0 / scale

    def _note(self, log_ratio: float) -> None:
        limit = 4.0 * sqrt(self._scatter_square)
        off = max(-limit, min(limit, log_ratio))
        share = 1.0 / min(self.blocks, SCATTER_MEMORY_BLOCKS)
        self._scatter_square += share * (off * off - self._scatter_square)

    def _solve(self) -> None:
        best, least = None, 0.0
        for subset in _SUBSETS:
            found = _solution(self._gram, self._moment, subset)
            if found is None or min(found) < 0.0:
                continue
            gain = sum(found[i] * self._moment[i] for i in _PARTS)
            if best is None or gain > least:
                best, least = found, gain
            if len(subset) == len(_PARTS):
                break
        if best is not None:
            self.coefficients = best
        self._inverse = _inverse(self._gram)


def _solution(
    gram: list[list[float]], moment: list[float], subset: tuple[int, ...]
) -> Vector | None:
    size = len(subset)
    rows = [[gram[i][j] for j in subset] + [moment[i]] for i in subset]
    for k in range(size):
        if rows[k][k] <= 0.0:
            return None
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            for j in range(k, size + 1):
                rows[i][j] -= factor * rows[k][j]
    values = [0.0] * size
    for k in reversed(range(size)):
        rest = sum(rows[k][j] * values[j] for j in range(k + 1, size))
        values[k] = (rows[k][size] - rest) / rows[k][k]
    full = [0.0, 0.0, 0.0]
    for i, value in zip(subset, values, strict=True):
        full[i] = value
    return full[0], full[1], full[2]


def _inverse(gram: list[list[float]]) -> list[Vector]:
    columns = [_solution(gram, [1.0 if i == k else 0.0 for i in _PARTS], _PARTS) for k in _PARTS]
    return [column for column in columns if column is not None] if None not in columns else []
