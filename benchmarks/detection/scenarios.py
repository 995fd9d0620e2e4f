"""What happens in the benchmark's runs: faults with their truth, and confusers without any."""

from collections.abc import Callable, Iterator
from math import cos, pi

from benchmarks.detection.runs import HARDWARE, INTERVALS, LOADS, Run, Script, Stage
from vllm_watch.samples.gpu import ProcessSample

HEALTH_SECONDS = 1500.0
"""Before anything happens: rules that compare with the last hour have a reference then."""

TROUBLE_SECONDS = 900.0
"""Rules of five minutes have time to see it, two times over."""

LONGEST_REQUEST_TOKENS = 15_000

_FAULT_RUNS, _CONFUSER_RUNS = 3, 2


def _healthy(stage: Stage) -> float:
    return HEALTH_SECONDS + 600.0 * stage.rng.random()


def _slow_by(factor: float, ramp_seconds: float, cause: str, helps: bool) -> Script:
    def script(stage: Stage) -> Iterator[float]:
        yield _healthy(stage)
        engine = stage.vllm.engines[0]
        with stage.event(
            "throughput_collapse", cause, restart_helps=helps,
            effect=(lambda: engine._speed_factor() >= 1.5) if ramp_seconds else None,
        ):  # fmt: skip
            stage.vllm.fault("slow", factor=factor, ramp_seconds=ramp_seconds)
            yield TROUBLE_SECONDS
            stage.vllm.clear()

    return script


def thermal(stage: Stage) -> Iterator[float]:
    """The GPU grows hot and lowers its clock."""
    yield _healthy(stage)
    with stage.event("throughput_collapse", "thermal_throttle", restart_helps=False):
        stage.vllm.fault("slow", factor=2.2)
        stage.gpu_changes = {
            "throttle_reasons": ("hw_thermal_slowdown",), "temperature_celsius": 92.0,
            "sm_clock_hz": 0.45 * 2.52e9,
        }  # fmt: skip
        yield TROUBLE_SECONDS
        stage.vllm.clear()
        stage.gpu_changes = {}


def neighbour(stage: Stage) -> Iterator[float]:
    """Another process computes on the same GPU."""
    yield _healthy(stage)
    guest = ProcessSample(
        pid=777, used_bytes=3_000_000_000, type="compute", name="python3", ppid=1, state="R",
        cmdline=("python3", "train.py"), sm_utilization_ratio=0.5, cpu_seconds=10.0, uid=1009,
        create_time=1_800_000_000.0,
    )  # fmt: skip
    with stage.event("throughput_collapse", "neighbour_contention", restart_helps=False):
        stage.vllm.fault("slow", factor=2.0)
        stage.gpu_guests = (guest,)
        yield TROUBLE_SECONDS
        stage.vllm.clear()
        stage.gpu_guests = ()


def pinning(stage: Stage) -> Iterator[float]:
    """A few endless requests hold nearly all pages."""
    yield _healthy(stage)
    with stage.event(
        "throughput_collapse", "kv_pinning", restart_helps=False, effect=_starving(stage)
    ):
        stage.vllm.fault("pinning", requests=4, share=_share_of_pages(stage))
        yield TROUBLE_SECONDS
        stage.vllm.clear()


def leak(stage: Stage) -> Iterator[float]:
    """Pages get lost over ten minutes; users feel it when requests wait for those that are left."""
    yield _healthy(stage) - 400.0
    with stage.event("throughput_collapse", "kv_leak", restart_helps=True, effect=_starving(stage)):
        stage.vllm.fault("leak", share=_share_of_pages(stage), ramp_seconds=600.0)
        yield TROUBLE_SECONDS + 400.0
        stage.vllm.clear()


def _share_of_pages(stage: Stage) -> float:
    """So many that the rest is half of what the engine uses, but enough for the longest request: it
    starves, and does not stand still."""
    engine = stage.vllm.engines[0]
    usual = engine.kv.used_blocks / engine.config.num_gpu_blocks
    longest = LONGEST_REQUEST_TOKENS / (engine.config.num_gpu_blocks * engine.config.block_size)
    return 1.0 - max(0.5 * usual, longest)


def _starving(stage: Stage) -> Callable[[], bool]:
    """Do requests wait for pages?"""
    engine = stage.vllm.engines[0]
    return lambda: engine.num_waiting > 0 and engine.kv.usage_ratio > 0.9


def thrash(stage: Stage) -> Iterator[float]:
    """Answers become so long that the requests push each other out of the cache."""
    yield _healthy(stage)
    before = stage.vllm.engines[0].ledger.preemptions
    engine = stage.vllm.engines[0]
    with stage.event(
        "throughput_collapse", "preemption_thrash", restart_helps=False,
        effect=lambda: engine.ledger.preemptions > before,
    ):  # fmt: skip
        stage.traffic.sizes = stage.sizes(output=6.0)
        stage.traffic.per_second = 0.35 * stage.usual_per_second
        yield TROUBLE_SECONDS
        stage.traffic.sizes = stage.sizes()
        stage.traffic.per_second = stage.usual_per_second
    stage.note("throughput_collapse", 900.0)  # the long ones are still there
    stage.note("overload", 900.0)


