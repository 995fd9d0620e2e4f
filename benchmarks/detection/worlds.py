"""Worlds that try judgement: healthy engines that look ill, and ill ones that look healthy.

Unlike the scenarios, steps scatter from one second to the next and load has a composition: how much a step costs
depends on who is in the batch, which no counter tells. `HEALTHY` must page nobody; in `ILL` one thing is wrong.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import exp, sqrt
from random import Random
from typing import Any

from benchmarks.detection import happenings
from benchmarks.detection.runs import Run, Script, Stage
from benchmarks.lab.lives import together
from vllm_watch.lab.workload import Request
from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.samples.observation import CanaryCall, Observation
from vllm_watch.settings.stages import CanarySettings
from vllm_watch.watch.canary_rounds import GAP_SECONDS_MIN

HOUR = 3600.0
FAULT_AT_S, FAULT_SECONDS = 3000.0, 2400.0
_MODEL_LEN = 131_072
_WHITE = 0.08  # scatter of the log of a second's steps, everywhere
_ENDLESS_TOKENS = 10_000_000


@dataclass
class Steps:
    """Why a step costs more than its tokens: composition, wander, scatter and fault, each a factor."""

    rng: Random
    white: float = _WHITE
    wander: float = 0.0  # standard deviation of the log, correlated over `minutes`
    minutes: float = 5.0
    composition: float = 1.0
    fault: dict[int, float] = field(default_factory=dict)  # engine (-1: all) → factor
    _level: float = 0.0

    def play(self, stage: Stage) -> Iterator[float]:
        """Set every engine's factor, second by second."""
        keep = exp(-1.0 / (60.0 * self.minutes))
        while True:
            fresh = self.wander * sqrt(1.0 - keep * keep)
            self._level = keep * self._level + self.rng.gauss(0.0, fresh)
            common = self.composition * exp(self._level) * self.fault.get(-1, 1.0)
            for index, engine in enumerate(stage.vllm.engines):
                scatter = exp(self.rng.gauss(0.0, self.white))
                engine.slow_factor = common * scatter * self.fault.get(index, 1.0)
            yield 1.0


Happening = Callable[[Stage, Steps], Iterator[float]]


@dataclass(frozen=True)
class World:
    """`kinds` are those of the incident that is right; empty: healthy."""

    slug: str
    title: str
    happening: Happening
    kinds: tuple[str, ...] = ()
    restart_helps: bool | None = None  # None: either
    steps: dict[str, float] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)  # as Run takes them
    fault_at_s: float = FAULT_AT_S
    fault_seconds: float = FAULT_SECONDS

    def script(self, seed: int) -> Script:
        """What happens in this world."""

        def script(stage: Stage) -> Iterator[float]:
            stage.vllm.max_model_len = _MODEL_LEN
            steps = Steps(Random(seed), **self.steps)
            parts: list[Any] = [steps.play, lambda each: self.happening(each, steps)]
            yield from together(parts, stage)  # type: ignore[arg-type]  # a stage is their scene

        return script


_HARDWARE = ("8b-h100", "70b-4xh100", "8b-l40s")


def run_of(world: World, seed: int) -> Run:
    """The run of a world and a seed."""
    said: dict[str, Any] = {
        "hardware": _HARDWARE[seed % len(_HARDWARE)], "shape": "chat", "load": 0.5, "interval_s": 5.0,
        "seconds": 2.0 * HOUR,
    }  # fmt: skip
    return Run(scenario=world.slug, number=seed, old=False, monotonic=True, **(said | world.run))


# --- healthy ----------------------------------------------------------------------------------


def _of(happening: Callable[..., Iterator[float]], *seconds: float) -> Happening:
    return lambda stage, steps: happening(stage, *seconds)


def nothing(stage: Stage, steps: Steps) -> Iterator[float]:
    yield HOUR


def _long_prompts(apart_s: float) -> Happening:
    def happen(stage: Stage, steps: Steps) -> Iterator[float]:
        while True:
            yield steps.rng.expovariate(1.0 / apart_s)
            tokens = int(steps.rng.uniform(30_000, 120_000))
            stage.vllm.submit(Request(tokens, 300, arrival_t=stage.vllm.t, max_tokens=1024))

    return happen


