"""Named stories: small fleets with scripted events."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from vllm_watch.lab import scripts
from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.gpus import GpuRack
from vllm_watch.lab.release import V0, V1_SEVERAL_API_SERVERS
from vllm_watch.lab.scene import Scene, Script
from vllm_watch.lab.scripts import L40S, USUAL_PER_SECOND
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import ClosedLoop, OpenLoop, Sizes, Workload, bursty


@dataclass(frozen=True, slots=True)
class Story:
    """One scenario. `build(seed)` creates its scene. Equal seeds give equal scenes."""

    slug: str
    title: str
    build: Callable[[int], Scene]


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


def _fleet(seed: int) -> Scene:
    servers = []
    for index in range(10):
        rng = _rng(seed * 1000 + index)
        sizes = Sizes(rng, prompt_tokens=400, output_tokens=160)
        servers.append(SimulatedVllm(f"vllm-{index}", workload=OpenLoop(rng, sizes, 1.0)))
    return Scene(servers)


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
    return Scene(servers, rack, scripts.demo)


def _demo_server(name: str, workload: Workload, **options: Any) -> SimulatedVllm:
    return SimulatedVllm(name, workload=workload, config=L40S, group=name, **options)


_ALL = [
    Story("demo", "Four servers, one of them with one fault after another.", _demo),
    Story("healthy", "One server at a third of its capacity.", _one()),
    Story("fleet", "Ten healthy servers at one request a second each, without GPUs.", _fleet),
    *(Story(slug, fault.title, _one(scripts.with_fault(slug))) for slug, fault in FAULTS.items()),
    Story(
        "idle_wedged",
        "An idle engine core stops: every gauge reads 0, as before, and no request is answered.",
        _one(scripts.idle_wedged),
    ),
    Story(
        "overload",
        "More requests than the engine can serve, then the usual load.",
        _one(scripts.overload),
    ),
    Story(
        "pooling",
        "An embedding model: prompts only, never a generated token.",
        _one(
            workload=lambda rng: load(rng, 8.0, prompt_tokens=300, output_tokens=0), generates=False
        ),
    ),
    Story(
        "prefill_only",
        "The prefill half of a disaggregated pair: one token per request.",
        _one(workload=lambda rng: load(rng, 2.0, output_tokens=1)),
    ),
    Story(
        "decode_only",
        "The decode half of a disaggregated pair: prompts arrive already computed.",
        _one(workload=lambda rng: load(rng, 2.0, external=True)),
    ),
    Story(
        "sleep_wake",
        "Asleep at level 1, awake, asleep at level 2, awake.",
        _one(scripts.sleep_wake),
    ),
    Story(
        "pause",
        "Scheduling is paused: running requests end, new ones are refused.",
        _one(scripts.pause),
    ),
    Story(
        "elastic_scale_up",
        "Two engines become four: counters restart from 0 in the same process.",
        _one(scripts.scale_up, num_engines=2, num_gpus=4),
    ),
    Story(
        "lora",
        "Requests for three LoRA adapters over one base model.",
        _one(
            max_loras=4, workload=lambda rng: load(rng, loras=("fr-lora", "sql-lora", "legal-lora"))
        ),
    ),
    Story(
        "speculative",
        "Speculative decoding: three drafted tokens a step, of which one is accepted.",
        _one(spec_tokens=3, config=replace(L40S, step_tokens=2)),
    ),
    Story(
        "several_api_servers",
        "Two API servers before two engines: no process_ series, no _created ones.",
        _one(num_engines=2, release=V1_SEVERAL_API_SERVERS),
    ),
    Story("legacy", "vLLM 0.7.3 with the V0 engine.", _one(release=V0)),
    Story(
        "rolling_update",
        "Drained, then another, slower model comes up under the same name after a minute.",
        _one(scripts.rolling_update),
    ),
    Story(
        "sigterm_update",
        "The same without draining: SIGTERM with requests in flight, and a process that lingers.",
        _one(scripts.sigterm_update),
    ),
    Story(
        "shutdown_timeout_update",
        "The same with --shutdown-timeout: running requests end, new ones are aborted.",
        _one(scripts.shutdown_timeout_update),
    ),
    Story(
        "cold_start",
        "Fifteen minutes of refused connections, then a server.",
        _one(scripts.cold_start, serving=False),
    ),
    Story("scale_to_zero", "No demand, no server, then demand again.", _one(scripts.scale_to_zero)),
    Story(
        "orphaned_worker",
        "The API server is killed; its engine core stays behind and keeps its VRAM.",
        _one(scripts.orphaned_worker),
    ),
]

STORIES: dict[str, Story] = {story.slug: story for story in _ALL}