def _stall(slug: str, cause: str) -> Script:
    def script(stage: Stage) -> Iterator[float]:
        yield _healthy(stage)
        with stage.event("engine_stalled", cause, restart_helps=True):
            stage.vllm.fault(slug)
            yield TROUBLE_SECONDS
            stage.vllm.clear()

    return script


def hang_then_crash(stage: Stage) -> Iterator[float]:
    """The engine core hangs; four minutes later the server ends, and is started again after five."""
    yield _healthy(stage)
    with stage.event("engine_stalled", "hang", restart_helps=True):
        stage.vllm.fault("hang")
        yield 240.0
    with stage.event("engine_down", "crash"):
        stage.vllm.clear()
        stage.vllm.stop()
        yield 300.0
        stage.vllm.start(load_seconds=60.0)
        yield 60.0


def crash(stage: Stage) -> Iterator[float]:
    """The process is gone; a supervisor that waits starts it again."""
    yield _healthy(stage)
    with stage.event("engine_down", "crash"):
        stage.vllm.stop()
        yield 300.0
        stage.vllm.start(load_seconds=60.0)
        yield 60.0


def _down(slug: str, cause: str, helps: bool | None) -> Script:
    def script(stage: Stage) -> Iterator[float]:
        yield _healthy(stage)
        with stage.event("engine_down", cause, restart_helps=helps):
            stage.vllm.fault(slug)
            yield 600.0
            stage.vllm.clear()

    return script


def one_of_two_slow(stage: Stage) -> Iterator[float]:
    """Of two data-parallel engines the second becomes slow."""
    yield _healthy(stage)
    engine = stage.vllm.engines[1]
    with stage.event("throughput_collapse", "slow_engine", restart_helps=True, engine="1"):
        engine.slow_factor = 2.5
        yield TROUBLE_SECONDS
        engine.slow_factor = 1.0


def one_of_two_hangs(stage: Stage) -> Iterator[float]:
    """Of two data-parallel engines the first hangs."""
    yield _healthy(stage)
    with stage.event("engine_stalled", "hang", restart_helps=True, engine="0"):
        stage.vllm.fault("hang", engine=0)
        yield TROUBLE_SECONDS
        stage.vllm.clear()


def overload(stage: Stage) -> Iterator[float]:
    """Half as much again as the engine can do is asked of it."""
    yield _healthy(stage)
    with stage.event("overload", "demand"):
        stage.traffic.per_second = 1.5 * stage.capacity
        yield 600.0
        stage.traffic.per_second = stage.usual_per_second
    stage.note("overload", 1200.0)  # until the queue is worked off


def steady(stage: Stage) -> Iterator[float]:
    """Nothing happens, at nine tenths of what the engine can do."""
    stage.traffic.per_second = 0.9 * stage.capacity
    yield 0.0


def load_drop(stage: Stage) -> Iterator[float]:
    """Nine tenths of the users leave, and come back."""
    yield _healthy(stage)
    stage.traffic.per_second = 0.1 * stage.usual_per_second
    yield TROUBLE_SECONDS
    stage.traffic.per_second = stage.usual_per_second


def idle(stage: Stage) -> Iterator[float]:
    """Nobody asks anything for a while."""
    yield _healthy(stage)
    stage.traffic.per_second = 0.0
    yield TROUBLE_SECONDS
    stage.traffic.per_second = stage.usual_per_second


def bursts(stage: Stage) -> Iterator[float]:
    """Every five minutes 20 s of twice what the engine can do."""
    while True:
        yield 280.0
        stage.traffic.per_second = 2.0 * stage.capacity
        yield 20.0
        stage.traffic.per_second = 0.7 * stage.usual_per_second


def diurnal(stage: Stage) -> Iterator[float]:
    """A day in 50 minutes: from a tenth to nine tenths of what the engine can do."""
    stage.traffic.per_second = 0.9 * stage.capacity
    stage.traffic.share = lambda t: 0.11 + 0.89 * (1.0 - cos(2.0 * pi * t / 3000.0)) / 2.0
    yield 0.0


def cold_cache(stage: Stage) -> Iterator[float]:
    """What prompts had in common is gone: every prompt is computed whole."""
    yield _healthy(stage)
    stage.note("overload", TROUBLE_SECONDS + 1200.0)  # which may be more than the engine can do
    stage.traffic.sizes = stage.sizes(cached=0.0)
    yield TROUBLE_SECONDS
    stage.traffic.sizes = stage.sizes()


def longer_requests(stage: Stage) -> Iterator[float]:
    """Half as many requests, twice as long."""
    yield _healthy(stage)
    stage.traffic.sizes = stage.sizes(2.0, 2.0)
    stage.traffic.per_second = 0.45 * stage.usual_per_second


