"""The labelled recordings of the benchmark: what the lab plays, and the truth about it.

Every run is one simulated server in virtual time with a life before, during and after one fault, or with
none and something that looks like one. The same name gives the same run, always.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from zlib import crc32

from benchmarks.lab.virtual import observe
from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.exposition import Writer
from vllm_watch.lab.gpus import GpuRack
from vllm_watch.lab.release import V0, V1
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Request, Sizes, Workload
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Observation

EPOCH = 1_800_000_000.0
RUN_SECONDS = 3600.0
MODEL_LEN_MAX = 32_768

HARDWARE: dict[str, EngineConfig] = {
    "8b-l40s": L40S,
    "8b-h100": EngineConfig(),
    "70b-4xh100": EngineConfig(
        num_gpu_blocks=16_000, max_num_seqs=128, step_base_seconds=0.024,
        step_seconds_per_token=9e-5, step_seconds_per_kv_token=6e-8,
    ),
}  # fmt: skip
"""Steps cost what such models cost on such GPUs, to within what a comparison of detectors needs."""

SHAPES: dict[str, tuple[int, int, float]] = {
    "chat": (400, 160, 0.4),
    "rag": (2500, 200, 0.5),
    "write": (300, 600, 0.2),
    "embed": (300, 0, 0.0),
}
"""Median prompt tokens, median output tokens, share of the prompt that others have too."""

LOADS = (0.35, 0.6, 0.8)
"""Shares of what the engine can do."""

INTERVALS = (5.0, 10.0, 2.0, 15.0)
JITTER_SECONDS_SHARE = 0.04
"""Looks come early or late by up to this share of the interval, as Prometheus' do under load."""


class Traffic(Workload):
    """Open-loop arrivals of which everything may change while they come."""

    def __init__(self, rng: Random, sizes: Sizes, per_second: float) -> None:
        self._rng = rng
        self._next_t: float | None = None
        self._now = 0.0
        self.sizes = sizes
        self.per_second = per_second
        self.share: Callable[[float], float] = lambda t: 1.0

    def arrivals(self, until_t: float) -> list[Request]:
        come: list[Request] = []
        if self.per_second <= 0.0:
            self._next_t, self._now = None, until_t
            return come
        if self._next_t is None:
            self._next_t = self._now + self._rng.expovariate(self.per_second)
        while self._next_t <= until_t:
            if self._rng.random() < self.share(self._next_t):
                come.append(self.sizes.draw(self._next_t))
            self._next_t += self._rng.expovariate(self.per_second)
        self._now = until_t
        return come


@dataclass
class Stage:
    """What a scenario acts on, and the truth that it writes."""

    vllm: SimulatedVllm
    scene: Scene
    traffic: Traffic
    rng: Random
    capacity: float  # requests per second that the engine can do
    load: float
    shape: tuple[int, int, float]
    interval_s: float
    events: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    restart_helps: bool | None = None
    confuser: bool = False
    gpu_changes: dict[str, Any] = field(default_factory=dict)
    gpu_guests: tuple[Any, ...] = ()
    clock_offset_s: float = 0.0
    blackout: bool = False  # nobody looks
    change: Callable[[Observation], Observation] | None = None  # what a look shows otherwise
    _effect: Callable[[], bool] | None = None

    @contextmanager
    def event(
        self,
        kind: str,
        cause: str,
        *,
        restart_helps: bool | None = None,
        engine: str | None = None,
        effect: Callable[[], bool] | None = None,
    ) -> Iterator[None]:
        """Something is wrong from here to the end; users feel it when `effect` first holds (None: at once)."""
        begin = self.scene.t
        told = {"kind": kind, "cause": cause, "engine": engine, "start": begin, "end": None}
        self.events.append(told | {"effect_start": None if effect else begin})
        self._effect = effect
        if restart_helps is not None:
            self.restart_helps = restart_helps
        yield
        self.events[-1]["end"] = self.scene.t
        if self.events[-1]["effect_start"] is None:
            self.events[-1]["effect_start"] = begin
        self._effect = None

    def note(self, kind: str, seconds: float) -> None:
        """An incident of this kind is right, or at least no mistake, from now on for so long."""
        self.notes.append({"kind": kind, "start": self.scene.t, "end": self.scene.t + seconds})

    def looked(self) -> None:
        """A look was taken: is the effect there?"""
        if self._effect is not None and self.events[-1]["effect_start"] is None and self._effect():
            self.events[-1]["effect_start"] = self.scene.t

    def sizes(self, prompt: float = 1.0, output: float = 1.0, cached: float | None = None) -> Sizes:
        """Requests so many times as long as this run's usual ones."""
        tokens, answer, share = self.shape
        return Sizes(
            self.rng, prompt_tokens=int(tokens * prompt), prompt_tokens_max=12_000,
            output_tokens=int(answer * output), spread=0.5,
            cached_share=share if cached is None else cached, max_tokens=8192,
        )  # fmt: skip

    @property
    def usual_per_second(self) -> float:
        return self.load * self.capacity


Script = Callable[[Stage], Iterator[float]]


