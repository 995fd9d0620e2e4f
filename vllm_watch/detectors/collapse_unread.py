"""Measures how long KV pages have been in use although no running request holds them."""

from math import exp

from vllm_watch.detectors.collapse_causes import LEAK_SHARE_MIN, UNREAD_SHARE
from vllm_watch.signals.baseline import SLOW_TOLERANCE, Baseline, Comparison
from vllm_watch.signals.pages import none_prefilling
from vllm_watch.signals.step_model import StepModel

UNHELD_SECONDS = 15.0
"""A restart is advised if KV pages in use have belonged to no request for this long, and no prefill
explains them."""

BLIND_SECONDS = 60.0
"""Replaces UNHELD_SECONDS if the usual step time is unknown. A prompt may go unnoticed for this
long."""

UNREAD_LOG_RATIO = 0.1
"""If the share that no request holds is unknown, pages are unread if steps are shorter than
expected by this log ratio."""

UNREAD_DEVIATIONS = 1.5
"""The log ratio must also reach this many standard deviations, because the step model may not know
this load."""


class Unread:
    """Follows an engine that lacks KV pages."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def surely(self) -> bool:
        return self.seconds >= UNHELD_SECONDS

    def follow(
        self, comparison: Comparison, baseline: Baseline, unheld: float | None, quiet_ratio: float
    ) -> None:
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
            return  # inconclusive: a prompt may lengthen steps
        counts = UNHELD_SECONDS / BLIND_SECONDS if slow is None else 1.0
        self.seconds = self.seconds + counts * block.seconds if unread else 0.0


def _is_unread(comparison: Comparison, model: StepModel, quiet_ratio: float) -> bool:
    block = comparison.block
    a, b, c = model.coefficients
    sure = max(UNREAD_LOG_RATIO, UNREAD_DEVIATIONS * (comparison.deviation or 0.0))
    if comparison.slow_log_ratio is None or -quiet_ratio < sure or not block.kv_usage or c <= 0.0:
        return False
    expected = comparison.expected_step_seconds or 0.0
    read = (expected * exp(quiet_ratio) - a - b * (block.tokens_per_step or 0.0)) / c
    return read < (1.0 - UNREAD_SHARE) * block.kv_usage
