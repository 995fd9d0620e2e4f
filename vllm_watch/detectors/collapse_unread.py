"""For how long have most pages in use been held by nobody who runs? Then a restart frees them."""

from math import exp

from vllm_watch.detectors.collapse_causes import LEAK_SHARE_MIN, UNREAD_SHARE
from vllm_watch.signals.baseline import SLOW_TOLERANCE, Baseline, Comparison
from vllm_watch.signals.pages import none_prefilling
from vllm_watch.signals.step_model import StepModel

UNHELD_SECONDS = 15.0
"""For so long no request must account for the pages in use, while none is being prefilled, to advise a restart."""

BLIND_SECONDS = 60.0
"""... and for so long where the usual step time is not known: one prompt among many may hide then, and takes no longer."""

UNREAD_LOG_RATIO = 0.1
"""Where tokens of finished requests are not counted: steps must be that much shorter (log) than the pages in use would make them, for the claim to be sure,"""

UNREAD_DEVIATIONS = 1.5
"""... and so many standard deviations of the model at this load, which it may never have met."""


class Unread:
    """Follows an engine while it starves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def surely(self) -> bool:
        """For so long that no prompt under way can be it?"""
        return self.seconds >= UNHELD_SECONDS

    def follow(
        self, comparison: Comparison, baseline: Baseline, unheld: float | None, quiet_ratio: float
    ) -> None:
        """Take a block in. `unheld`: share of the cache for which no request in flight accounts; `quiet_ratio`:
        smoothed log ratio of step time."""
        block, slow = comparison.block, comparison.slow_log_ratio
        if slow is None:
            slow = baseline.former_log_ratio(block)
        if unheld is None:
            unread = _is_unread(comparison, baseline.model, quiet_ratio)
        elif unheld < LEAK_SHARE_MIN:
            unread = False
        elif none_prefilling(block) and (slow is None or slow < SLOW_TOLERANCE):
            unread = True
        else:
            return  # perhaps a prompt under way, which makes steps long: neither said nor denied
        counts = UNHELD_SECONDS / BLIND_SECONDS if slow is None else 1.0
        self.seconds = self.seconds + counts * block.seconds if unread else 0.0


def _is_unread(comparison: Comparison, model: StepModel, quiet_ratio: float) -> bool:
    """Do steps not take the time to read most pages in use? Then nobody who runs holds them."""
    block = comparison.block
    a, b, c = model.coefficients
    sure = max(UNREAD_LOG_RATIO, UNREAD_DEVIATIONS * (comparison.deviation or 0.0))
    if comparison.slow_log_ratio is None or -quiet_ratio < sure or not block.kv_usage or c <= 0.0:
        return False
    expected = comparison.expected_step_seconds or 0.0
    read = (expected * exp(quiet_ratio) - a - b * (block.tokens_per_step or 0.0)) / c
    return read < (1.0 - UNREAD_SHARE) * block.kv_usage
