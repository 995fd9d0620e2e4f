"""The alarm of one family of causes: since when there is doubt, whether it still has a reason, and its cause."""

from vllm_watch.detectors.collapse_causes import Cause
from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block

NORMAL_BLOCKS = 2
"""After this many blocks in a row without a reason the trouble is gone; a single one may be luck."""


class Alarm:
    """Follows one CUSUM of the baseline. Nothing of it says anything of the other family."""

    def __init__(self) -> None:
        self.cause: Cause | None = None  # while it holds
        self._since_s: float | None = None  # start of the first block that raised doubt
        self._normal_blocks = 0  # in a row

    @property
    def over(self) -> bool:
        """Return True if the last blocks gave it no reason."""
        return self._normal_blocks >= NORMAL_BLOCKS

    def follow(self, block: Block, level: float, *, alarm: bool, reason: bool) -> None:
        """Take a block in. `level`: of the CUSUM; `reason`: whether this block adds to it."""
        self._normal_blocks = self._normal_blocks + 1 if alarm and not reason else 0
        if not alarm:
            self.cause = None
        if level <= 0.0:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = block.at_s - block.seconds

    def lasted_s(self, at_s: float) -> float:
        """Return for how many seconds there has been doubt."""
        return 0.0 if self._since_s is None else max(0.0, at_s - self._since_s)

    @property
    def kept_cause(self) -> str | None:
        """The name of the cause, for the state folder."""
        return None if self.cause is None else self.cause.name

    def restore(self, cause: object) -> None:
        """Take the kept name of the cause. Raises one of stored.DAMAGE."""
        self.cause = None if cause is None else Cause(stored.text(cause), ())
