"""Why an engine collapsed, told apart by what each cause leaves in the numbers. Pure helpers.

Starved of KV pages:
preemption_thrash: the requests themselves became long (finished ones are several times their old
length) and push each other out; kv_leak: usage that no running request explains grew over minutes;
kv_pinning: it was there within a moment, held by a few requests, or by none.
Slow steps: the GPU says so (clock lowered for heat or power; another process computes on it), else it
is the engine itself.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_watch.detectors.base import Evidence
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals import kept
from vllm_watch.signals.blocks import Block

KV_PINNING, PREEMPTION_THRASH, KV_LEAK = "kv_pinning", "preemption_thrash", "kv_leak"
SLOW_ENGINE, THERMAL, NEIGHBOUR = "slow_engine", "thermal_throttle", "neighbour_contention"

VAGUE = frozenset((SLOW_ENGINE,))
"""A cause that is said for want of a better one, and may sharpen while the alarm holds."""

CREEP_SECONDS = 240.0
"""Leaked pages add up over longer than this; pinned ones are taken by a few prefills, within a minute."""

CREEP_FROM, CREEP_TO = 0.25, 0.75
"""The rise is timed between these shares of what is unexplained now."""

CREEP_SAMPLE_SECONDS = 20.0
"""The history of unexplained usage is kept at this grain ..."""

CREEP_SAMPLES = 180
"""... for an hour."""

LONG_REQUESTS = 2.5
"""Finished requests this many times as long as when fresh: the requests themselves fill the cache."""

LENGTH_HALF_SECONDS = 120.0
"""Lengths of finished requests are averaged over about this time."""

LENGTH_REQUESTS_MIN = 8.0
"""Finished requests needed to speak of their length: the first to finish are those that were nearly done."""

PREEMPTED_SHARE_MIN = 0.1
"""Preemptions per finished request, at least, to call it thrash."""

THROTTLES = frozenset(
    ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown", "hw_power_brake_slowdown")
)
"""NVML's clock event reasons that mean trouble. The software power cap is normal on a busy GPU."""

CLOCK_SHARE_MAX = 0.8
"""SM clock below this share of its maximum is low: boost clocks of a busy GPU vary by a tenth."""

NEIGHBOUR_SHARE_MIN = 0.1
"""SM share from which another process is felt; desktops and exporters stay at a per cent or two."""


class Creep:
    """How KV usage that no running request explained came about, over the last hour."""

    def __init__(self) -> None:
        self._history: deque[tuple[float, float]] = deque(maxlen=CREEP_SAMPLES)

    def note(self, at_s: float, unexplained: float) -> None:
        """Keep a sample now and then."""
        if not self._history or at_s - self._history[-1][0] >= CREEP_SAMPLE_SECONDS:
            self._history.append((at_s, unexplained))

    def export_state(self) -> list[list[float]]:
        """Return the history as plain values."""
        return [[round(at_s, 1), round(unexplained, 4)] for at_s, unexplained in self._history]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        """Go on with the history."""
        history = [kept.numbers(each, 2) for each in state]
        self._history.extend((at_s, unexplained) for at_s, unexplained in history)

    def rise_seconds(self, now: float) -> float | None:
        """How long it took from a quarter to three quarters of what it is `now`; None where not known."""
        end = None
        for when, unexplained in reversed(self._history):
            if end is None and unexplained <= CREEP_TO * now:
                end = when
            if unexplained <= CREEP_FROM * now:
                return (end or when) - when
        return None


