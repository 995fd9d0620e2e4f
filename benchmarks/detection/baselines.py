"""The rules that people use today, over the same looks: what ours have to beat.

Thresholds are those of vLLM's own examples and of rules that its users publish; the change detectors
are textbook ones on the rate of a minute. Every rule set also has the two rules that nobody leaves
out: no answer for a minute is down, and no token for five minutes while requests run is a stall.

Sources: vLLM docs (examples/observability: KV cache, queue and TTFT panels) and alert rules of its
production stack and users (KV > 0.95, waiting > 10 or 100, p95 TTFT > 5 s, each for 5 m); Page,
Biometrika 41 (1954), with the parameters of river's PageHinkley; Roberts, Technometrics 1 (1959).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Observation
from vllm_watch.signals.engine import quantile
from vllm_watch.signals.window import Window

MINUTE, FIVE_MINUTES, HOUR = 60.0, 300.0, 3600.0
DOWN_SECONDS = MINUTE
STALL_SECONDS = FIVE_MINUTES


@dataclass
class Track:
    """One engine's looks, as columns."""

    t: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    kv_usage: list[float] = field(default_factory=list)
    generated: list[float] = field(default_factory=list)  # ever, across restarts
    ttft_p95: list[float | None] = field(default_factory=list)  # of the last five minutes

    def grown(self, index: int, seconds: float) -> tuple[float, float]:
        """(tokens, seconds) up to a look, over at most so long."""
        first = bisect_left(self.t, self.t[index] - seconds)
        return self.generated[index] - self.generated[first], self.t[index] - self.t[first]


@dataclass
class Tracks:
    """All that the rules look at of one recording."""

    looks: list[tuple[float, bool]]  # time, was there an answer?
    engines: dict[str, Track]


def tracks(observations: Iterable[Observation]) -> Tracks:
    """Lay a recording out in columns."""
    found = Tracks([], {})
    windows: dict[str, Window] = {}
    last: dict[str, float] = {}
    for seen in observations:
        found.looks.append((seen.t, seen.reading is not None))
        for sample in seen.reading.engines if seen.reading else ():
            track = found.engines.setdefault(sample.engine, Track())
            window = windows.setdefault(sample.engine, Window(FIVE_MINUTES))
            if track.t and seen.t <= track.t[-1]:
                continue  # the clock was set back: Prometheus refuses what is older than it has
            tokens = sample.generation_tokens or 0.0
            before = last.get(sample.engine, tokens)
            grown = tokens - before if tokens >= before else tokens
            last[sample.engine] = tokens
            window.add(seen.t, sample, began_anew=False)
            _add(track, seen.t, sample, grown, _p95(window))
    return found


def _add(track: Track, t: float, sample: EngineSample, grown: float, p95: float | None) -> None:
    track.t.append(t)
    track.running.append(sample.requests_running or 0.0)
    track.waiting.append(sample.requests_waiting or 0.0)
    track.kv_usage.append(sample.kv_cache_usage or 0.0)
    track.generated.append((track.generated[-1] if track.generated else 0.0) + grown)
    track.ttft_p95.append(p95)


def _p95(window: Window) -> float | None:
    grown = window.histogram("ttft")
    return None if grown is None else quantile(0.95, grown.bounds, grown.cumulative)


