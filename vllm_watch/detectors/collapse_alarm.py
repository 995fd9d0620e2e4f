"""Follows one alarm of `throughput_collapse`: slow steps, or a shortage of KV pages."""

from vllm_watch.detectors.collapse_causes import Cause
from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block

NORMAL_BLOCKS = 2
"""This many consecutive normal blocks end an alarm. A single one may be chance."""


class Alarm:
    """Follows one CUSUM of the baseline."""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self._since_s: float | None = None
        self._normal_blocks = 0

    @property
    def over(self) -> bool:
        return self._normal_blocks >= NORMAL_BLOCKS

    def follow(self, block: Block, level: float, *, alarm: bool, reason: bool) -> None:
        self._normal_blocks = self._normal_blocks + 1 if alarm and not reason else 0
        if not alarm:
            self.cause = None
        if level <= 0.0:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = block.at_s - block.seconds

    def lasted_s(self, at_s: float) -> float:
        return 0.0 if self._since_s is None else max(0.0, at_s - self._since_s)

    @property
    def kept_cause(self) -> str | None:
        return None if self.cause is None else self.cause.name

    def restore(self, cause: object) -> None:
        self.cause = None if cause is None else Cause(stored.text(cause), ())