class Finished:
    """How long the requests were that finished lately, and how often they were preempted."""

    def __init__(self) -> None:
        self._requests = self._tokens = self._preempted = 0.0

    def export_state(self) -> list[float]:
        """Return the sums as plain values."""
        return [self._requests, self._tokens, self._preempted]

    def restore(self, state: Sequence[float]) -> None:
        """Go on with the sums."""
        self._requests, self._tokens, self._preempted = kept.numbers(state, 3)

    def add(self, block: Block) -> None:
        """Take a block in."""
        keep = 0.5 ** (block.seconds / LENGTH_HALF_SECONDS)
        self._requests = self._requests * keep + (block.finished or 0.0)
        self._tokens = self._tokens * keep + (block.finished_tokens or 0.0)
        self._preempted = self._preempted * keep + (block.preempted or 0.0)

    @property
    def tokens(self) -> float | None:
        """Prompt and output tokens of a request, mean; None while too few finished."""
        return self._tokens / self._requests if self._requests >= LENGTH_REQUESTS_MIN else None

    @property
    def preempted_share(self) -> float | None:
        """Preemptions for each request that finished; None while none did."""
        return self._preempted / self._requests if self._requests > 0.0 else None


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause and what speaks for and against it."""

    name: str
    evidence_for: tuple[Evidence, ...]
    evidence_against: tuple[Evidence, ...] = ()


def of_slow_steps(gpus: Sequence[GpuSample] | None, known_pids: frozenset[int]) -> Cause:
    """Why steps are slow. `known_pids`: processes that were on the GPUs when the engine was well."""
    if not gpus:
        unseen = Evidence(
            name="gpu",
            value=None,
            text="no GPU is visible here, so neither heat nor a neighbour can be excluded",
        )
        return Cause(SLOW_ENGINE, (), (unseen,))
    for gpu in gpus:
        hot = _throttled(gpu)
        if hot is not None:
            return Cause(THERMAL, (hot,))
    for gpu in gpus:
        beside = _neighbour(gpu, known_pids)
        if beside is not None:
            return Cause(NEIGHBOUR, (beside,))
    return Cause(
        SLOW_ENGINE,
        (
            Evidence(
                name="gpu",
                value="clear",
                text="no clock is lowered and no other process computes on the GPU",
            ),
        ),
    )


def _throttled(gpu: GpuSample) -> Evidence | None:
    reasons = THROTTLES.intersection(gpu.throttle_reasons or ())
    clock, top = gpu.sm_clock_hz, gpu.sm_clock_max_hz
    low = clock is not None and bool(top) and clock < CLOCK_SHARE_MAX * (top or 0.0)
    if not reasons and not (low and "sw_power_cap" in (gpu.throttle_reasons or ())):
        return None
    if clock is not None and top and not low:
        return None
    heat = "" if gpu.temperature_celsius is None else f" at {gpu.temperature_celsius:.0f} °C"
    speed = (
        "" if clock is None or not top else f", SM clock {clock / 1e6:.0f} of {top / 1e6:.0f} MHz"
    )
    return Evidence(
        name="throttle_reasons",
        value=",".join(sorted(reasons)) or "sw_power_cap",
        text=f"GPU {gpu.index} is throttled{heat}: {', '.join(sorted(reasons)) or 'sw_power_cap'}{speed}",
    )


def own_pids(gpu: GpuSample) -> set[int]:
    """The engine's processes on a GPU: those with vLLM's names; else the one that holds most memory."""
    processes = [p for p in gpu.processes or () if p.type != "graphics"]
    named = {p.pid for p in processes if _is_vllm(p)}
    if named or not processes:
        return named
    return {max(processes, key=lambda p: p.used_bytes or 0).pid}


def _is_vllm(process: ProcessSample) -> bool:
    words = ((process.name or ""), *(process.cmdline or ()))
    return any("vllm" in word.lower() for word in words)


def _neighbour(gpu: GpuSample, known_pids: frozenset[int]) -> Evidence | None:
    own = own_pids(gpu)
    for process in gpu.processes or ():
        if process.pid in own or process.type == "graphics":
            continue
        share = process.sm_utilization_ratio
        if share is None and process.pid in known_pids:
            continue
        if share is not None and share < NEIGHBOUR_SHARE_MIN:
            continue
        name = process.name or "a process"
        takes = "appeared beside it" if share is None else f"takes {share:.0%} of the SMs"
        return Evidence(
            name="neighbour",
            value=name,
            text=f"GPU {gpu.index}: {name} (PID {process.pid}) {takes}",
        )
    return None


def pids_of(gpus: Sequence[GpuSample] | None) -> frozenset[int]:
    """All processes on these GPUs."""
    return frozenset(p.pid for gpu in gpus or () for p in gpu.processes or ())


def of_starvation(facts: Mapping[str, float | None]) -> Cause:
    """Why pages lack. Facts: `length_ratio` of finished requests to those when fresh, `preempted_share`
    (preemptions per finished request), `unexplained` usage now, `rise_seconds` in which it came."""
    length, preempted = facts["length_ratio"], facts["preempted_share"]
    now, rise = facts["unexplained"] or 0.0, facts["rise_seconds"]
    if length is not None and length >= LONG_REQUESTS and (preempted or 0.0) >= PREEMPTED_SHARE_MIN:
        return Cause(
            PREEMPTION_THRASH,
            (
                Evidence(
                    name="request_length_ratio", value=length, expected=1.0,
                    text=f"finished requests are {length:.1f} times as long as when fresh",
                ),
                Evidence(
                    name="preemptions_per_request", value=preempted,
                    text=f"{preempted:.2f} preemptions for each request that finishes",
                ),
            ),
        )  # fmt: skip
    if rise is not None and rise >= CREEP_SECONDS:
        text = f"{now:.0%} of the cache is held beyond what so many requests held when fresh; it came over {rise / 60:.0f} minutes and more"
        return Cause(
            KV_LEAK, (Evidence(name="kv_unexplained_ratio", value=now, expected=0.0, text=text),)
        )
    text = f"{now:.0%} of the cache is held beyond what so many requests held when fresh, and came at once"
    return Cause(
        KV_PINNING, (Evidence(name="kv_unexplained_ratio", value=now, expected=0.0, text=text),)
    )
