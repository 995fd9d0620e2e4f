"""Identify a server's process, and verify a restart from the scrapes after the call.

A restart helped if the new process reaches a fresh engine's throughput. If throughput cannot be
measured, the new process must have no fault after `settle_seconds`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import VerifySettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt

HELPED, DID_NOT_HELP = "helped", "did_not_help"

FRESH_RATIO_MIN = 0.8
"""The new process must reach this share of a fresh engine's throughput at equal load. Below this share, throughput_collapse begins to react."""

STOP_SECONDS = 120.0
"""After the call, the old process may answer for at most this many seconds. This is twice the longest default grace period of the hooks."""

STARTUP_TOLERANCE = 2.0
"""A start may take this many times as long as the longest known start. The page cache may be cold, or the node may be slower."""

STARTUP_SECONDS_MIN = 180.0
"""The timeout of a start is at least this long, including the end of the old process. Most models load in one to three minutes."""

_ILL = ("stalled", "failing", "collapsed", "down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One server process in one scrape; None or empty means unknown."""

    address: str = ""  # host:port
    pod: str = ""  # NAMESPACE/NAME
    pids: tuple[int, ...] = ()  # of its engines on this host
    start_time: float | None = None  # Unix seconds; of the last process that answered
    restarts: int | None = None  # number of counter resets, over all engines
    up: bool = False
    version: str | None = None
    models: tuple[str, ...] = ()  # from /v1/models; adapters last

    @classmethod
    def of(
        cls, target: Target | None, signals: TargetSignals | None, pids: Iterable[int] = ()
    ) -> "Process":
        engines = {} if signals is None else signals.engines
        counted = [engine.restarts for engine in engines.values()]
        return cls(
            address="" if target is None else target.host_and_port,
            pod="" if target is None or not target.pod else f"{target.namespace}/{target.pod}",
            pids=tuple(sorted(pids)),
            start_time=None if signals is None else signals.process_start_time,
            restarts=sum(counted) if counted else None,
            up=signals is not None and signals.up,
            version=None if signals is None else signals.version,
            models=() if signals is None else signals.models,
        )

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Process":
        """Parse a journal entry. Raises TypeError or KeyError if malformed."""
        return cls(**{**kept, "pids": tuple(kept["pids"]), "models": tuple(kept["models"])})

    def is_same(self, now: "Process") -> bool | None:
        """Return True if `now` (from a later scrape) is the same process, or None if that is unknown."""
        starts = self.start_time, now.start_time
        if None not in starts:
            return starts[0] == starts[1]
        if starts != (None, None):
            return None
        if self.pids and now.pids:
            return not set(self.pids).isdisjoint(now.pids)
        if None not in (self.restarts, now.restarts):
            return self.restarts == now.restarts
        return None if now.up else True


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The server's state when the restart was decided."""

    process: Process
    throughput_ratio: float | None = None  # share of a fresh engine's throughput; 0.0 if stalled
    kinds: frozenset[str] = frozenset()  # of firing incidents

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kinds": sorted(self.kinds)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Before":
        """Parse a journal entry, also one of release 0.1. Raises TypeError or KeyError if malformed."""
        kinds, ratio = frozenset(kept["kinds"]), kept["throughput_ratio"]
        if "process" in kept:
            process = Process.from_json(kept["process"])
        else:
            process = Process(start_time=kept["process_start_time"], restarts=kept["restarts"])
        return cls(process=process, throughput_ratio=ratio, kinds=kinds)


def before(
    signals: TargetSignals | None, firing_kinds: Collection[str], process: Process
) -> Before:
    """Return the state before a restart."""
    if signals is None:
        return Before(process=process)
    stuck = not signals.up or signals.state in ("stalled", "down")
    ratio = 0.0 if stuck else _ratio(signals)
    return Before(process=process, throughput_ratio=ratio, kinds=frozenset(firing_kinds))


def befores(attempt: Attempt) -> dict[str, Before] | None:
    """Return the states before an attempt, by target; None if unknown."""
    if attempt.before is None:
        return None
    kept = {attempt.target: attempt.before, **(attempt.gang or {})}
    try:
        return {name: Before.from_json(each) for name, each in kept.items()}
    except (TypeError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the verification after one scrape."""

    text: str
    outcome: str | None = None
    payoff_ratio: float | None = None  # gain as a share of a fresh engine's throughput, -1 to 1


class Verification:
    """Follows one restarted server."""

    def __init__(
        self, before: Before, settings: VerifySettings, startup_seconds: float | None = None
    ) -> None:
        """`startup_seconds` is this engine's longest known start. If none is known, the timeout is `settings.start_seconds`."""
        self._before = before
        self._settle_seconds = settings.settle_seconds
        self._start_seconds = settings.start_seconds
        if startup_seconds is not None:
            least = min(settings.start_seconds, STARTUP_SECONDS_MIN)
            self._start_seconds = max(least, STARTUP_TOLERANCE * startup_seconds)
        self._served_s: float | None = None

    def update(
        self, since_s: float, signals: TargetSignals, firing_kinds: Collection[str]
    ) -> Progress:
        late = since_s >= self._start_seconds
        if not signals.up:
            self._served_s = None
            if late:
                text = f"nothing answers {since_s:.0f} s after the restart; a start may take {self._start_seconds:.0f} s"
                return self._ended(DID_NOT_HELP, text)
            return Progress(
                f"it does not answer yet, {since_s:.0f} of at most {self._start_seconds:.0f} s"
            )
        now = Process.of(None, signals)
        if not self._is_new(now):
            if since_s >= STOP_SECONDS:
                text = "the old process still serves: nothing was restarted"
                return self._ended(DID_NOT_HELP, text)
            return Progress("the old process still answers")
        if signals.health_status not in (None, 200) or signals.state in ("starting", "unknown"):
            if late:
                text = f"it answers but does not serve: {signals.state_text}"
                return self._ended(DID_NOT_HELP, text)
            return Progress("it answers, and does not serve yet")
        models = self._before.process.models[:1], now.models[:1]  # adapters may load later
        if all(models) and models[0] != models[1]:
            text = f"it came back with another model: {models[1][0]}, not {models[0][0]}"
            return self._ended(DID_NOT_HELP, text)
        return self._serving(since_s, signals, firing_kinds)

    def _is_new(self, now: Process) -> bool:
        was = self._before.process
        same = was.is_same(now)
        if same is None:
            return was.restarts is None or (now.restarts or 0) > was.restarts
        return not same

    def _serving(
        self, since_s: float, signals: TargetSignals, firing_kinds: Collection[str]
    ) -> Progress:
        if self._served_s is None:
            self._served_s = since_s
        served_s, ratio = since_s - self._served_s, _ratio(signals)
        again = sorted(self._before.kinds & set(firing_kinds))
        ill = bool(again) or signals.state in _ILL
        fresh = ratio is not None and ratio >= FRESH_RATIO_MIN
        if served_s < self._settle_seconds:
            if fresh and not ill:
                text = f"a new process reaches {ratio:.0%} of a fresh engine's throughput"
                return self._ended(HELPED, text, ratio)
            return Progress(f"a new process has served for {served_s:.0f} s")
        if ill:
            text = f"the new process has the fault again: {', '.join(again) or signals.state_text}"
            return self._ended(DID_NOT_HELP, text, ratio)
        if ratio is not None and not fresh:
            text = f"the new process reaches only {ratio:.0%} of a fresh engine's throughput"
            return self._ended(DID_NOT_HELP, text, ratio)
        text = "a new process serves and nothing is wrong with it"
        if ratio is None:
            text += "; there was too little traffic to measure its throughput"
        return self._ended(HELPED, text, ratio)

    def _ended(self, outcome: str, text: str, ratio: float | None = None) -> Progress:
        was = self._before.throughput_ratio
        if was is None or ratio is None:
            return Progress(text, outcome)
        return Progress(text, outcome, min(ratio, 1.0) - min(was, 1.0))


def _ratio(signals: TargetSignals) -> float | None:
    ratios = (engine.throughput_ratio for engine in signals.engines.values())
    return min((ratio for ratio in ratios if ratio is not None), default=None)
