"""Is it this engine, or all of its server's? They are the same hardware with the same model. Pure helper."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from vllm_watch.detectors.base import FIRING, Evidence, Verdict

ALIKE = 1.2
"""Step time ratio from which an engine counts as slow beside its siblings: request mixes differ by so much."""


def beside(verdict: Verdict, ratios: Mapping[str, float]) -> Verdict:
    """The verdict on one engine with what its siblings do. `ratios`: step time ÷ fresh, by engine."""
    own = ratios.get(verdict.engine or "")
    others = [ratio for engine, ratio in ratios.items() if engine != verdict.engine]
    if verdict.state != FIRING or own is None or not others or own < ALIKE:
        return verdict
    usual = median(others)
    alike = usual >= ALIKE
    said = Evidence(
        name="siblings_step_time_ratio", value=usual, expected=1.0,
        text=f"steps of its {len(others)} sibling engines take {usual:.1f} times as long as when fresh: "
        + ("what they share is slow (host, power, network), or they wait for each other"
           if alike else "it is this engine alone"),
    )  # fmt: skip
    if alike:
        return replace(verdict, evidence_against=(*verdict.evidence_against, said))
    return replace(verdict, evidence_for=(*verdict.evidence_for, said))
