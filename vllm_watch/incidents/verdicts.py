"""Changes verdicts by facts that their detector does not see.

These are the reason in the engine's log, peers that wait for the server, and our own restart of it.
Until a new process answers, `engine_down` and `engine_stalled` are unknown. If the server does not
come back, `engine_down` pages at once, because the watcher stopped the server.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Around, Evidence, Verdict
from vllm_watch.incidents.followed import Life
from vllm_watch.samples.observation import StartFailure
from vllm_watch.signals import stored
from vllm_watch.signals.records import TargetSignals
from vllm_watch.signals.scales import MINUTE_SECONDS

_KINDS = frozenset(("engine_down", "engine_failing", "engine_stalled"))
"""Collapses are excluded, because logs do not explain slowness."""


def with_log(verdicts: Sequence[Verdict], failed: StartFailure | None) -> Sequence[Verdict]:
    """Add the log's reason to verdicts of an engine that is gone or stuck."""
    if failed is None:
        return verdicts
    text = f"its log reports: {failed.explanation}"
    if failed.root_cause_line:
        text += f" The line: {failed.root_cause_line}"
    if failed.deterministic:
        text += " The next start will fail the same way."
    log = Evidence(name="engine_log", value=failed.failure, text=text)
    told = f"its log reports: {failed.sentence}"
    return [
        replace(each, summary=f"{each.summary}; {told}", evidence_for=(*each.evidence_for, log))
        if each.state == FIRING and each.kind in _KINDS
        else each
        for each in verdicts
    ]


_STANDS_STILL = {
    "engine_down": ("crash", "crash_loop", "unreachable", "api_hang", "unknown"),
    "engine_stalled": ("stopped", "idle_wedged", "operation_stuck"),
}
"""Causes that can leave peers waiting."""


def with_peers(verdicts: Iterable[Verdict], around: Around) -> list[Verdict]:
    """Turn tickets into pages if peers or ranks wait for the server."""
    by = ", ".join((*around.missed_by, *around.stalled_ranks))
    missed = Evidence(name="missed_by", value=by, text=f"{by} cannot work without it")
    return [
        replace(each, severity="page", evidence_for=(*each.evidence_for, missed))
        if by
        and each.state == FIRING
        and each.severity == "ticket"
        and each.cause in _STANDS_STILL.get(each.kind, ())
        else each
        for each in verdicts
    ]


DOWN = "engine_down"
HELD = (DOWN, "engine_stalled")


@dataclass(frozen=True, slots=True)
class RestartNews:
    """State of our own restart at one poll."""

    under_way: bool = False
    missing: str | None = None  # set if the server is overdue


NO_RESTART = RestartNews()


class OwnRestart:
    """Follows our own restarts of one server."""

    def __init__(self) -> None:
        self._news = NO_RESTART
        self._life: Life | None = None
        self._missing: str | None = None

    def follow(
        self, news: RestartNews | None, before: TargetSignals | None, age_s: float = 0.0
    ) -> None:
        """`news` is None until the journal has been read. `age_s` is the watcher's age."""
        # The journal may still report a restart by an earlier run.
        if news is None and age_s > MINUTE_SECONDS:
            news = NO_RESTART
        if news is None or news == self._news:
            return
        if not news.under_way:
            self._life, self._missing = None, news.missing
        elif not self._news.under_way:
            self._life, self._missing = _life(before), None
        self._news = news

    def export_state(self) -> list[Any]:
        news = self._news
        return [news.under_way, news.missing, self._life and list(self._life), self._missing]

    @classmethod
    def restored(cls, state: Any) -> "OwnRestart":
        """`state` is None after an update from an older version."""
        own = cls()
        if state is not None:
            under_way, news_missing, life, missing = state
            own._news = RestartNews(stored.flag(under_way), stored.text_or_none(news_missing))
            own._missing = stored.text_or_none(missing)
            own._life = life and (stored.number_or_none(life[0]), stored.count(life[1]))
        return own

    def judged(self, signals: TargetSignals, verdicts: Iterable[Verdict]) -> list[Verdict]:
        if signals.up:
            self._missing = None
            if self._life is not None and _life(signals) != self._life:
                self._life = None
        if self._life is not None:
            return [
                replace(each, state=UNKNOWN, summary="it is being restarted")
                if each.kind in HELD and each.state == FIRING
                else each
                for each in verdicts
            ]
        if self._missing is not None:
            why = self._missing
            return [_down(each, why) if each.kind == DOWN else each for each in verdicts]
        return list(verdicts)


def _life(signals: TargetSignals | None) -> Life:
    if signals is None:
        return None, 0
    restarts = sum(engine.restarts for engine in signals.engines.values())
    return signals.process_start_time, restarts


def _down(verdict: Verdict, why: str) -> Verdict:
    if verdict.state == CLEAR:
        return verdict
    said = Evidence(name="restart", value=why, expected="it answers", text=why)
    known = verdict.state == FIRING
    return replace(
        verdict,
        state=FIRING,
        cause=verdict.cause if known else "unknown",
        severity="page",
        restart_advised=False,
        summary=f"{why}; {verdict.summary}" if verdict.summary else why,
        evidence_for=(said, *verdict.evidence_for),
        evidence_against=(),
    )
