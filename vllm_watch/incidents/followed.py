"""Follows an open incident from poll to poll."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_watch.detectors.base import Verdict
from vllm_watch.incidents import incident, lost, relations
from vllm_watch.incidents.incident import ACTIVE, RECOVERING, Incident, Worst
from vllm_watch.signals import stored
from vllm_watch.signals.scales import FEW, FIVE_MINUTES_SECONDS, MOMENT_SECONDS
from vllm_watch.story.base import UNKNOWN
from vllm_watch.story.kinds import story_of

Life = tuple[float | None, int]  # process start, number of counter resets


@dataclass(slots=True)
class Followed:
    """One open incident."""

    incident: Incident
    life: Life
    quiet_needed_s: float
    lost_mark: lost.Mark
    quiet_s: float = 0.0
    recovering_since_s: float | None = None
    rival: tuple[str, bool] | None = None  # candidate for the next cause and advice
    rival_looks: int = 0
    rival_since_s: float = 0.0

    def note(self, **fields: Any) -> None:
        """Set these fields of the incident."""
        if any(getattr(self.incident, name) != value for name, value in fields.items()):
            self.incident = replace(self.incident, **fields)

    def unseen(self) -> None:
        self.note(firing=False)

    def recover(self, t: float, at_s: float) -> bool:
        """Return True for the first poll without the finding."""
        self.unseen()
        if self.incident.phase == RECOVERING:
            return False
        self.recovering_since_s, self.quiet_s, self.rival = at_s, 0.0, None
        self.incident = replace(
            self.incident, phase=RECOVERING, ended_t=t, restart_advised=False, restart_targets=()
        )
        return True

    def lost(self, requests: int | None) -> None:
        if requests is not None or self.incident.phase != RECOVERING:
            self.note(requests_lost=requests)

    def close_at(self, t: float) -> None:
        if self.incident.closes_t is None or abs(t - self.incident.closes_t) > 1.0:
            self.incident = replace(self.incident, closes_t=t)

    def renew(self, verdict: Verdict, t: float, at_s: float) -> None:
        known, since_s = self.incident, self.recovering_since_s
        back = since_s is not None
        returned = since_s is not None and at_s - since_s >= MOMENT_SECONDS
        self.quiet_s, self.recovering_since_s = 0.0, None
        seen = replace(
            known, phase=ACTIVE, firing=True, ended_t=None, closes_t=None,
            worst=_worse(known, verdict, t),
        )  # fmt: skip
        if returned:
            began_t = max(known.ended_t or t, t - max(0.0, verdict.since_seconds))
            seen = replace(seen, began_t=began_t, worst=worst_of(verdict, t), times=known.times + 1)
        if not back and not self._takes_over(verdict, at_s):
            self.incident = seen
            return
        severity = verdict.severity
        if verdict.cause == known.cause and not back:
            # People were notified, so the severity is lowered only if the cause changes.
            severity = min(severity, known.severity, key=incident.severity_rank)
        self.rival = None
        self.incident = replace(
            seen,
            **incident.told(verdict),
            family=family_of(verdict) or known.family,
            severity=severity,
            updated_t=t,
        )

    def is_of(self, verdict: Verdict) -> bool:
        return family_of(verdict) in ("", self.incident.family) or not self.incident.family

    def _takes_over(self, verdict: Verdict, at_s: float) -> bool:
        known = self.incident
        if verdict.cause == known.cause:
            if not known.restart_advised or verdict.restart_advised:
                return True
        elif verdict.cause == UNKNOWN:
            return False
        elif known.cause == UNKNOWN:
            return True
        claim = (verdict.cause, verdict.restart_advised)
        if self.rival != claim:
            self.rival, self.rival_looks, self.rival_since_s = claim, 0, at_s
        self.rival_looks += 1
        lasted_s = at_s - self.rival_since_s
        settled = self.rival_looks >= FEW
        explained = known.cause in relations.EXPLAINED_BY.get(verdict.cause, ())
        return settled and (not explained or lasted_s >= FIVE_MINUTES_SECONDS)

    def export_state(self) -> dict[str, Any]:
        whole = {
            "incident": incident.export_state(self.incident),
            "lost_mark": lost.kept(self.lost_mark),
        }
        return {**stored.export(self, _KEPT), **whole}

    @classmethod
    def restored(cls, state: stored.Stored) -> "Followed":
        return cls(**stored.checked({"lost_mark": (), **state}, _KEPT))


def family_of(verdict: Verdict) -> str:
    """Return the family of the verdict's cause, or ""."""
    cause = story_of(verdict.kind).causes.get(verdict.cause)
    return (cause.family if cause else "") or verdict.family


def worst_of(verdict: Verdict, t: float) -> Worst | None:
    """Return the verdict's main evidence with its time and measure."""
    if verdict.measure is None or not verdict.evidence_for:
        return None
    return Worst(t, verdict.measure, verdict.evidence_for[0])


def _worse(known: Incident, verdict: Verdict, t: float) -> Worst | None:
    now = worst_of(verdict, t)
    if known.worst is None or (now is not None and now.measure > known.worst.measure):
        return now
    return known.worst


def _kept_life(state: Sequence[Any]) -> Life:
    start, restarts = state
    return stored.number_or_none(start), stored.count(restarts)


def _kept_rival(state: Sequence[Any] | None) -> tuple[str, bool] | None:
    return None if state is None else (stored.text(state[0]), stored.flag(state[1]))


_KEPT: stored.Fields = {
    "incident": incident.restore,
    "life": _kept_life,
    "lost_mark": lost.restored,
    "quiet_s": stored.amount,
    "quiet_needed_s": stored.amount,
    "recovering_since_s": stored.number_or_none,
    "rival": _kept_rival,
    "rival_looks": stored.count,
    "rival_since_s": stored.number,
}
