"""Finds causes of slow steps that no restart cures: heat, power, a lowered clock, another process, waits for a CPU."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.collapse_causes import (
    NEIGHBOUR,
    SLOW_ENGINE,
    THERMAL,
    UNKNOWN,
    Cause,
)
from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.cpu_waits import Waited
from vllm_watch.signals.loading import START_SECONDS
from vllm_watch.signals.scales import BRIEF_SECONDS, HALF, MOST_SHARE, PART_SHARE, SMALL_SHARE

THROTTLES = frozenset(
    ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown", "hw_power_brake_slowdown")
)
"""NVML clock event reasons of a throttled GPU. A software power cap is normal for a busy GPU."""


CAPPED_SHARE = 0.69
"""If the usual SM clock is unknown, this share of the maximum is expected at the power limit. A
healthy H100 multiplies matrices at 1367 of 1980 MHz (measured)."""

CLOCK_NEWS = 0.05
"""Weight of one scrape in the usual SM clock. It is small, because a clock drops before its slow
steps are detected."""


_UNSEEN = "no GPU is visible here, so neither heat nor a neighbour can be excluded"
_CLEAR = "neither a lowered GPU clock nor another busy process on its GPUs explains it"


@record
class Fresh:
    """Processes and usual clocks of a healthy engine's GPUs."""

    pids: frozenset[int] = frozenset()
    clocks: Mapping[str, float] = field(default_factory=dict)  # UUID → share of maximum

    @classmethod
    def of(cls, gpus: Sequence[GpuSample], before: "Fresh") -> "Fresh":
        pids = frozenset(p.pid for gpu in gpus for p in gpu.processes or ())
        clocks = dict(before.clocks)
        for gpu in gpus:
            share = _clock_share(gpu)
            if share is not None:
                usual = clocks.setdefault(gpu.uuid, share)
                clocks[gpu.uuid] = usual + CLOCK_NEWS * (share - usual)
        return cls(pids=pids, clocks=clocks)

    @classmethod
    def restored(cls, pids: Sequence[object], clocks: stored.Stored) -> "Fresh":
        shares = {stored.text(uuid): stored.number(share) for uuid, share in clocks.items()}
        return cls(pids=frozenset(stored.count(pid) for pid in pids), clocks=shares)


def of_slow_steps(
    gpus: Sequence[GpuSample] | None, fresh: Fresh, server_start: float | None
) -> Cause:
    """Return the cause of slow steps."""
    if not gpus:
        return Cause(SLOW_ENGINE, (), (Evidence(name="gpu", value=None, text=_UNSEEN),))
    for gpu in gpus:
        hot = _throttled(gpu, fresh.clocks.get(gpu.uuid))
        if hot is not None:
            return Cause(THERMAL, (hot,))
    besides = [each for gpu in gpus for each in _strangers(gpu, server_start)]
    for gpu, process in besides:
        beside = _felt(gpu, process, fresh.pids)
        if beside is not None:
            return Cause(NEIGHBOUR, (beside,))
    for gpu in gpus:
        lowered = _lowered(gpu, fresh.clocks.get(gpu.uuid))
        if lowered is not None:
            return Cause(UNKNOWN, (), (lowered,))
    shared = [each for each in besides if _is_vllm(each[1])]
    if shared:
        gpu, process = shared[0]
        text = f"GPU {gpu.index}: another vLLM (PID {process.pid}) holds memory there, too; its load is not visible"
        other = Evidence(name="neighbour", value=process.name or "", text=text)
        return Cause(UNKNOWN, (), (other,))
    return Cause(SLOW_ENGINE, (Evidence(name="gpu", value="clear", text=_CLEAR),))


def is_excused(cause: Cause | None) -> bool:
    """Return True if the cause is unknown because of a GPU's clock or a neighbour."""
    against = () if cause is None or cause.name != UNKNOWN else cause.evidence_against
    return any(each.name in ("sm_clock_ratio", "neighbour") for each in against)


def _throttled(gpu: GpuSample, usual: float | None) -> Evidence | None:
    reasons = THROTTLES.intersection(gpu.throttle_reasons or ())
    if not reasons and not _capped(gpu):
        return None
    clock, top = gpu.sm_clock_hz, gpu.sm_clock_max_hz
    # Boost clocks of a busy GPU vary by a tenth.
    share_max = MOST_SHARE * (1.0 if reasons else usual or CAPPED_SHARE)
    known = clock is not None and bool(top)
    if known and (clock or 0.0) >= share_max * (top or 0.0):
        return None
    if not known and not reasons:
        return None
    heat = "" if gpu.temperature_celsius is None else f" at {gpu.temperature_celsius:.0f} °C"
    speed = ""
    if clock is not None and top:
        speed = f", SM clock {clock / 1e6:.0f} of {top / 1e6:.0f} MHz"
    why = sorted(reasons) or ["sw_power_cap"]
    text = f"GPU {gpu.index} is throttled{heat}: {', '.join(why)}{speed}"
    return Evidence(name="throttle_reasons", value=",".join(why), text=text)


def _clock_share(gpu: GpuSample) -> float | None:
    idle = "gpu_idle" in (gpu.throttle_reasons or ()) or not gpu.utilization_ratio
    if idle or gpu.sm_clock_hz is None or not gpu.sm_clock_max_hz:
        return None
    return gpu.sm_clock_hz / gpu.sm_clock_max_hz


def _capped(gpu: GpuSample) -> bool:
    return "sw_power_cap" in (gpu.throttle_reasons or ())