@dataclass(frozen=True)
class Run:
    """One recording to be made."""

    scenario: str
    number: int
    hardware: str
    shape: str
    load: float
    interval_s: float
    old: bool  # a V0 engine
    monotonic: bool  # does the recording carry the monotonic clock?
    engines: int = 1
    seconds: float = RUN_SECONDS
    first_look_s: float = 0.0  # the watcher came so long after the engine

    @property
    def name(self) -> str:
        return f"{self.scenario}-{self.number}"

    @property
    def setting(self) -> str:
        return f"{self.hardware}, {self.shape}, load {self.load:g}, every {self.interval_s:g} s"


@dataclass
class Played:
    """A run as it was played: what was seen, and the truth."""

    observations: list[Observation]
    bodies: list[str | None]  # of each; empty unless asked for
    truth: dict[str, Any]


_capacities: dict[tuple[str, str], float] = {}


def capacity(hardware: str, shape: str) -> float:
    """Requests per second that finish when more than enough are asked for, once it has settled."""
    key = hardware, shape
    if key not in _capacities:
        rng = Random(7)
        tokens, answer, share = SHAPES[shape]
        sizes = Sizes(rng, prompt_tokens=tokens, prompt_tokens_max=12_000, output_tokens=answer,
                      spread=0.5, cached_share=share, max_tokens=8192)  # fmt: skip
        vllm = SimulatedVllm("probe", workload=OpenLoop(rng, sizes, 150.0),
                             config=HARDWARE[hardware], max_model_len=MODEL_LEN_MAX)  # fmt: skip
        finished = []
        for t in (60.0, 180.0):
            vllm.advance(t)
            vllm.engines[0].ledger.histograms()  # requests are counted when somebody reads
            finished.append(sum(vllm.engines[0].ledger.success.values()))
        _capacities[key] = (finished[1] - finished[0]) / 120.0
    return _capacities[key]


def _stage(run: Run, play_out: Script) -> Stage:
    rng = Random(crc32(run.name.encode()))
    top = capacity(run.hardware, run.shape) * run.engines
    traffic = Traffic(rng, Sizes(rng), run.load * top)
    vllm = SimulatedVllm(
        "vllm", workload=traffic, config=HARDWARE[run.hardware], num_engines=run.engines,
        release=V0 if run.old else V1, max_model_len=MODEL_LEN_MAX,
    )  # fmt: skip
    rack = GpuRack(run.engines)
    rack.place(vllm, *range(run.engines))

    def script(_: Scene) -> Iterator[float]:
        yield from play_out(stage)

    stage = Stage(
        vllm=vllm, scene=Scene([vllm], rack, script), traffic=traffic, rng=rng,
        capacity=top, load=run.load, shape=SHAPES[run.shape], interval_s=run.interval_s,
    )  # fmt: skip
    traffic.sizes = stage.sizes()
    stage.scene.begin_at(EPOCH)
    return stage


def play(run: Run, script: Script, *, with_bodies: bool = False) -> Played:
    """Let a run happen, looked at with jitter, and write down what was seen and what was true."""
    stage = _stage(run, script)
    jitter = Random(crc32(run.name.encode()) + 1)
    writer = Writer(stage.vllm)
    seen, bodies = [], []
    t = run.first_look_s + jitter.random() * run.interval_s
    while t < run.seconds:
        stage.scene.advance(t)
        stage.looked()
        if not stage.blackout:
            seen.append(_look(stage, run))
            readable = seen[-1].reading is not None
            bodies.append(writer.body() if with_bodies and readable else None)
        t += run.interval_s * (1.0 + JITTER_SECONDS_SHARE * (2.0 * jitter.random() - 1.0))
    return Played(seen, bodies if with_bodies else [], _truth(run, stage))


def _look(stage: Stage, run: Run) -> Observation:
    rack = stage.scene.rack
    gpus = None if rack is None else tuple(_changed(stage, each) for each in rack.sample())
    seen = observe(stage.vllm, gpus)
    if stage.change is not None:
        seen = stage.change(seen)
    return replace(
        seen,
        t=seen.t + stage.clock_offset_s,
        monotonic_s=seen.monotonic_s if run.monotonic else None,
        target="http://vllm:8000",
    )


def _changed(stage: Stage, gpu: GpuSample) -> GpuSample:
    if not stage.gpu_changes and not stage.gpu_guests:
        return gpu
    return replace(gpu, **stage.gpu_changes, processes=(*(gpu.processes or ()), *stage.gpu_guests))


def _truth(run: Run, stage: Stage) -> dict[str, Any]:
    def told(each: dict[str, Any]) -> dict[str, Any]:
        times = ("start", "effect_start", "end")
        return {
            name: value + EPOCH if name in times and value is not None else value
            for name, value in each.items()
        }

    return {
        "name": run.name,
        "scenario": run.scenario,
        "interval_s": run.interval_s,
        "t0": EPOCH + run.first_look_s,
        "t1": EPOCH + run.seconds,
        "events": [told(each) for each in stage.events],
        "notes": [told(each) for each in stage.notes],
        "confuser": not stage.events,
        "restart_helps": stage.restart_helps,
        "setting": run.setting,
    }