def long_prompts_in_turn(stage: Stage, steps: Steps) -> Iterator[float]:
    while True:
        tokens = int(steps.rng.uniform(30_000, 120_000))
        request = Request(tokens, 300, arrival_t=stage.vllm.t, max_tokens=1024)
        stage.vllm.submit(request)
        while request.finish_t < 0.0:
            yield 1.0
        yield steps.rng.expovariate(1.0 / 20.0)


def rare_regime(stage: Stage, steps: Steps) -> Iterator[float]:
    """An hour of few, long requests in big batches, never seen before."""
    yield HOUR
    stage.traffic.sizes = stage.sizes(20.0, 3.0)
    stage.traffic.per_second = stage.usual_per_second / 12.0
    steps.composition = 1.3
    yield 0.75 * HOUR
    stage.traffic.sizes, stage.traffic.per_second = stage.sizes(), stage.usual_per_second
    steps.composition = 1.0


def agents(stage: Stage, steps: Steps) -> Iterator[float]:
    """Turn after turn the contexts grow, mostly from the cache."""
    for turn in range(40):
        stage.traffic.sizes = stage.sizes(1.0 + 0.7 * turn, 1.0, cached=0.9)
        stage.traffic.per_second = stage.usual_per_second / (1.0 + 0.12 * turn)
        yield 180.0


def _comes_and_goes(low: float, high: float, more: float = 1.0) -> Happening:
    """A part of the load makes steps longer while it is there."""

    def happen(stage: Stage, steps: Steps) -> Iterator[float]:
        usual = stage.usual_per_second
        while True:
            yield steps.rng.uniform(600.0, 2400.0)
            steps.composition, stage.traffic.per_second = steps.rng.uniform(low, high), more * usual
            yield steps.rng.uniform(60.0, 1200.0)
            steps.composition, stage.traffic.per_second = 1.0, usual

    return happen


def structured(stage: Stage, steps: Steps) -> Iterator[float]:
    """Grammar masks cost each step so much for each such request; their share changes."""
    share, base = 0.8, stage.vllm.config.step_base_seconds
    while True:
        share = min(0.9, max(0.1, share + steps.rng.gauss(0.0, 0.02)))
        steps.composition = 1.0 + share * 1e-4 * stage.vllm.engines[0].num_running / base
        yield 5.0


def encoder(stage: Stage, steps: Steps) -> Iterator[float]:
    """Images come in bursts; each holds the batch up for a fraction of a second."""
    while True:
        yield steps.rng.expovariate(1.0 / 240.0)
        for _ in range(int(steps.rng.uniform(3, 20))):
            steps.composition = steps.rng.uniform(1.5, 4.0)
            yield steps.rng.uniform(1.0, 4.0)
            steps.composition = 1.0
            yield steps.rng.uniform(0.0, 4.0)


def full_load(stage: Stage, steps: Steps) -> Iterator[float]:
    """A benchmark: all it can do from the first second, then nothing, then again."""
    while True:
        stage.traffic.per_second = 1.3 * stage.capacity
        yield 600.0
        stage.traffic.per_second = 0.0
        yield 900.0


def busy_api(stage: Stage, steps: Steps) -> Iterator[float]:
    """The API server tokenizes or writes JSON for seconds and answers nobody meanwhile."""
    while True:
        yield steps.rng.expovariate(1.0 / 400.0)
        stage.vllm.fault("api_hang")
        yield steps.rng.uniform(4.0, 25.0)
        stage.vllm.clear()


def spec_switched(stage: Stage, steps: Steps) -> Iterator[float]:
    """A drafter that rarely hits: each step has it at work, and takes so much longer, until it is switched off."""
    vllm, drafted, before = stage.vllm, 0.0, 0.0

    def with_drafts(seen: Observation) -> Observation:
        nonlocal drafted, before
        made = sum(float(each.ledger.generation_tokens) for each in vllm.engines)
        if steps.composition > 1.0:
            drafted += 3.0 * max(0.0, made - before)
        before = made
        if seen.reading is None:
            return seen
        told = {
            "spec_num_drafts": drafted / 3.0,
            "spec_num_draft_tokens": drafted,
            "spec_num_accepted_tokens": 0.05 * drafted,
        }
        engines = tuple(replace(each, **told) for each in seen.reading.engines)
        return replace(seen, reading=replace(seen.reading, engines=engines))

    stage.change = with_drafts
    yield from _comes_and_goes(1.3, 1.8)(stage, steps)


