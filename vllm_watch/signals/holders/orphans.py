"""Finds an engine core or worker without its server.

A healthy core may be a child of process 1, and an idle engine computes nothing for hours, so the
parent's death must be proved. Source: vLLM #55510, #42017, #34643, #43060.
"""

from collections.abc import Sequence

from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals.holders import roles
from vllm_watch.signals.holders.records import Limits
from vllm_watch.signals.holders.track import SAME_START_SECONDS, Track

SUCCESSOR_FACTOR = 5.0
"""A core with unknown ancestors is reported after this many times `orphan_seconds` without GPU work, if it has a younger successor."""


def sign(track: Track, others: Sequence[ProcessSample], limits: Limits) -> str | None:
    """Return the evidence that the process's server is gone, or None. `others` are the vLLM processes on the host's GPUs."""
    process = track.process
    if process.ancestors is not None and any(map(roles.is_vllm_command, process.ancestors)):
        return None
    if track.reparented_s is not None:
        return (
            f"its parent, process {track.ppid}, died; it is now a child of process {process.ppid}"
        )
    if (text := _by_ancestors(process)) is not None:
        return text
    younger = _successor(process, others)
    if younger is None or track.gpu_idle_for_s() < SUCCESSOR_FACTOR * limits.orphan_seconds:
        return None
    return (
        f"it is a child of process 1, while process {younger.pid} of the same unit or container, "
        "started later, has a server of its own"
    )


def is_superseded(process: ProcessSample, others: Sequence[ProcessSample]) -> bool:
    """Return True if a younger engine with another parent may have replaced this one."""
    return any(
        other.pid != process.pid
        and other.ppid != process.ppid
        and _is_younger(other, process)
        for other in others
    )  # fmt: skip


def _by_ancestors(process: ProcessSample) -> str | None:
    ancestors = process.ancestors
    if ancestors is None:
        return None
    outside = next((each for each in ancestors if not roles.is_vllm_part(each)), None)
    if outside is None:
        return "it has no parent process left" if not ancestors else None
    if roles.is_reaper(outside):
        return f"its server is gone: it now runs under “{outside[:60]}”, which does not start engine cores"
    if process.left_behind:
        return f"the program that started it is gone; it now runs under “{outside[:60]}”"
    return None


def _successor(process: ProcessSample, others: Sequence[ProcessSample]) -> ProcessSample | None:
    if process.ppid != 1 or process.cgroup is None or process.ancestors is not None:
        return None
    for other in others:
        alike = other.cgroup == process.cgroup and roles.role(other) == roles.role(process)
        if alike and other.ppid not in (None, 1) and _is_younger(other, process):
            return other
    return None


def _is_younger(other: ProcessSample, process: ProcessSample) -> bool:
    if other.create_time is None or process.create_time is None:
        return False
    return other.create_time > process.create_time + SAME_START_SECONDS
