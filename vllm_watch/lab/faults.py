"""Faults of a simulated server that begin and end on demand."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from vllm_watch.lab.workload import Request

if TYPE_CHECKING:
    from vllm_watch.lab.vllm import SimulatedVllm

_ENDLESS_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `begin(vllm, **options)` and `end(vllm)` act immediately."""

    title: str
    begin: Callable[..., None]
    end: Callable[["SimulatedVllm"], None]


def _hang(vllm: "SimulatedVllm", *, engine: float = -1) -> None:
    for index, each in enumerate(vllm.engines):
        if engine in (-1, index):
            each.freeze(vllm.t)


def _unhang(vllm: "SimulatedVllm") -> None:
    for engine in vllm.engines:
        engine.thaw(vllm.t)


def _restart(vllm: "SimulatedVllm") -> None:
    vllm.stop()
    vllm.start()


def _api_hang(vllm: "SimulatedVllm") -> None:
    vllm.api_hung = vllm.serving


def _slow(vllm: "SimulatedVllm", *, factor: float = 8.0, ramp_seconds: float = 0.0) -> None:
    for engine in vllm.engines:
        engine.slow_factor = factor
        engine.slow_since_t = vllm.t
        engine.slow_ramp_seconds = ramp_seconds


def _leak(vllm: "SimulatedVllm", *, share: float = 0.95, ramp_seconds: float = 60.0) -> None:
    vllm.leaks.append((vllm.t, ramp_seconds, share))


def _unleak(vllm: "SimulatedVllm") -> None:
    vllm.leaks.clear()
    for engine in vllm.engines:
        engine.kv.leaked_blocks = 0


def _pin(vllm: "SimulatedVllm", *, requests: float = 4, share: float = 0.97) -> None:
    for engine in vllm.engines:
        tokens = int(engine.config.num_gpu_blocks * engine.config.block_size * share / requests)
        for _ in range(int(requests)):
            pin = Request(tokens, _ENDLESS_TOKENS, arrival_t=vllm.t, max_tokens=_ENDLESS_TOKENS)
            engine.submit(pin)
            vllm.pins.append((engine, pin))


def _unpin(vllm: "SimulatedVllm") -> None:
    pins, vllm.pins = vllm.pins, []
    for engine, pin in pins:
        engine.abort(pin)


def _admission(vllm: "SimulatedVllm", *, blocked: bool) -> None:
    for engine in vllm.engines:
        engine.batch.admission_blocked = blocked


def _kill_engine(vllm: "SimulatedVllm") -> None:
    vllm.dead = vllm.serving
    for engine in vllm.engines:
        engine.freeze(vllm.t)


FAULTS = {
    "hang": Fault("The engine core stops stepping; its API server still answers.", _hang, _unhang),
    "crash": Fault(
        "The process is gone and its port refuses connections.", lambda vllm: vllm.stop(), _restart
    ),
    "api_hang": Fault(
        "The API server accepts connections but never answers.",
        _api_hang,
        lambda vllm: vllm.resume_api(),
    ),
    "slow": Fault("Every step takes longer than it should.", _slow, partial(_slow, factor=1.0)),
    "leak": Fault("KV cache pages leak, so that fewer and fewer requests fit.", _leak, _unleak),
    "pinning": Fault("A few endless requests hold nearly all pages.", _pin, _unpin),
    "admission_deadlock": Fault(
        "No waiting request is admitted, although the cache is empty.",
        partial(_admission, blocked=True),
        partial(_admission, blocked=False),
    ),
    "engine_dead": Fault(
        "The engine core died: /health is 503, /metrics still 200.", _kill_engine, _restart
    ),
}
"""Faults by slug. `crash` and `engine_dead` end with a restart."""