HEALTHY = (
    World("steady", "Nothing happens; steps scatter.", nothing),
    World("long_prompts", "Prompts of 30,000 to 120,000 tokens in chunks, now and then.", _long_prompts(450.0)),
    World("long_prompts_all_day", "Long prompts one after another, as a batch job sends them.", long_prompts_in_turn, run={"load": 0.2}),
    World("rare_regime", "After an hour a load that was never seen.", rare_regime),
    World("agents", "Contexts that grow turn after turn.", agents, run={"load": 0.35}),
    World("lora_bursts", "Bursts over many adapters: steps 1.2 to 1.6 times as long.", _comes_and_goes(1.2, 1.6, 1.2)),
    World("structured", "A changing share of structured output.", structured),
    World("wander_3", "Step times wander: sigma 0.3 over 5 minutes.", nothing, steps={"wander": 0.3}),
    World("wander_5", "Step times wander: sigma 0.5 over 10 minutes.", nothing, steps={"wander": 0.5, "minutes": 10.0}, run={"load": 0.35}),
    World("noise_5", "Steps scatter widely from second to second.", nothing, steps={"white": 0.5}),
    World("encoder", "Images come in bursts.", encoder),
    World("spec_switched", "Speculative decoding goes off and on.", spec_switched),
    World("full_load", "Full load from the start.", full_load),
    World("updates", "New weights every quarter of an hour, for a minute.", _of(happenings.updates)),
    World("pooling", "Embeddings, idle between most steps.", nothing, run={"shape": "embed", "load": 0.3}),
    World("busy_api", "The API server is busy for seconds.", busy_api),
)  # fmt: skip


# --- ill --------------------------------------------------------------------------------------


def _slow(factor: float, engine: int = -1) -> Happening:
    def happen(stage: Stage, steps: Steps) -> Iterator[float]:
        yield FAULT_AT_S
        steps.fault[engine] = factor
        yield FAULT_SECONDS
        steps.fault.clear()

    return happen


def _from_fault(happening: Happening) -> Happening:
    """... until the end, so that what is left of its queue is nobody's false page."""

    def happen(stage: Stage, steps: Steps) -> Iterator[float]:
        yield FAULT_AT_S
        yield from happening(stage, steps)

    return happen


def _always(factor: float, engine: int = -1) -> Happening:
    def happen(stage: Stage, steps: Steps) -> Iterator[float]:
        steps.fault[engine] = factor
        yield HOUR

    return happen


def _with_canaries(stage: Stage) -> None:
    """One-token requests as the watcher sends them where nothing is set: to an engine that reads idle, and 10 s after
    one that went unanswered."""
    settings, due_t, failures = CanarySettings(), 0.0, 0

    def asked(seen: Observation) -> Observation:
        nonlocal due_t, failures
        engine, t = stage.vllm.engines[0], stage.vllm.t
        if t < due_t or engine.num_running or engine.num_waiting:
            return seen
        failures = failures + 1 if engine.frozen else 0
        due_t = t + (GAP_SECONDS_MIN if failures == 1 else settings.interval_seconds)
        took_s = settings.timeout_seconds if engine.frozen else 0.1
        canary = CanaryCall(
            ok=not failures, latency_s=took_s, outcome="unanswered" if failures else "ok"
        )
        return replace(seen, canary=canary)

    stage.change = asked


def hang_at_five_an_hour(stage: Stage, steps: Steps) -> Iterator[float]:
    _with_canaries(stage)
    stage.traffic.per_second = 5.0 / HOUR
    yield FAULT_AT_S
    stage.vllm.fault("hang")
    yield 3.0 * FAULT_SECONDS
    stage.vllm.clear()


