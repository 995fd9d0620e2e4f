"""Healthy lives: engines that serve for hours, and to which only happens what happens to healthy engines.

Nothing here may wake anybody. Load is given as a share of what the engine can do, which is measured by
letting it serve as many clients as it takes. Steps are as uneven as on a real machine: see `breathing`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random
from typing import Any

from benchmarks.lab import routines
from benchmarks.lab.workloads import diurnal
from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.release import V0, V1_SEVERAL_API_SERVERS
from vllm_watch.lab.scene import Scene, Script
from vllm_watch.lab.stories import L40S
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import ClosedLoop, OpenLoop, Sizes, Workload, bursty

H100 = EngineConfig()
LONG_CONTEXT = EngineConfig(
    num_gpu_blocks=60_000, max_num_seqs=64, step_base_seconds=0.03, step_seconds_per_token=6e-5
)
"""A 70B model on four GPUs, for prompts of tens of thousands of tokens."""

_CALIBRATION_SECONDS = 300.0
_MODEL_LEN = 131_072
_CHAT: dict[str, Any] = {"prompt_tokens": 400, "output_tokens": 160}


@dataclass(frozen=True, slots=True)
class Life:
    """`build(seed)` gives a scene of one server called "vllm"."""

    slug: str
    title: str
    build: Callable[[int], Scene]


@cache
def capacity_per_second(config: EngineConfig, **sizes: Any) -> float:
    """Requests of this kind that one engine finishes per second when it never lacks any."""
    rng = Random(1)
    clients = ClosedLoop(rng, Sizes(rng, **sizes), 2 * config.max_num_seqs, think_seconds=0.01)
    vllm = SimulatedVllm("probe", workload=clients, config=config, max_model_len=_MODEL_LEN)
    vllm.advance(_CALIBRATION_SECONDS / 3)
    before = sum(vllm.engines[0].ledger.success.values())
    vllm.advance(_CALIBRATION_SECONDS)
    done = sum(vllm.engines[0].ledger.success.values()) - before
    return max(done, 1.0) / (_CALIBRATION_SECONDS * 2 / 3)


def _open(
    load: float,
    shape: Callable[[Random], Callable[[float], float]] | None = None,
    *,
    config: EngineConfig = H100,
    engines: int = 1,
    **sizes: Any,
) -> Callable[[Random], Workload]:
    """Arrivals at a share of what the engines can do, all the time or after a shape."""

    def workload(rng: Random) -> OpenLoop:
        what = sizes or _CHAT
        rate = load * engines * capacity_per_second(config, **what)
        return OpenLoop(rng, Sizes(rng, **what), rate, shape(rng) if shape else None)

    return workload


def _life(
    workload: Callable[[Random], Workload],
    script: Callable[[Random], Script] | None = None,
    *,
    config: EngineConfig = H100,
    **server: Any,  # as SimulatedVllm takes them
) -> Callable[[int], Scene]:
    def build(seed: int) -> Scene:
        rng = Random(seed)
        vllm = SimulatedVllm(
            "vllm", workload=workload(rng), config=config, max_model_len=_MODEL_LEN, **server
        )
        vllm.process_seen = rng.random() < _HOSTS_SEEN
        scripts = [routines.breathing(Random(seed + 1))]
        if script is not None:
            scripts.append(script(Random(seed + 2)))
        return Scene([vllm], script=partial(together, scripts))

    return build


_HOSTS_SEEN = 0.5
"""Share of the lives whose watcher runs on the engine's host and sees its process."""


def together(scripts: list[Script], scene: Scene) -> Iterator[float]:
    """Several scripts at once, each at its own pace."""
    due: list[list[Any]] = [[0.0, index, script(scene)] for index, script in enumerate(scripts)]
    now = 0.0
    while due:
        first: Any = min(due)
        if first[0] > now:
            yield first[0] - now
            now = first[0]
        wait_seconds = next(first[2], None)
        if wait_seconds is None:
            due.remove(first)
        else:
            first[0] += wait_seconds


