"""How a watcher comes to see an engine: at what interval, how regularly, and with which clock.

None of it is the engine's doing: scrapes jitter and time out, the network or the watcher is away for a
while, NTP and people set clocks, a laptop or a virtual machine is suspended.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from benchmarks.lab.virtual import observe
from vllm_watch.lab.scene import Scene
from vllm_watch.samples.observation import Call, Observation

INTERVALS = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)

_MISSES_SHARE = 0.005  # of looks that meet no answer, as on healthy servers
_TIMED_OUT = Call(outcome="read_timeout", error="no answer within 10 s", latency_s=10.0)
_GAP_SECONDS = (30.0, 7200.0)
_STEP_SECONDS = (0.5, 3600.0)
_JITTERS = (0.0, 0.02, 0.1, 0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """The habits of one watcher; `gaps_apart_s` and so on are means, 0 is never."""

    interval_s: float = 5.0
    jitter_ratio: float = 0.0  # of the interval
    begins_s: float = 0.0  # how long the engine had served before
    misses_ratio: float = 0.0
    gaps_apart_s: float = 0.0  # looks are missing
    steps_apart_s: float = 0.0  # Unix time is set forward or back
    suspends_apart_s: float = 0.0  # looks are missing, and the monotonic clock stood
    monotonic: bool = True  # False: only Unix time is known, as in some recordings


def any_observer(rng: Random) -> Observer:
    """Draw one: half of them are undisturbed but for jitter and misses."""
    disturbed = rng.random() < 0.5
    apart = [rng.choice((0.0, 1800.0, 7200.0)) if disturbed else 0.0 for _ in range(3)]
    return Observer(
        interval_s=rng.choice(INTERVALS),
        jitter_ratio=rng.choice(_JITTERS),
        begins_s=rng.choice((0.0, rng.uniform(60.0, 7200.0))),
        misses_ratio=rng.choice((0.0, _MISSES_SHARE)),
        gaps_apart_s=apart[0],
        steps_apart_s=apart[1],
        suspends_apart_s=apart[2],
        monotonic=rng.random() < 0.75,
    )


def look(scene: Scene, observer: Observer, rng: Random, duration_s: float) -> Iterator[Observation]:
    """What this watcher sees of the only server of a scene, for so long."""
    (server,) = scene.servers.values()
    t, end_t = observer.begins_s, observer.begins_s + duration_s
    offset_s = stood_s = 0.0  # of Unix time, of the monotonic clock
    while t < end_t:
        scene.advance(t)
        seen = observe(server, scene.rack.sample() if scene.rack else None)
        if seen.scrape.outcome == "ok" and rng.random() < observer.misses_ratio:
            seen = replace(seen, scrape=_TIMED_OUT, health=None, reading=None)
        monotonic_s = t - stood_s if observer.monotonic else None
        yield replace(seen, t=seen.t + offset_s, monotonic_s=monotonic_s)
        jitter_s = rng.uniform(-0.5, 0.5) * observer.jitter_ratio * observer.interval_s
        t += observer.interval_s + jitter_s
        if _happens(rng, observer, observer.gaps_apart_s):
            t += _between(rng, _GAP_SECONDS)
        if _happens(rng, observer, observer.steps_apart_s):
            offset_s = rng.choice((-1.0, 1.0)) * _between(rng, _STEP_SECONDS)
        if _happens(rng, observer, observer.suspends_apart_s):
            away_s = _between(rng, _GAP_SECONDS)
            t, stood_s = t + away_s, stood_s + away_s


def _happens(rng: Random, observer: Observer, apart_s: float) -> bool:
    return apart_s > 0.0 and rng.random() < observer.interval_s / apart_s


def _between(rng: Random, bounds: tuple[float, float]) -> float:
    """Most are short and a few are long: evenly over the logarithm."""
    low, high = bounds
    share: float = (high / low) ** rng.random()
    return low * share