def stuck(stage: Stage, steps: Steps) -> Iterator[float]:
    """Now and then a request stays in the batch for ever and gets no token."""
    engine, held = stage.vllm.engines[0], []
    yield FAULT_AT_S
    for _ in range(40):
        request = Request(2000, _ENDLESS_TOKENS, arrival_t=stage.vllm.t)
        request.blocks = engine.kv.blocks_of(2000)
        engine.kv.used_blocks += request.blocks
        engine.batch.running[request] = None
        held.append(request)
        yield FAULT_SECONDS / 40
    for request in held:
        engine.batch.release(request, stage.vllm.t)


def now_and_then(stage: Stage, steps: Steps) -> Iterator[float]:
    """Slow for two minutes of every ten."""
    yield FAULT_AT_S
    for _ in range(int(FAULT_SECONDS / 600.0)):
        steps.fault[-1] = 2.5
        yield 120.0
        steps.fault.clear()
        yield 480.0


def kv_leak(stage: Stage, steps: Steps) -> Iterator[float]:
    """KV cache pages leak, over six hours."""
    yield HOUR
    stage.vllm.fault("leak", share=0.97, ramp_seconds=6.0 * HOUR)
    yield 6.0 * HOUR
    stage.vllm.clear()


def host_leak(stage: Stage, steps: Steps) -> Iterator[float]:
    """The API server's memory grows by a gibibyte an hour."""
    yield HOUR
    stage.vllm.host_leak_bytes_per_second = 2**30 / HOUR
    yield 6.0 * HOUR


def dead_at_first(stage: Stage, steps: Steps) -> Iterator[float]:
    stage.vllm.fault("hang")
    yield HOUR


def another_vllm(stage: Stage, steps: Steps) -> Iterator[float]:
    """Another engine core computes on the same GPU: same name, another parent."""
    yield FAULT_AT_S
    guest = ProcessSample(
        pid=70_001, used_bytes=3_000_000_000, type="compute", name="VLLM::EngineCor", ppid=70_000, state="R",
        cmdline=("VLLM::EngineCore",), sm_utilization_ratio=0.5, cpu_seconds=10.0, uid=1001,
        create_time=stage.vllm.epoch + stage.vllm.t - 30.0, cgroup="/kubepods.slice/kubepods-pod77.slice",
    )  # fmt: skip
    stage.gpu_guests, steps.fault[-1] = (guest,), 2.0
    yield FAULT_SECONDS
    stage.gpu_guests, steps.fault = (), {}


def locked_clocks(stage: Stage, steps: Steps) -> Iterator[float]:
    yield FAULT_AT_S
    stage.gpu_changes = {
        "sm_clock_hz": 0.3 * 2.52e9,
        "throttle_reasons": ("applications_clocks_setting",),
    }
    steps.fault[-1] = 2.5
    yield FAULT_SECONDS
    stage.gpu_changes, steps.fault = {}, {}


def source_gone(stage: Stage, steps: Steps) -> Iterator[float]:
    """The half of a pair that decodes: its source is gone, and requests wait for their KV blocks."""

    def deferred(seen: Observation) -> Observation:
        if seen.reading is None:
            return seen
        engines = tuple(
            replace(each, external_prefix_cache_queries=1e6, requests_waiting_by_reason={"capacity": 0.0, "deferred": each.requests_waiting or 0.0})
            for each in seen.reading.engines
        )  # fmt: skip
        return replace(seen, reading=replace(seen.reading, engines=engines))

    yield FAULT_AT_S
    stage.change = deferred
    stage.vllm.fault("admission_deadlock")
    yield FAULT_SECONDS / 3
    stage.vllm.clear()
    stage.change = None


_SIX_HOURS: dict[str, Any] = {
    "run": {"seconds": 7.0 * HOUR},
    "fault_at_s": HOUR,
    "fault_seconds": 6.0 * HOUR,
}
_COLLAPSE, _STALL = ("throughput_collapse",), ("engine_stalled",)
_AT_FIRST: dict[str, Any] = {"first_look_s": 900.0, "seconds": 2700.0}