class Told:
    """The incident events of one rule set."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._opened = 0

    def open(self, t: float, kind: str, cause: str, engine: str | None = None) -> str:
        self._opened += 1
        name = str(self._opened)
        self.events.append(
            {"t": t, "event": "opened", "id": name, "kind": kind, "cause": cause, "engine": engine,
             "severity": "page"}
        )  # fmt: skip
        return name

    def close(self, t: float, name: str) -> None:
        self.events.append({"t": t, "event": "resolved", "id": name})

    def while_true(
        self, looks: Sequence[tuple[float, bool]], kind: str, cause: str, for_seconds: float,
        engine: str | None = None, keep_seconds: float = 0.0,
    ) -> None:  # fmt: skip
        """As Prometheus does it: true `for` so long opens, false (`keep_firing_for` over) closes."""
        since: float | None = None
        false_since: float | None = None
        name: str | None = None
        for t, holds in looks:
            if holds:
                false_since = None
                since = t if since is None else since
                if name is None and t - since >= for_seconds:
                    name = self.open(t, kind, cause, engine)
                continue
            since = None
            if name is not None:
                false_since = t if false_since is None else false_since
                if t - false_since >= keep_seconds:
                    self.close(t, name)
                    name = None


Rule = Callable[[Told, Tracks], None]


def common(told: Told, seen: Tracks) -> None:
    """up == 0 for 60 s; no token for five minutes while requests run."""
    silent = [(t, not answered) for t, answered in seen.looks]
    told.while_true(silent, "engine_down", "crash", DOWN_SECONDS)
    for engine, track in seen.engines.items():
        frozen = []
        for index, t in enumerate(track.t):
            tokens, seconds = track.grown(index, MINUTE)
            frozen.append((t, tokens == 0.0 and track.running[index] > 0 and seconds > MINUTE / 2))
        told.while_true(frozen, "engine_stalled", "hang", STALL_SECONDS - MINUTE, engine)


def _column(
    name: str, limit: float, cause: str, for_seconds: float = FIVE_MINUTES
) -> Rule:  # fmt: skip
    def rule(told: Told, seen: Tracks) -> None:
        for engine, track in seen.engines.items():
            values: Sequence[float | None] = getattr(track, name)
            looks = [
                (t, value is not None and value > limit)
                for t, value in zip(track.t, values, strict=True)
            ]
            told.while_true(looks, "throughput_collapse", cause, for_seconds, engine)

    return rule


def _half_of_the_hour(*, waiting: bool) -> Rule:
    def rule(told: Told, seen: Tracks) -> None:
        for engine, track in seen.engines.items():
            looks = []
            for index, t in enumerate(track.t):
                now, now_s = track.grown(index, FIVE_MINUTES)
                past, past_s = track.grown(index, HOUR)
                low = (
                    past_s > HOUR / 4
                    and now / max(now_s, 1.0) < 0.5 * past / max(past_s, 1.0)
                    and (track.waiting[index] > 0 or not waiting)
                )
                looks.append((t, low))
            told.while_true(looks, "throughput_collapse", "slow_engine", MINUTE, engine, MINUTE)

    return rule


def _minutes(track: Track) -> list[tuple[float, float]]:
    """(time, tokens per second) of each minute that was looked at."""
    found = []
    for index in range(len(track.t)):
        if found and track.t[index] - found[-1][0] < MINUTE:
            continue
        tokens, seconds = track.grown(index, MINUTE)
        if seconds > MINUTE / 3:
            found.append((track.t[index], tokens / seconds))
    return found


def page_hinkley(told: Told, seen: Tracks) -> None:
    """A drop of the rate by Page-Hinkley (delta 0.05, threshold 3); over at 80 % of the old mean."""
    for engine, track in seen.engines.items():
        rates = _minutes(track)
        scale = (
            max(sorted(rate for _, rate in rates[:15])[len(rates[:15]) // 2], 1.0) if rates else 1.0
        )
        mean = total = 0.0
        count, peak, name, reference, opened = 0, 0.0, None, 0.0, 0.0
        past: list[float] = []
        for t, rate in rates:
            count += 1
            mean += (rate / scale - mean) / count
            total = 0.9999 * total + rate / scale - mean + 0.05
            peak = max(peak, total)
            if name is None and count >= 15 and peak - total > 3.0:
                name, opened = told.open(t, "throughput_collapse", "slow_engine", engine), t
                reference = sum(past[-60:]) / len(past[-60:])
                mean = total = peak = 0.0
                count = 0
            elif name is not None and (rate > 0.8 * reference or t - opened > HOUR):
                told.close(t, name)
                name = None
            past.append(rate)


def ewma(told: Told, seen: Tracks) -> None:
    """The rate three standard deviations below its exponential mean, three minutes in a row."""
    for engine, track in seen.engines.items():
        mean: float | None = None
        variance, low, count, name, opened = 0.0, 0, 0, None, 0.0
        for t, rate in _minutes(track):
            if mean is None:
                mean, variance = rate, (0.2 * rate) ** 2
                continue
            off = (rate - mean) / max(sqrt(variance), 0.05 * mean, 1e-6)
            count += 1
            low = low + 1 if off < -3.0 else 0
            if name is None and low >= 3 and count > 15:
                name, opened = told.open(t, "throughput_collapse", "slow_engine", engine), t
            elif name is not None and (off > -1.0 or t - opened > HOUR):
                told.close(t, name)
                name = None
            if name is None and off > -3.0:
                step = rate - mean
                mean += 0.06 * step
                variance = 0.94 * (variance + 0.06 * step * step)


def _all(*rules: Rule) -> Rule:
    def rule(told: Told, seen: Tracks) -> None:
        for each in rules:
            each(told, seen)

    return rule


_KV = _column("kv_usage", 0.95, "kv_pinning")
_WAITING = _column("waiting", 10.0, "kv_pinning")
_TTFT = _column("ttft_p95", 5.0, "slow_engine")

BASELINES: dict[str, Rule] = {
    "KV cache > 95 % for 5 min": _KV,
    "waiting > 10 for 5 min": _WAITING,
    "waiting > 100 for 5 min": _column("waiting", 100.0, "kv_pinning"),
    "p95 TTFT > 5 s for 5 min": _TTFT,
    "these three together": _all(_KV, _WAITING, _TTFT),
    "5 min rate < 50 % of the hour's, with waiting > 0": _half_of_the_hour(waiting=True),
    "the same without waiting": _half_of_the_hour(waiting=False),
    "Page-Hinkley on the minute's rate": page_hinkley,
    "EWMA, 3 sigma, on the minute's rate": ewma,
    "no answer 60 s, no token 5 min, nothing else": lambda told, seen: None,
}


def predict(rule: Rule, seen: Tracks) -> list[dict[str, Any]]:
    """The incident events of a rule set, the common rules included, in order of time."""
    told = Told()
    common(told, seen)
    rule(told, seen)
    return sorted(told.events, key=lambda event: event["t"])
