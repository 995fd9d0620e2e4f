"""Adds the reason found in the engine's log to verdicts."""

from collections.abc import Sequence
from dataclasses import replace

from vllm_watch.detectors.base import FIRING, Evidence, Verdict
from vllm_watch.samples.observation import StartFailure

_KINDS = frozenset(("engine_down", "engine_failing", "engine_stalled"))
"""Collapses are excluded, because logs do not explain slowness."""


def added(verdicts: Sequence[Verdict], failed: StartFailure | None) -> Sequence[Verdict]:
    """Add the log's reason to verdicts of an engine that is gone or stuck."""
    if failed is None:
        return verdicts
    text = f"its log reports: {failed.explanation}"
    if failed.root_cause_line:
        text += f" The line: {failed.root_cause_line}"
    if failed.deterministic:
        text += " The next start will fail the same way."
    evidence = Evidence(name="engine_log", value=failed.failure, text=text)
    return [
        replace(
            each,
            summary=f"{each.summary}; its log reports: {failed.sentence}",
            evidence_for=(*each.evidence_for, evidence),
        )
        if each.state == FIRING and each.kind in _KINDS
        else each
        for each in verdicts
    ]
