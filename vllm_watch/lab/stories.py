"""Named stories: small fleets with scripted events. Each fault outlasts every window of the signals."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.gpus import GpuRack, idle_notebook
from vllm_watch.lab.release import V0, V1_SEVERAL_API_SERVERS
from vllm_watch.lab.scene import Scene, Script
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import ClosedLoop, OpenLoop, Sizes, Workload, bursty

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


@dataclass(frozen=True, slots=True)
class Story:
    """One scenario. `build(seed)` creates its scene. Equal seeds give equal scenes."""

    title: str
    build: Callable[[int], Scene]


STORIES: dict[str, Story] = {}


def _rng(seed: int) -> Random:
    return Random(seed)  # noqa: S311


def load(
    rng: Random, per_second: float = USUAL_PER_SECOND, *, prompt_tokens: int = 2500,
    output_tokens: int = 200, external: bool = False, loras: tuple[str, ...] = (),
) -> OpenLoop:  # fmt: skip
    """Return chat requests with long prompts, shared prefixes and outputs of about 200 tokens."""
    sizes = Sizes(
        rng, prompt_tokens=prompt_tokens, output_tokens=output_tokens, spread=0.5,
        external=external, loras=loras,
    )  # fmt: skip
    return OpenLoop(rng, sizes, per_second)


def _one(
    script: Script | None = None,
    *,
    workload: Callable[[Random], Workload] = load,
    config: EngineConfig = L40S,
    num_engines: int = 1,
    num_gpus: int | None = None,
    **server: Any,
) -> Callable[[int], Scene]:

    def build(seed: int) -> Scene:
        vllm = SimulatedVllm(
            "vllm", workload=workload(_rng(seed)), config=config, num_engines=num_engines, **server
        )
        count = num_gpus or num_engines
        rack = GpuRack(count)
        rack.place(vllm, *range(count))
        return Scene([vllm], rack, script)

    return build


def _scripted(title: str, **options: Any) -> Callable[[Script], None]:
    """Return a decorator that adds a script to STORIES under its own name."""

    def add(script: Script) -> None:
        STORIES[script.__name__.removeprefix("_")] = Story(title, _one(script, **options))

    return add


def _play_demo(scene: Scene) -> Iterator[float]:
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


_START_INTERVAL_SECONDS = 3.0


def _demo(seed: int) -> Scene:
    def rng(number: int) -> Random:
        return _rng(seed * 1000 + number)

    mixed = Sizes(rng(2), prompt_tokens=1800, output_tokens=150)
    waves = OpenLoop(rng(2), mixed, 4.0, bursty(rng(20)))
    clients = ClosedLoop(rng(3), Sizes(rng(3), prompt_tokens=900, output_tokens=400), 24, 2.0)
    servers = [
        _demo_server("chat", load(rng(1), 2.0)),
        _demo_server("search", waves, num_engines=2),
        _demo_server("batch", clients),
        _demo_server("legacy", load(rng(4), 0.6), release=V0),
    ]
    for index, server in enumerate(servers):
        # The watcher maps GPU processes to servers by start times.
        server.process_start_t = _START_INTERVAL_SECONDS * (index - len(servers))
    rack = GpuRack(4)
    rack.place(servers[0], 0)
    rack.place(servers[1], 1, 2)
    rack.place(servers[2], 3)
    return Scene(servers, rack, _play_demo)


def _demo_server(name: str, workload: Workload, **options: Any) -> SimulatedVllm:
    return SimulatedVllm(name, workload=workload, config=L40S, group=name, **options)


def _fleet(seed: int) -> Scene:
    servers = []
    for index in range(10):
        rng = _rng(seed * 1000 + index)
        sizes = Sizes(rng, prompt_tokens=400, output_tokens=160)
        servers.append(SimulatedVllm(f"vllm-{index}", workload=OpenLoop(rng, sizes, 1.0)))
    return Scene(servers)


def _with_fault(slug: str) -> Script:
    """Return a script in which a fault begins and ends."""

    def script(scene: Scene) -> Iterator[float]:
        yield HEALTH_SECONDS
        scene["vllm"].fault(slug)
        yield TROUBLE_SECONDS
        scene["vllm"].clear(slug)

    return script


STORIES["demo"] = Story("Four servers, one of them with one fault after another.", _demo)
STORIES["healthy"] = Story("One server at a third of its capacity.", _one())
STORIES["fleet"] = Story("Ten healthy servers at one request a second each, without GPUs.", _fleet)
for _slug, _fault in FAULTS.items():
    STORIES[_slug] = Story(_fault.title, _one(_with_fault(_slug)))


@_scripted("An idle engine core stops: every gauge reads 0, as before, and no request is answered.")
def _idle_wedged(scene: Scene) -> Iterator[float]:
    vllm, workload = scene["vllm"], _open(scene["vllm"])
    yield HEALTH_SECONDS
    workload.per_second = 0.0
    yield TROUBLE_SECONDS / 3
    vllm.fault("hang")
    yield TROUBLE_SECONDS
    vllm.clear("hang")
    yield TROUBLE_SECONDS / 3
    workload.per_second = USUAL_PER_SECOND


@_scripted("More requests than the engine can serve, then the usual load.")
def _overload(scene: Scene) -> Iterator[float]:
    workload = _open(scene["vllm"])
    yield HEALTH_SECONDS
    workload.per_second = _OVERLOAD_PER_SECOND
    yield TROUBLE_SECONDS
    workload.per_second = USUAL_PER_SECOND


STORIES["pooling"] = Story(
    "An embedding model: prompts only, never a generated token.",
    _one(workload=lambda rng: load(rng, 8.0, prompt_tokens=300, output_tokens=0), generates=False),
)
STORIES["prefill_only"] = Story(
    "The prefill half of a disaggregated pair: one token per request.",
    _one(workload=lambda rng: load(rng, 2.0, output_tokens=1)),
)
STORIES["decode_only"] = Story(
    "The decode half of a disaggregated pair: prompts arrive already computed.",
    _one(workload=lambda rng: load(rng, 2.0, external=True)),
)


@_scripted("Asleep at level 1, awake, asleep at level 2, awake.")
def _sleep_wake(scene: Scene) -> Iterator[float]:
    vllm, workload = scene["vllm"], _open(scene["vllm"])
    for level in (1, 2):
        yield HEALTH_SECONDS
        workload.per_second = 0.0
        yield TROUBLE_SECONDS / 3
        vllm.sleep(level)
        yield TROUBLE_SECONDS
        vllm.wake_up()
        workload.per_second = USUAL_PER_SECOND


@_scripted("Scheduling is paused: running requests end, new ones are refused.")
def _pause(scene: Scene) -> Iterator[float]:
    yield HEALTH_SECONDS
    scene["vllm"].paused = True
    yield TROUBLE_SECONDS
    scene["vllm"].paused = False


@_scripted(
    "Two engines become four: counters restart from 0 in the same process.",
    num_engines=2,
    num_gpus=4,
)
def _elastic_scale_up(scene: Scene) -> Iterator[float]:
    yield HEALTH_SECONDS
    scene["vllm"].scale_up(4)


_ADAPTERS = ("fr-lora", "sql-lora", "legal-lora")
STORIES["lora"] = Story(
    "Requests for three LoRA adapters over one base model.",
    _one(max_loras=4, workload=lambda rng: load(rng, loras=_ADAPTERS)),
)
STORIES["speculative"] = Story(
    "Speculative decoding: three drafted tokens a step, of which one is accepted.",
    _one(spec_tokens=3, config=replace(L40S, step_tokens=2)),
)
STORIES["several_api_servers"] = Story(
    "Two API servers before two engines: no process_ series, no _created ones.",
    _one(num_engines=2, release=V1_SEVERAL_API_SERVERS),
)
STORIES["legacy"] = Story("vLLM 0.7.3 with the V0 engine.", _one(release=V0))


@_scripted("Drained, then another, slower model comes up under the same name after a minute.")
def _rolling_update(scene: Scene) -> Iterator[float]:
    workload = _open(scene["vllm"])
    yield HEALTH_SECONDS - _DRAIN_SECONDS
    workload.per_second = 0.0
    yield _DRAIN_SECONDS
    scene["vllm"].stop()
    yield from _next_model(scene)
    workload.per_second = USUAL_PER_SECOND


@_scripted(
    "The same without draining: SIGTERM with requests in flight, and a process that lingers."
)
def _sigterm_update(scene: Scene) -> Iterator[float]:
    scene["vllm"].process_seen = True
    yield HEALTH_SECONDS
    yield from _until_several_run(scene["vllm"])
    scene["vllm"].stop(_LINGER_SECONDS)
    yield _LINGER_SECONDS
    yield from _next_model(scene)


@_scripted("The same with --shutdown-timeout: running requests end, new ones are aborted.")
def _shutdown_timeout_update(scene: Scene) -> Iterator[float]:
    vllm = scene["vllm"]
    yield HEALTH_SECONDS
    yield from _until_several_run(vllm)
    vllm.draining = True
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
    vllm.config = replace(L40S, num_gpu_blocks=7000, step_base_seconds=0.035)
    vllm.start(load_seconds=60.0)
    yield 60.0


@_scripted("Fifteen minutes of refused connections, then a server.", serving_from_start=False)
def _cold_start(scene: Scene) -> Iterator[float]:
    scene["vllm"].start(_COLD_START_SECONDS)
    yield _COLD_START_SECONDS


@_scripted("No demand, no server, then demand again.")
def _scale_to_zero(scene: Scene) -> Iterator[float]:
    vllm, workload = scene["vllm"], _open(scene["vllm"])
    yield HEALTH_SECONDS
    workload.per_second = 0.0
    yield TROUBLE_SECONDS
    vllm.stop()
    yield TROUBLE_SECONDS
    vllm.start(load_seconds=60.0)
    yield 60.0
    workload.per_second = USUAL_PER_SECOND


@_scripted("The API server is killed; its engine core stays behind and keeps its VRAM.")
def _orphaned_worker(scene: Scene) -> Iterator[float]:
    vllm, rack = scene["vllm"], scene.rack
    yield HEALTH_SECONDS
    if rack is not None:
        rack.orphan(vllm)
    vllm.stop()


def _open(vllm: SimulatedVllm) -> OpenLoop:
    if not isinstance(vllm.workload, OpenLoop):
        raise TypeError(f"{vllm.name} has no open loop whose rate could change")
    return vllm.workload