def _lowered(gpu: GpuSample, fresh: float | None) -> Evidence | None:
    share = None if _capped(gpu) else _clock_share(gpu)
    if share is None or share >= MOST_SHARE * (1.0 if fresh is None else fresh):
        return None
    text = (
        f"GPU {gpu.index} runs at {share:.0%} of its SM clock without heat or a power cap: it was set by hand "
        "(nvidia-smi -q -d CLOCK; nvidia-smi -rgc and -rac undo it)"
    )
    return Evidence(
        name="sm_clock_ratio", value=round(share, 2), unit="ratio", expected=fresh, text=text
    )


def _strangers(gpu: GpuSample, server_start: float | None) -> list[tuple[GpuSample, ProcessSample]]:
    processes = [p for p in gpu.processes or () if p.type != "graphics"]
    own = {p.pid for p in _own(processes, server_start)}
    return [(gpu, p) for p in processes if p.pid not in own]


def _own(processes: Sequence[ProcessSample], server_start: float | None) -> Sequence[ProcessSample]:
    trees = _trees([p for p in processes if _is_vllm(p)] or list(processes))
    if not trees:
        return ()
    if server_start is not None:
        late = {id(tree): _late_seconds(tree, server_start) for tree in trees}
        near = [tree for tree in trees if late[id(tree)] is not None]
        if near:
            return min(near, key=lambda tree: late[id(tree)] or 0.0)
    return max(trees, key=lambda tree: sum(p.used_bytes or 0 for p in tree))


def _late_seconds(tree: Sequence[ProcessSample], server_start: float) -> float | None:
    began = [p.create_time - server_start for p in tree if p.create_time is not None]
    return min(began) if began and -BRIEF_SECONDS <= min(began) <= START_SECONDS else None


def _trees(processes: Sequence[ProcessSample]) -> list[list[ProcessSample]]:
    trees: list[list[ProcessSample]] = []
    for process in processes:
        kin = [tree for tree in trees if any(_are_kin(process, each) for each in tree)]
        trees = [tree for tree in trees if tree not in kin]
        trees.append([process, *(each for tree in kin for each in tree)])
    return trees


def _are_kin(a: ProcessSample, b: ProcessSample) -> bool:
    if a.cgroup is not None and b.cgroup is not None:
        if a.cgroup != b.cgroup:
            return False
        if _is_vllm(a):
            return True
    if a.ppid is None or b.ppid is None:
        return _is_vllm(a)
    return a.ppid == b.pid or b.ppid == a.pid or (a.ppid == b.ppid and a.ppid > 1)


def _is_vllm(process: ProcessSample) -> bool:
    words = ((process.name or ""), *(process.cmdline or ()))
    return any("vllm" in word.lower() for word in words)


def _felt(gpu: GpuSample, process: ProcessSample, known_pids: frozenset[int]) -> Evidence | None:
    share = process.sm_utilization_ratio
    if share is None and process.pid in known_pids:
        return None
    # Desktops and exporters use 1 to 2 %.
    if share is not None and share < SMALL_SHARE:
        return None
    name = process.name or "a process"
    who = f"{name} (PID {process.pid})"
    if _is_vllm(process):
        who = f"another vLLM's process, not this server's ({name}, PID {process.pid}),"
    text = f"{who} {'appeared on' if share is None else f'uses {share:.0%} of'} GPU {gpu.index}"
    return Evidence(name="neighbour", value=name, text=text)


_WAIT = "cpu_wait_ratio"


def has_left(known: str, found: Cause) -> bool:
    """Return True if the neighbour that was known has left, and CPU waits were measured."""
    seen = any(each.name == _WAIT for each in found.evidence_for)
    return known == NEIGHBOUR != found.name and seen


def judged(found: Cause, waited: Waited | None) -> Cause:
    """Combine the cause found on the GPUs with the CPU waits."""
    if waited is None or found.name == THERMAL:
        return found
    wait = _cpu_wait(waited)
    # Only one thread is measured.
    if waited.explained_ratio >= HALF:
        beside = found.evidence_for if found.name == NEIGHBOUR else ()
        return Cause(NEIGHBOUR, (wait, _cpu_limit(waited), *beside))
    if found.name == NEIGHBOUR:
        return found
    # A fresh engine would wait too.
    if found.name == SLOW_ENGINE and waited.explained_ratio >= PART_SHARE:
        return Cause(
            UNKNOWN, found.evidence_for, (*found.evidence_against, wait, _cpu_limit(waited))
        )
    return replace(found, evidence_for=(*found.evidence_for, wait))


def in_short(cause: Cause) -> str:
    """Return the cause as a clause for the summary."""
    waits = cause.name == NEIGHBOUR and any(each.name == _WAIT for each in cause.evidence_for)
    return "; most of the delay is waiting for a CPU of its host" if waits else ""


def _cpu_wait(waited: Waited) -> Evidence:
    text = (
        f"{waited.who} waited for a CPU during {waited.share:.0%} of its step time "
        f"({waited.usual_share:.0%} after the start). That explains {waited.explained_ratio:.0%} of the slowdown"
    )
    return Evidence(
        name=_WAIT,
        value=waited.share,
        unit="ratio",
        expected=waited.usual_share,
        text=text,
    )


def _cpu_limit(waited: Waited) -> Evidence:
    share = waited.throttled_share
    why = "no CPU limit of its own is seen"
    if share is not None:
        why = "its own CPU limit is not the cause"
    text = f"{why}: other processes use the CPUs; find them with `top` on the host, or give the engine more CPUs"
    if share is not None and share >= SMALL_SHARE:
        text = f"its CPU limit was used up in {share:.0%} of the periods: raise the limit of its container or service"
    return Evidence(name="cpu_throttled_ratio", value=share, unit="ratio", expected=0.0, text=text)
