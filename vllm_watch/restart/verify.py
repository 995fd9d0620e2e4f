"""Did the restart help? Follows the server from the call on, until the answer is known. Pure.

A restart has helped when another process serves, healthy, and does again what it did when fresh; or,
without traffic to show that, when nothing is wrong with it for as long as settling may take. It has not
when the old process goes on, when no new one serves in the time this engine's starts took, or when what
was wrong is so again.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vllm_watch.signals.records import TargetSignals

HELPED, DID_NOT_HELP = "helped", "did_not_help"

STAGES = ("stopping", "starting", "answering", "settling")
"""The old process still answers; nothing answers; a new one answers; it serves, and is watched."""

FRESH_RATIO_MIN = 0.8
"""Throughput at equal load, relative to a fresh engine, from which on it is as when fresh; below it
throughput_collapse begins to see something (signals/baseline.py)."""

STOP_SECONDS = 120.0
"""How long the old process may go on answering after the hook has said that it is done: twice the
longest grace that hooks give by default."""

LOADS_TOLERANCE = 2.0
"""A start may take so many times the longest seen: another page cache, another node."""

LOADS_SECONDS_MIN = 180.0
"""... and at least so long, the end of the old process included: most models load for one to three minutes, and
twice a start of seconds is no surprise on a busy host. As `engine_down` waits for a start that others made."""

_ILL = ("stalled", "collapsed", "down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was so when the hook was called."""

    process_start_time: float | None  # Unix seconds
    restarts: int  # counter resets seen so far, over all engines
    throughput_ratio: float | None  # ÷ when fresh; 0.0 where no step was made; None: unknown
    kinds: frozenset[str] = frozenset()  # of the incidents that were open

    def to_json(self) -> dict[str, Any]:
        """Return it as the journal keeps it."""
        return {**asdict(self), "kinds": sorted(self.kinds)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Before":
        """Return what `to_json` made; raises TypeError or KeyError for anything else."""
        return cls(**{**kept, "kinds": frozenset(kept["kinds"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the verification stands after one look."""

    stage: str  # one of STAGES
    outcome: str | None  # HELPED | DID_NOT_HELP; None: not known yet
    text: str
    payoff_ratio: float | None = (
        None  # share of its fresh throughput that the restart gave back, -1 to 1
    )
    load_seconds: float | None = None  # from the call to the first answer of the new process


class Verification:
    """Follows one restarted server."""

    def __init__(
        self, before: Before, *, start_seconds: float, settle_seconds: float,
        load_seconds_max: float | None = None,
    ) -> None:  # fmt: skip
        """`load_seconds_max` is the longest start of this engine that was seen: what a start may take is
        reckoned from it instead of `start_seconds`."""
        self._before = before
        self._start_seconds = (
            start_seconds
            if load_seconds_max is None
            else max(min(start_seconds, LOADS_SECONDS_MIN), LOADS_TOLERANCE * load_seconds_max)
        )
        self._settle_seconds = settle_seconds
        self._load_seconds: float | None = None
        self._served_s: float | None = None  # since when, after the call, the new process serves

    def update(
        self, since_s: float, signals: TargetSignals, open_kinds: Collection[str]
    ) -> Progress:
        """Take one look in, `since_s` seconds after the call. Looks begun before it say nothing."""
        if not signals.up:
            self._served_s = None
            return self._not_answering(since_s)
        if not self._is_new(signals):
            if since_s >= STOP_SECONDS:
                return self._no("stopping", "the old process still serves: nothing was restarted")
            return Progress(stage="stopping", outcome=None, text="the old process still answers")
        if self._load_seconds is None:
            self._load_seconds = since_s
        return self._answering(signals, open_kinds, since_s)

    def _is_new(self, signals: TargetSignals) -> bool:
        was, now = self._before.process_start_time, signals.process_start_time
        if was is not None and now is not None:
            return now != was
        restarts = sum(engine.restarts for engine in signals.engines.values())
        return restarts > self._before.restarts

    def _not_answering(self, since_s: float) -> Progress:
        if since_s >= self._start_seconds:
            text = f"nothing answers {since_s:.0f} s after the restart"
            return self._no("starting", f"{text}; a start may take {self._start_seconds:.0f} s")
        return Progress(
            stage="starting", outcome=None,
            text=f"it does not answer yet, {since_s:.0f} of at most {self._start_seconds:.0f} s",
        )  # fmt: skip

    def _answering(
        self, signals: TargetSignals, open_kinds: Collection[str], since_s: float
    ) -> Progress:
        healthy = signals.health_status in (None, 200)
        if not healthy or signals.state in ("starting", "unknown"):
            if since_s >= self._start_seconds:
                return self._no("answering", f"it answers but does not serve: {signals.state_text}")
            return self._progress("answering", "it answers, and does not serve yet")
        if self._served_s is None:
            self._served_s = since_s
        served_s = since_s - self._served_s
        again = sorted(self._before.kinds & set(open_kinds))
        ratio = _ratio(signals)
        if served_s >= self._settle_seconds:
            return self._settled(signals, again, ratio)
        if (
            not again
            and signals.state not in _ILL
            and ratio is not None
            and ratio >= FRESH_RATIO_MIN
        ):
            return self._yes(f"a new process does {ratio:.0%} of what it did when fresh", ratio)
        return self._progress("settling", f"a new process serves since {served_s:.0f} s")

    def _settled(self, signals: TargetSignals, again: list[str], ratio: float | None) -> Progress:
        if again or signals.state in _ILL:
            wrong = ", ".join(again) or signals.state_text
            return self._no("settling", f"the new process has it again: {wrong}", ratio)
        if ratio is not None and ratio < FRESH_RATIO_MIN:
            text = f"the new process does only {ratio:.0%} of what the engine did when fresh"
            return self._no("settling", text, ratio)
        text = "a new process serves and nothing is wrong with it"
        if ratio is None:
            text += "; there was too little traffic to measure its throughput"
        return self._yes(text, ratio)

    def _progress(self, stage: str, text: str) -> Progress:
        return Progress(stage=stage, outcome=None, text=text, load_seconds=self._load_seconds)

    def _yes(self, text: str, ratio: float | None) -> Progress:
        return Progress(
            stage="settling", outcome=HELPED, text=text,
            payoff_ratio=self._payoff(ratio), load_seconds=self._load_seconds,
        )  # fmt: skip

    def _no(self, stage: str, text: str, ratio: float | None = None) -> Progress:
        return Progress(
            stage=stage, outcome=DID_NOT_HELP, text=text,
            payoff_ratio=self._payoff(ratio), load_seconds=self._load_seconds,
        )  # fmt: skip

    def _payoff(self, ratio: float | None) -> float | None:
        was = self._before.throughput_ratio
        if was is None or ratio is None:
            return None
        return max(-1.0, min(1.0, min(ratio, 1.0) - min(was, 1.0)))


def _ratio(signals: TargetSignals) -> float | None:
    """The worst engine's throughput at equal load, relative to when fresh; None where none is known."""
    known = [
        engine.throughput_ratio
        for engine in signals.engines.values()
        if engine.throughput_ratio is not None
    ]
    return min(known, default=None)


def before(signals: TargetSignals, open_kinds: Collection[str]) -> Before:
    """Return what is to be remembered of the server when the hook is called."""
    stuck = not signals.up or signals.state in ("stalled", "down")
    return Before(
        process_start_time=signals.process_start_time,
        restarts=sum(engine.restarts for engine in signals.engines.values()),
        throughput_ratio=0.0 if stuck else _ratio(signals),
        kinds=frozenset(open_kinds),
    )
