"""What happens to healthy engines over hours, as scripts that never end; times are drawn anew each time."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.lab.workloads import Shifting
from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.scene import Scene, Script
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes

MINUTE, HOUR = 60.0, 3600.0

_BREATH_SECONDS = 10.0
_UNEVENNESS = 0.06  # of step times from one ten seconds to the next; clocks and neighbours do that
_PAUSE_SECONDS = (0.5, 4.0)  # a garbage collection, a LoRA adapter from disk, a busy host
_PAUSES_APART_SECONDS = 20 * MINUTE
_LINGER_SECONDS = 40.0  # seen: after SIGTERM with a request in flight
_DRAIN_SECONDS_MAX = 120.0


def breathing(rng: Random) -> Script:
    """Steps are now a little longer and now a little shorter, and now and then one takes seconds."""

    def script(scene: Scene) -> Iterator[float]:
        vllm = scene["vllm"]
        while True:
            factor = rng.lognormvariate(0.0, _UNEVENNESS)
            for engine in vllm.engines:
                engine.slow_factor = factor
            yield _BREATH_SECONDS
            if rng.random() < _BREATH_SECONDS / _PAUSES_APART_SECONDS and not vllm.sleep_level:
                for engine in vllm.engines:
                    engine.freeze(vllm.t)
                yield rng.uniform(*_PAUSE_SECONDS)
                if not vllm.sleep_level:
                    for engine in vllm.engines:
                        engine.thaw(vllm.t)

    return script


def cold_caches(rng: Random) -> Script:
    """The prefix cache is reset, as after a weight update."""

    def script(scene: Scene) -> Iterator[float]:
        while True:
            yield rng.uniform(HOUR, 3 * HOUR)
            for engine in scene["vllm"].engines:
                engine.forget_prefixes()

    return script


def sleeping(rng: Random) -> Script:
    """Work, silence, sleep, silence, work."""

    def script(scene: Scene) -> Iterator[float]:
        vllm, workload = scene["vllm"], _loop(scene)
        usual = workload.per_second
        while True:
            yield rng.uniform(10 * MINUTE, 2 * HOUR)
            workload.per_second = 0.0
            yield from _until_done(vllm)
            vllm.sleep(rng.choice((1, 2)))
            yield rng.uniform(MINUTE, HOUR)
            vllm.wake_up()
            yield rng.uniform(0.0, MINUTE)
            workload.per_second = usual

    return script


def pausing(rng: Random) -> Script:
    """Scheduling is paused and resumed, as a weight update does it."""

    def script(scene: Scene) -> Iterator[float]:
        vllm = scene["vllm"]
        while True:
            yield rng.uniform(10 * MINUTE, 2 * HOUR)
            vllm.paused = True
            yield rng.uniform(20.0, 10 * MINUTE)
            vllm.paused = False

    return script


def load_steps(rng: Random) -> Script:
    """Load changes at once; after none of it the cache is cold."""

    def script(scene: Scene) -> Iterator[float]:
        workload = _loop(scene)
        most = workload.per_second
        while True:
            workload.per_second = most * rng.choice((0.0, 0.05, 0.25, 0.6, 1.0))
            yield rng.uniform(5 * MINUTE, HOUR)
            if not workload.per_second:
                for engine in scene["vllm"].engines:
                    engine.forget_prefixes()

    return script


def shifting_workload(
    capacity: Callable[..., float], config: EngineConfig, kinds: tuple[dict[str, Any], ...], load: float
) -> Callable[[Random], Shifting]:  # fmt: skip
    """Several kinds of work, each at the same share of what the engine can do of it."""

    def build(rng: Random) -> Shifting:
        return Shifting(
            *[OpenLoop(rng, Sizes(rng, **each), load * capacity(config, **each)) for each in kinds]
        )

    return build


def shifts(rng: Random) -> Script:
    """From one kind of work to the next."""

    def script(scene: Scene) -> Iterator[float]:
        workload = scene["vllm"].workload
        while isinstance(workload, Shifting):
            yield rng.uniform(10 * MINUTE, 2 * HOUR)
            workload.shift()

    return script


def planned_restarts(rng: Random) -> Script:
    """As an orchestrator does it: requests go elsewhere first, or the server drains after SIGTERM."""

    def script(scene: Scene) -> Iterator[float]:
        usual = _loop(scene).per_second
        while True:
            yield rng.uniform(20 * MINUTE, 3 * HOUR)
            yield from _end_in_order(scene, rng)
            yield from _start(scene, rng.uniform(20.0, 150.0), usual)

    return script


def rolling_updates(rng: Random) -> Script:
    """The same, and what comes back is slower or faster, with more or fewer pages."""

    def script(scene: Scene) -> Iterator[float]:
        vllm, usual = scene["vllm"], _loop(scene).per_second
        first = vllm.config
        while True:
            yield rng.uniform(20 * MINUTE, 3 * HOUR)
            yield from _end_in_order(scene, rng)
            slower = rng.uniform(0.6, 2.0)
            vllm.config = replace(
                first,
                num_gpu_blocks=int(first.num_gpu_blocks * rng.uniform(0.5, 1.0)),
                step_base_seconds=first.step_base_seconds * slower,
                step_seconds_per_token=first.step_seconds_per_token * slower,
            )
            yield from _start(scene, rng.uniform(20.0, 150.0), usual)

    return script


def scale_to_zero(rng: Random) -> Script:
    """An autoscaler takes the server away five minutes after the last request."""

    def script(scene: Scene) -> Iterator[float]:
        vllm, workload = scene["vllm"], _loop(scene)
        usual = workload.per_second
        while True:
            yield rng.uniform(10 * MINUTE, 2 * HOUR)
            workload.per_second = 0.0
            yield from _until_done(vllm)
            yield 5 * MINUTE
            vllm.stop(linger_seconds=rng.choice((0.0, 2.0)))
            yield rng.uniform(10 * MINUTE, 4 * HOUR)
            vllm.start(load_seconds := rng.uniform(30.0, 120.0))
            yield load_seconds
            workload.per_second = usual

    return script


def elastic(rng: Random) -> Script:
    """More engines in the same process, and after some hours fewer, by a planned restart."""

    def script(scene: Scene) -> Iterator[float]:
        vllm, usual = scene["vllm"], _loop(scene).per_second
        while True:
            yield rng.uniform(HOUR, 3 * HOUR)
            vllm.scale_up(4)
            yield rng.uniform(HOUR, 3 * HOUR)
            yield from _end_in_order(scene, rng)
            vllm.num_engines = 2
            yield from _start(scene, rng.uniform(20.0, 150.0), usual)

    return script


def _end_in_order(scene: Scene, rng: Random) -> Iterator[float]:
    """Readiness off, so that requests go elsewhere; then SIGTERM, after which the process may linger."""
    vllm, workload = scene["vllm"], _loop(scene)
    workload.per_second = 0.0
    yield from _until_done(vllm)
    yield rng.uniform(*_OUT_OF_SERVICE_SECONDS)
    linger_seconds = rng.uniform(0.0, _LINGER_SECONDS)
    vllm.stop(linger_seconds)
    yield linger_seconds


_OUT_OF_SERVICE_SECONDS = (
    45.0,
    90.0,
)  # longer than the longest interval: what no look sees none can tell


def _start(scene: Scene, load_seconds: float, per_second: float) -> Iterator[float]:
    scene["vllm"].start(load_seconds)
    yield load_seconds
    _loop(scene).per_second = per_second


def _until_done(vllm: SimulatedVllm) -> Iterator[float]:
    waited = 0.0
    while vllm.outstanding and waited < _DRAIN_SECONDS_MAX:
        yield 1.0
        waited += 1.0


def _loop(scene: Scene) -> OpenLoop:
    workload = scene["vllm"].workload
    if not isinstance(workload, OpenLoop):
        raise TypeError("this routine changes the rate of an open loop")
    return workload