def shorter_requests(stage: Stage) -> Iterator[float]:
    """As many requests, a third as long."""
    yield _healthy(stage)
    stage.traffic.sizes = stage.sizes(0.34, 0.34)


def longer_prompts(stage: Stage) -> Iterator[float]:
    """Prompts three times as long, a third as many."""
    yield _healthy(stage)
    stage.traffic.sizes = stage.sizes(3.0, 1.0)
    stage.traffic.per_second = stage.usual_per_second / 3.0


def saturation(stage: Stage) -> Iterator[float]:
    """A little more than the engine can do, for four minutes: it is busy, not unhealthy."""
    yield _healthy(stage)
    stage.note("overload", 1200.0)  # a queue of demand may be said
    stage.traffic.per_second = 1.05 * stage.capacity
    yield 240.0
    stage.traffic.per_second = stage.usual_per_second


def planned_restart(stage: Stage) -> Iterator[float]:
    """Drained, stopped, started again, as an orchestrator does it."""
    yield _healthy(stage)
    stage.traffic.per_second = 0.0
    yield 30.0
    stage.note("engine_down", 120.0)
    stage.vllm.stop()
    yield 5.0
    stage.vllm.start(load_seconds=60.0)
    yield 65.0
    stage.traffic.per_second = stage.usual_per_second


def clock_steps(stage: Stage) -> Iterator[float]:
    """The watcher's clock is set forth by five minutes, and back by two."""
    yield _healthy(stage)
    stage.clock_offset_s = 300.0
    yield 600.0
    stage.clock_offset_s = 180.0


def gaps(stage: Stage) -> Iterator[float]:
    """Nobody looks for one, three and six minutes."""
    for seconds in (60.0, 180.0, 360.0):
        yield 700.0
        stage.blackout = True
        yield seconds
        stage.blackout = False


FAULTS: dict[str, Script] = {
    "slow": _slow_by(2.5, 0.0, "slow_engine", True),
    "slow_creeping": _slow_by(4.0, 600.0, "slow_engine", True),
    "thermal": thermal,
    "neighbour": neighbour,
    "kv_pinning": pinning,
    "kv_leak": leak,
    "preemption_thrash": thrash,
    "one_of_two_slow": one_of_two_slow,
    "hang": _stall("hang", "hang"),
    "one_of_two_hangs": one_of_two_hangs,
    "admission_deadlock": _stall("admission_deadlock", "admission_deadlock"),
    "hang_then_crash": hang_then_crash,
    "crash": crash,
    "api_hang": _down("api_hang", "api_hang", True),
    "engine_dead": _down("engine_dead", "engine_dead", None),
    "overload": overload,
}
CONFUSERS: dict[str, Script] = {
    "steady_hot": steady,
    "load_drop": load_drop,
    "idle": idle,
    "bursts": bursts,
    "diurnal": diurnal,
    "cold_cache": cold_cache,
    "longer_requests": longer_requests,
    "shorter_requests": shorter_requests,
    "longer_prompts": longer_prompts,
    "saturation": saturation,
    "planned_restart": planned_restart,
    "clock_steps": clock_steps,
    "gaps": gaps,
}
SCRIPTS = FAULTS | CONFUSERS
_TWO_ENGINES = ("one_of_two_slow", "one_of_two_hangs")
_KV_SHAPES, _KV_LOADS = ("rag", "write"), (0.6, 0.7, 0.8)
_CRAMPED: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...]]] = {
    "kv_pinning": (tuple(HARDWARE), _KV_SHAPES, _KV_LOADS),
    "kv_leak": (tuple(HARDWARE), _KV_SHAPES, _KV_LOADS),
    "preemption_thrash": (("8b-h100", "70b-4xh100"), ("write",), _KV_LOADS),
}
"""Scenarios that need requests large enough, and many enough, to fill a cache."""


def runs(seed: int = 0) -> list[Run]:
    """All runs, each scenario on several kinds of hardware, load and interval; another seed, other ones."""
    made: list[Run] = []
    for place, scenario in enumerate(SCRIPTS):
        count = _FAULT_RUNS if scenario in FAULTS else _CONFUSER_RUNS
        numbers = range(seed * count, (seed + 1) * count)
        made += [_run(place, scenario, number) for number in numbers]
    return made


def _run(place: int, scenario: str, number: int) -> Run:
    turn = place + number
    usual = tuple(HARDWARE), ("chat", "rag", "write"), LOADS
    hardware, shapes, loads = _CRAMPED.get(scenario, usual)
    return Run(
        scenario=scenario, number=number,
        hardware=hardware[turn % len(hardware)],
        shape=shapes[(place + 2 * number + number // 3) % len(shapes)],
        load=loads[number % len(loads)], interval_s=INTERVALS[turn % len(INTERVALS)],
        old=number % 3 == 2 and place % 3 == 0, monotonic=number % 2 == 0,
        engines=2 if scenario in _TWO_ENGINES else 1,
    )  # fmt: skip