_RAG: dict[str, Any] = {"prompt_tokens": 5000, "prompt_tokens_max": 16_000, "output_tokens": 60}
_LONG: dict[str, Any] = {"prompt_tokens": 20_000, "prompt_tokens_max": 60_000, "output_tokens": 500}
_CACHED: dict[str, Any] = {"prompt_tokens": 4000, "output_tokens": 120, "cached_share": 0.9}
_EMBED: dict[str, Any] = {"prompt_tokens": 300, "output_tokens": 0}
_PREFILL: dict[str, Any] = {"prompt_tokens": 2500, "output_tokens": 1}
_DECODE: dict[str, Any] = {"prompt_tokens": 2500, "output_tokens": 200, "external": True}
_AGENT: dict[str, Any] = {"prompt_tokens": 1200, "output_tokens": 500, "spread": 0.9}

_ALL = [
    Life("steady", "Half of what it can do, all day.", _life(_open(0.5))),
    Life("hot", "95 % of what it can do, all day.", _life(_open(0.95, config=L40S), config=L40S)),
    Life(
        "diurnal",
        "From a tenth at night to 85 % at noon.",
        _life(_open(0.85, lambda rng: diurnal(0.12, peak_t=21_600.0))),
    ),
    Life(
        "bursty",
        "Bursts of 20 s at what it can just do, calm between.",
        _life(_open(1.0, bursty)),
    ),
    Life("prompt_heavy", "Long prompts, short answers.", _life(_open(0.7, **_RAG))),
    Life(
        "long_context",
        "Prompts of tens of thousands of tokens.",
        _life(_open(0.6, config=LONG_CONTEXT, **_LONG), config=LONG_CONTEXT),
    ),
    Life(
        "prefix_heavy",
        "Nine tenths of each prompt are cached, and now and then the cache goes cold.",
        _life(_open(0.45, **_CACHED), routines.cold_caches),
    ),
    Life(
        "speculative",
        "Speculative decoding.",
        _life(
            _open(0.6, config=replace(L40S, step_tokens=2), **_AGENT),
            config=replace(L40S, step_tokens=2), spec_tokens=3,
        ),
    ),
    Life(
        "several_api_servers",
        "Two API servers before two engines.",
        _life(_open(0.6, engines=2), num_engines=2, release=V1_SEVERAL_API_SERVERS),
    ),
    Life(
        "lora",
        "Three adapters over one model.",
        _life(_open(0.5, **_CHAT, loras=("fr-lora", "sql-lora", "legal-lora")), max_loras=4),
    ),
    Life("pooling", "Embeddings: prompts only.", _life(_open(0.6, **_EMBED))),
    Life("prefill_only", "The prefill half of a pair.", _life(_open(0.6, **_PREFILL))),
    Life("decode_only", "The decode half of a pair.", _life(_open(0.6, **_DECODE))),
    Life("legacy", "vLLM 0.7.3 with the V0 engine.", _life(_open(0.6), release=V0)),
    Life(
        "batch",
        "Sixty clients, each of which asks again when it has its answer.",
        _life(lambda rng: ClosedLoop(rng, Sizes(rng, **_AGENT), 60, 2.0), config=L40S),
    ),
    Life("rare", "A request every forty seconds.", _life(lambda rng: OpenLoop(rng, Sizes(rng), 0.025))),
    Life(
        "sleeping",
        "Asleep at level 1 or 2 between spells of work.",
        _life(_open(0.4), routines.sleeping),
    ),
    Life("paused", "Paused for minutes, now and then.", _life(_open(0.4), routines.pausing)),
    Life(
        "load_drops",
        "Load that steps up, down and to nothing, after which caches are cold.",
        _life(_open(0.8), routines.load_steps),
    ),
    Life(
        "shifting",
        "Chat, then long prompts, then long answers.",
        _life(routines.shifting_workload(capacity_per_second, H100, (_CHAT, _RAG, _AGENT), 0.6),
              routines.shifts),
    ),
    Life(
        "planned_restarts",
        "Drained and restarted every hour or so.",
        _life(_open(0.5), routines.planned_restarts),
    ),
    Life(
        "rolling_updates",
        "Every update brings another model under the same name.",
        _life(_open(0.3), routines.rolling_updates),
    ),
    Life(
        "scale_to_zero",
        "Gone five minutes after the last request, back with the next.",
        _life(_open(0.4), routines.scale_to_zero),
    ),
    Life(
        "elastic",
        "Two engines become four, and two again: counters from zero in the same process.",
        _life(_open(0.5, engines=2), routines.elastic, num_engines=2),
    ),
]  # fmt: skip

LIVES: dict[str, Life] = {life.slug: life for life in _ALL}
