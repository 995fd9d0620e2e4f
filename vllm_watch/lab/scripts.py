"""The scripts of the simulated incidents. Each fault outlasts every window of the signals."""

from collections.abc import Iterator
from dataclasses import replace

from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.gpus import idle_notebook
from vllm_watch.lab.scene import Scene, Script
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop

HEALTH_SECONDS = 120.0
TROUBLE_SECONDS = 180.0

L40S = EngineConfig(
    num_gpu_blocks=12_000,
    max_num_seqs=48,
    step_base_seconds=0.02,
    step_seconds_per_token=5e-5,
    step_seconds_per_kv_token=1.5e-7,
)
"""An 8B model on a 48 GB GPU. It can serve about 3 of the usual requests per second."""

USUAL_PER_SECOND = 1.2
_OVERLOAD_PER_SECOND = 8.0
_COLD_START_SECONDS = 900.0
_DRAIN_SECONDS = 30.0  # Kubernetes' default terminationGracePeriodSeconds
_LINGER_SECONDS = 40.0  # measured after SIGTERM with a request in flight (vLLM 0.32)
_SEVEN_DAYS_SECONDS = 604_800.0


def demo(scene: Scene) -> Iterator[float]:
    """Inject one fault after another into "batch", forever."""
    if scene.rack is not None:
        scene.rack.add_process(3, idle_notebook(scene.epoch - _SEVEN_DAYS_SECONDS))
    yield 20.0
    while True:
        for slug, seconds in (("hang", 45.0), ("slow", 45.0), ("leak", 150.0), ("crash", 45.0)):
            scene["batch"].fault(slug)
            yield seconds
            scene["batch"].clear(slug)
            yield 75.0


def with_fault(slug: str) -> Script:
    """Return a script in which a fault begins and ends."""

    def script(scene: Scene) -> Iterator[float]:
        yield HEALTH_SECONDS
        scene["vllm"].fault(slug)
        yield TROUBLE_SECONDS
        scene["vllm"].clear(slug)

    return script


def idle_wedged(scene: Scene) -> Iterator[float]:
    """The core of an idle engine hangs, which only a request can reveal."""
    vllm, workload = scene["vllm"], _open(scene["vllm"])
    yield HEALTH_SECONDS
    workload.per_second = 0.0
    yield TROUBLE_SECONDS / 3
    vllm.fault("hang")
    yield TROUBLE_SECONDS
    vllm.clear("hang")
    yield TROUBLE_SECONDS / 3
    workload.per_second = USUAL_PER_SECOND


def overload(scene: Scene) -> Iterator[float]:
    """The load exceeds the capacity of the engine."""
    workload = _open(scene["vllm"])
    yield HEALTH_SECONDS
    workload.per_second = _OVERLOAD_PER_SECOND
    yield TROUBLE_SECONDS
    workload.per_second = USUAL_PER_SECOND


def sleep_wake(scene: Scene) -> Iterator[float]:
    """The engine sleeps without traffic, first at level 1, then at level 2."""
    vllm, workload = scene["vllm"], _open(scene["vllm"])
    for level in (1, 2):
        yield HEALTH_SECONDS
        workload.per_second = 0.0
        yield TROUBLE_SECONDS / 3
        vllm.sleep(level)
        yield TROUBLE_SECONDS
        vllm.wake_up()
        workload.per_second = USUAL_PER_SECOND


def pause(scene: Scene) -> Iterator[float]:
    """Scheduling stops for new requests."""
    yield HEALTH_SECONDS
    scene["vllm"].paused = True
    yield TROUBLE_SECONDS
    scene["vllm"].paused = False


def scale_up(scene: Scene) -> Iterator[float]:
    """Two engines become four."""
    yield HEALTH_SECONDS
    scene["vllm"].scale_up(4)


def rolling_update(scene: Scene) -> Iterator[float]:
    """Another model starts at the same address, after a drain."""
    workload = _open(scene["vllm"])
    yield HEALTH_SECONDS - _DRAIN_SECONDS
    workload.per_second = 0.0
    yield _DRAIN_SECONDS
    scene["vllm"].stop()
    yield from _next_model(scene)
    workload.per_second = USUAL_PER_SECOND


def sigterm_update(scene: Scene) -> Iterator[float]:
    """SIGTERM closes the port at once, but the process remains."""
    scene["vllm"].process_seen = True
    yield HEALTH_SECONDS
    yield from _until_several_run(scene["vllm"])
    scene["vllm"].stop(_LINGER_SECONDS)
    yield _LINGER_SECONDS
    yield from _next_model(scene)


def shutdown_timeout_update(scene: Scene) -> Iterator[float]:
    """Running requests end and new ones are aborted (--shutdown-timeout)."""
    vllm = scene["vllm"]
    yield HEALTH_SECONDS
    yield from _until_several_run(vllm)
    vllm.drain()
    waited = 0.0
    while vllm.outstanding and waited < _DRAIN_SECONDS:
        yield 0.5
        waited += 0.5
    vllm.stop()
    yield from _next_model(scene)


def _until_several_run(vllm: SimulatedVllm) -> Iterator[float]:
    while vllm.outstanding < 2:  # noqa: PLR2004
        yield 0.5


def _next_model(scene: Scene) -> Iterator[float]:
    vllm = scene["vllm"]
    vllm.replace_model(replace(L40S, num_gpu_blocks=7000, step_base_seconds=0.035))
    vllm.start(load_seconds=60.0)
    yield 60.0


def cold_start(scene: Scene) -> Iterator[float]:
    """A model that takes a quarter of an hour to load."""
    scene["vllm"].start(_COLD_START_SECONDS)
    yield _COLD_START_SECONDS


def scale_to_zero(scene: Scene) -> Iterator[float]:
    """Traffic ends, then the server stops. Later both begin again."""
    vllm, workload = scene["vllm"], _open(scene["vllm"])
    yield HEALTH_SECONDS
    workload.per_second = 0.0
    yield TROUBLE_SECONDS
    vllm.stop()
    yield TROUBLE_SECONDS
    vllm.start(load_seconds=60.0)
    yield 60.0
    workload.per_second = USUAL_PER_SECOND


def orphaned_worker(scene: Scene) -> Iterator[float]:
    """The API server is killed, but its engine core survives."""
    vllm, rack = scene["vllm"], scene.rack
    yield HEALTH_SECONDS
    if rack is not None:
        rack.orphan(vllm)
    vllm.stop()


def _open(vllm: SimulatedVllm) -> OpenLoop:
    if not isinstance(vllm.workload, OpenLoop):
        raise TypeError(f"{vllm.name} has no open loop whose rate could change")
    return vllm.workload
