"""Sums up evidence in a one-sided CUSUM. Blocks of evidence may differ in length.

The score of a block is its distance above the tolerance, in standard deviations. It is negative
below the tolerance. The level is the sum of the scores, divided by SCORE_OF_ALARM. A block changes
the level by at most its own seconds divided by `alarm_seconds`. During an alarm, it lowers the
level by at most its own seconds divided by `drain_seconds`. Source: Page, Biometrika 41 (1954).
"""

from typing import Any

from vllm_watch.signals import stored

SCORE_OF_ALARM = 8.0
"""This sum of scores gives level 1. If healthy scores are normally distributed with unit variance
and a mean of at most −2, one false alarm occurs in exp(2 · 2 · 8) blocks on average, over 10^13."""

BLOCK_SHARE_MAX = 0.6
"""One block changes the level by at most this, so that an alarm takes at least two blocks."""

SILENCE_SECONDS = 60.0
"""Without usable blocks, the level halves in this time, except during an alarm."""

CEILING = 1.5
"""The level is never above this, so that an alarm clears soon after its cause ends."""


class Cusum:
    """A level from 0 to CEILING. An alarm begins at 1 and ends at `clear_at`."""

    def __init__(self, alarm_seconds: float, drain_seconds: float, clear_at: float = 0.25) -> None:
        self._alarm_seconds = alarm_seconds
        self._drain_seconds = drain_seconds
        self._clear_at = clear_at
        self.level = 0.0
        self.alarm = False

    def add(self, score: float, seconds: float) -> bool:
        up = min(seconds / self._alarm_seconds, BLOCK_SHARE_MAX)
        down = up
        if self.alarm:
            down = min(seconds / self._drain_seconds, BLOCK_SHARE_MAX)
        step = max(-down, min(up, score / SCORE_OF_ALARM))
        self.level = max(0.0, min(CEILING, self.level + step))
        if self.level >= 1.0 - 1e-9:
            self.alarm = True
        elif self.level <= self._clear_at:
            self.alarm = False
        return self.alarm

    def export_state(self) -> dict[str, Any]:
        return {"level": self.level, "alarm": self.alarm}

    def restore(self, state: stored.Stored, level_max: float = CEILING) -> None:
        level, alarm = stored.number(state["level"], 0.0), stored.flag(state["alarm"])
        self.level, self.alarm = min(level, level_max, CEILING), alarm and level_max >= 1.0

    def silence(self, seconds: float) -> None:
        if not self.alarm:
            self.level *= 0.5 ** (seconds / SILENCE_SECONDS)