ILL = (
    World("slow_2.5", "2.5 times slower.", _slow(2.5), _COLLAPSE, True),
    World("slow_1.5", "1.5 times slower at equal load.", _slow(1.5), _COLLAPSE, True),
    World("slow_1.3", "1.3 times slower.", _slow(1.3), _COLLAPSE),
    World("slow_1.15", "1.15 times slower.", _slow(1.15), _COLLAPSE),
    World("slow_noisy_3", "2.5 times slower, steps scatter by 0.3.", _slow(2.5), _COLLAPSE, True, steps={"white": 0.3}),
    World("slow_noisy_8", "2.5 times slower, steps scatter by 0.8.", _slow(2.5), _COLLAPSE, steps={"white": 0.8}, run={"load": 0.35}),
    World("slow_wandering", "2.5 times slower, step times wander by 0.15.", _slow(2.5), _COLLAPSE, steps={"wander": 0.15}),
    World("rank_of_8", "One of eight ranks is 1.3 times slower.", _slow(1.3, 3), _COLLAPSE, run={"engines": 8, "interval_s": 15.0}),
    World("slow_rank_at_first", "One of four ranks was 2 times slower before the watcher started.", _always(2.0, 2), _COLLAPSE,
          run={"engines": 4, "interval_s": 15.0, **_AT_FIRST}, fault_at_s=0.0),
    World("slow_at_first", "A single engine that was 2.5 times slower before the watcher started.", _always(2.5), (*_COLLAPSE, "overload"), run=_AT_FIRST, fault_at_s=0.0),
    World("too_many_long_prompts", "Prompts of 30,000 to 120,000 tokens, one every 40 s: more than it can serve.", _from_fault(_long_prompts(40.0)),
          (*_COLLAPSE, "overload"), False, run={"load": 0.2, "hardware": "70b-4xh100"}, fault_seconds=2.0 * HOUR - FAULT_AT_S),
    World("pooling_slow", "Embeddings, 2.5 times slower.", _slow(2.5), _COLLAPSE, run={"shape": "embed"}),
    World("five_an_hour", "Five requests an hour, and it hangs.", hang_at_five_an_hour, _STALL, True, run={"seconds": 3.0 * HOUR}, fault_seconds=3.0 * FAULT_SECONDS),
    World("stuck", "Some requests are stuck forever.", stuck, (*_COLLAPSE, *_STALL)),
    World("now_and_then", "2.5 times slower for two minutes of every ten.", now_and_then, _COLLAPSE),
    World("kv_leak", "KV cache pages leak, over six hours.", kv_leak, _COLLAPSE, True, **_SIX_HOURS),
    World("host_leak", "The API server's memory grows by 1 GiB an hour, for six hours.", host_leak, ("host_memory_growth",), **_SIX_HOURS),
    World("dead_at_first", "It hung before the watcher started.", dead_at_first, _STALL, True, run=_AT_FIRST, fault_at_s=0.0),
    World("another_vllm", "Another vLLM computes on the same GPU.", another_vllm, _COLLAPSE, False),
    World("locked_clocks", "The GPU's clocks were locked low.", locked_clocks, _COLLAPSE, False),
    World("source_gone", "The source of KV blocks is gone.", source_gone, (*_STALL, *_COLLAPSE), False, fault_seconds=FAULT_SECONDS / 3),
    World("all_fail", "Each answer is an immediate error.", _of(happenings.all_fail, FAULT_AT_S, FAULT_SECONDS), ("engine_failing",), False),
    World("drafts_miss", "Drafted tokens are no longer accepted.",
          lambda stage, steps: happenings.drafts_miss(stage, steps.fault, FAULT_AT_S, FAULT_SECONDS), _COLLAPSE, False),
    World("stopped", "Its process is stopped (state T).", _of(happenings.stopped("0"), FAULT_AT_S, FAULT_SECONDS), _STALL),
    World("rank_stopped", "One of two ranks is stopped, and the other waits for it.", _of(happenings.stopped("1"), FAULT_AT_S, FAULT_SECONDS), _STALL, run={"engines": 2}),
    World("update_without_end", "An update of the weights does not end.", _of(happenings.update_without_end, FAULT_AT_S, FAULT_SECONDS), _STALL, False),
)  # fmt: skip

WORLDS = {world.slug: world for world in (*HEALTHY, *ILL)}
