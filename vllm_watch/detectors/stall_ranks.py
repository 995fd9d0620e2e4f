"""Finds the rank that stalls the others.

Every step is a collective operation, so most stalled ranks only wait for one rank with a stopped
process (state T).
"""

from collections.abc import Sequence
from dataclasses import replace

from vllm_watch.detectors.base import FIRING, Evidence, Verdict, View
from vllm_watch.support.durations import in_words

STOPPED, RANK_WAIT = "stopped", "rank_wait"

STOPPED_SECONDS = 20.0
"""A stop is reported after this many seconds. A debugger needs a second or two to read a stack."""

STOPPED_OF_SEVERAL_SECONDS = 5.0
"""Replaces STOPPED_SECONDS if other targets step together with this one. Their stalls are reported
after eight seconds."""

IN_USE_SECONDS = 60.0
"""Users wait for a stopped rank if its last progress was at most this many seconds before the
stop."""

_VICTIMS = ("hang", "admission_deadlock")


class Ranks:
    """Follows one target."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def told(self, view: View, verdicts: Sequence[Verdict]) -> list[Verdict]:
        stopped = self._stopped(view)
        culprits = (*(f"engine {name}" for name in stopped), *view.around.held_up_by)
        found = []
        for verdict in verdicts:
            told = verdict
            if verdict.engine in stopped:
                told = self._on_stopped(view, verdict, stopped[verdict.engine or ""], verdicts)
            elif verdict.state == FIRING and verdict.cause in _VICTIMS and culprits:
                told = _waiting(verdict, culprits)
            found.append(_restart_all_or_none(told, view))
        return found

    def _stopped(self, view: View) -> dict[str, str]:
        if view.observation.cpu is None:
            return {}
        seen = {each.engine: each.stopped for each in view.observation.cpu if each.stopped}
        awake = {name for name, each in view.signals.engines.items() if each.state != "sleeping"}
        self._since_s = {name: self._since_s.get(name, view.at_s) for name in seen if name in awake}
        patience_s = STOPPED_OF_SEVERAL_SECONDS if view.around.ranks else STOPPED_SECONDS
        return {
            name: seen[name] or ""
            for name, since_s in self._since_s.items()
            if view.at_s - since_s >= patience_s
        }

    def _on_stopped(
        self, view: View, verdict: Verdict, process: str, verdicts: Sequence[Verdict]
    ) -> Verdict:
        lasted_s = view.at_s - self._since_s[verdict.engine or ""]
        text = f"{process} is stopped (state T) for {in_words(lasted_s)}"
        halted = Evidence(name="process_state", value="T", expected="S", text=text)
        firing = verdict.state == FIRING
        waited = any(each.state == FIRING for each in verdicts)
        # Gauges keep their last values, so an engine stopped between requests seems idle.
        signals = view.signals.engines[verdict.engine or ""]
        served_t = signals.last_progress_timestamp_seconds
        used = served_t is not None and view.observation.t - served_t <= lasted_s + IN_USE_SECONDS
        return replace(
            verdict, state=FIRING, cause=STOPPED, severity="page" if waited or used else "ticket",
            restart_advised=firing and verdict.restart_advised, present=True,
            summary=f"Engine {verdict.engine}: {text}", since_seconds=lasted_s, measure=lasted_s,
            evidence_for=(halted, *(verdict.evidence_for if firing else ())),
        )  # fmt: skip


def _waiting(verdict: Verdict, culprits: Sequence[str]) -> Verdict:
    text = f"{', '.join(culprits)} of its group is stalled, and ranks step together"
    held = Evidence(name="held_up_by", value=", ".join(culprits), text=text)
    return replace(
        verdict, cause=RANK_WAIT, restart_advised=False, summary=f"{verdict.summary}; {text}",
        evidence_for=(*verdict.evidence_for, held),
    )  # fmt: skip


def _restart_all_or_none(verdict: Verdict, view: View) -> Verdict:
    """The other ranks would wait forever for one restarted rank."""
    ranks = view.around.ranks
    if verdict.state != FIRING or not verdict.restart_advised or not ranks:
        return verdict
    text = f"it steps together with {', '.join(ranks)}: restart all of them, or none"
    against = Evidence(name="ranks", value=float(len(ranks)), text=text)
    return replace(
        verdict, restart_targets=(view.signals.target, *ranks),
        evidence_against=(*verdict.evidence_against, against),
    )  # fmt: skip
