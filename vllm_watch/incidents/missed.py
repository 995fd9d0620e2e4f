"""Raises the ticket of a down or hung server to a page if peers or ranks wait for it."""

from collections.abc import Iterable
from dataclasses import replace

from vllm_watch.detectors.base import FIRING, Around, Evidence, Verdict

_STANDS_STILL = {
    "engine_down": ("crash", "crash_loop", "unreachable", "api_hang", "unknown"),
    "engine_stalled": ("stopped", "idle_wedged", "operation_stuck"),
}
"""Causes that can leave peers waiting."""


def paged(verdicts: Iterable[Verdict], around: Around) -> list[Verdict]:
    """Turn tickets into pages if peers or ranks wait for the server."""
    by = (*around.missed_by, *around.stalled_ranks)
    return [_paged(each, by) for each in verdicts] if by else list(verdicts)


def _paged(verdict: Verdict, by: tuple[str, ...]) -> Verdict:
    stands_still = verdict.state == FIRING and verdict.cause in _STANDS_STILL.get(verdict.kind, ())
    if not stands_still or verdict.severity != "ticket":
        return verdict
    missed = Evidence(
        name="missed_by", value=", ".join(by), text=f"{', '.join(by)} cannot work without it"
    )
    return replace(verdict, severity="page", evidence_for=(*verdict.evidence_for, missed))
