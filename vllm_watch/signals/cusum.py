"""A one-sided CUSUM over evidence that comes in blocks of uneven length.

Each block brings a score: how far, in units of what is normal here, a quantity lies beyond what is
tolerated (negative: within it). Scores add up, never below 0, and an alarm is raised at 1. However loud
one block is, it counts for no more than its share of time, so a single odd block never alarms, and the
same fault is found equally surely at 1 s and at 30 s between looks.

Source: Page, "Continuous Inspection Schemes", Biometrika 41 (1954); bounded scores make it robust (Huber).
"""

from typing import Any

from vllm_watch.signals import stored

SCORE_OF_ALARM = 8.0
"""Scores that make an alarm. With unit-variance normal scores that lie 2 or more below 0 when all is
healthy, the mean run to a false alarm is exp(2 · 2 · 8), beyond 10^13 blocks (Siegmund's approximation);
what limits us is not chance but what the model does not know, hence the tolerance in the scores."""

BLOCK_SHARE_MAX = 0.6
"""No block alone makes an alarm: two in a row must agree."""

SILENCE_SECONDS = 60.0
"""Without any evidence (an idle engine), the level halves in so long."""

CEILING = 1.5
"""The level is held below this, so that it falls back below the alarm soon after the cause ended."""


class Cusum:
    """Level 0 (nothing odd) to CEILING; 1 is an alarm, which stays until the level is `clear_at`."""

    def __init__(self, alarm_seconds: float, drain_seconds: float, clear_at: float = 0.25) -> None:
        """`alarm_seconds`: even the loudest evidence takes so long, and the clearest all-clear before an
        alarm. `drain_seconds`: after an alarm the all-clear takes so long."""
        self._alarm_seconds = alarm_seconds
        self._drain_seconds = drain_seconds
        self._clear_at = clear_at
        self.level = 0.0
        self.alarm = False

    def add(self, score: float, seconds: float) -> bool:
        """Take a block's score in; return whether there is an alarm now."""
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
        """Return it as plain values."""
        return {"level": self.level, "alarm": self.alarm}

    def restore(self, state: stored.Stored, level_max: float = CEILING) -> None:
        """Go on from there; no higher than `level_max`, below 1 without an alarm."""
        level, alarm = stored.number(state["level"], 0.0), stored.flag(state["alarm"])
        self.level, self.alarm = min(level, level_max, CEILING), alarm and level_max >= 1.0

    def silence(self, seconds: float) -> None:
        """No evidence in so long."""
        if not self.alarm:
            self.level *= 0.5 ** (seconds / SILENCE_SECONDS)
