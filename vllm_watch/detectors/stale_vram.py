"""Warns of unused GPU memory that makes the next start of an engine fail.

Source: vLLM #55510, #42017, #43060.
"""

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, HostView, Verdict
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals.holders import records
from vllm_watch.signals.holders.records import GpuHolders, Holder, Judged, Limits
from vllm_watch.signals.scales import HALF, SHOWN_MAX
from vllm_watch.story.stale_vram import STORY
from vllm_watch.support.quantities import seconds, size

KIND = "stale_vram"
NEEDS = Needs(must=(Need(("gpus",), "no holder of GPU memory is seen"),))

_LIMITS = Limits()


class Settings(Base):
    """Unused GPU memory is reported beyond these sizes and times."""

    bytes_min: int = Field(256 * 2**20, ge=0)
    """Processes with less memory than this are not reported. A CUDA context takes more: 300 to 600 MiB."""

    dead_seconds: float = Field(_LIMITS.dead_seconds, gt=0)
    """The memory of an ended process is stale after this many seconds. 100 GiB are freed within
    seconds, but a slow driver needs longer."""

    stuck_seconds: float = Field(_LIMITS.stuck_seconds, gt=0)
    """A process in state D is stuck after this many seconds. Slow disks and network file systems
    take less."""

    orphan_seconds: float = Field(_LIMITS.orphan_seconds, gt=0)
    """A worker is stale this many seconds after its parent's death. Unless the worker hangs, it
    exits within 40 s."""

    notebook_seconds: float = Field(_LIMITS.notebook_seconds, gt=0)
    """A notebook kernel is stale after this many seconds without work. The pauses of its user are shorter."""

    process_seconds: float = Field(_LIMITS.process_seconds, gt=0)
    """Any other program is stale after this many seconds without work. Training waits for data,
    ranks or a disk for less than an hour."""

    stopped_seconds: float = Field(_LIMITS.stopped_seconds, gt=0)
    """A process stopped by a signal is stale after this many seconds. A debugging session ends
    sooner."""

    unaccounted_seconds: float = Field(_LIMITS.unaccounted_seconds, gt=0)
    """Memory without an owner is stale after this many seconds. The memory of an exiting process
    has no owner for some seconds."""

    asleep_seconds: float = Field(120.0, gt=0)
    """A sleeping engine must have freed its memory after this many seconds. Weights of 150 GiB
    reach host memory within a minute."""

    def limits(self) -> Limits:
        return Limits(**self.model_dump(exclude={"bytes_min", "asleep_seconds"}))


_Found = tuple[GpuHolders, Judged, Holder | None]


class HostDetector:
    """Judges the holders of memory on one host's GPUs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._awake: dict[str, tuple[int | None, int]] = {}  # UUID → PID, most bytes when awake
        self._asleep_since_s: dict[str, float] = {}

    def update(self, view: HostView) -> Verdict:
        if not view.gpus:
            return Verdict(state=UNKNOWN, kind=KIND)
        both = self._found(view), self._kept_asleep(view)
        found = [one for each in both for one in sorted(each, key=_largest_first)]
        if not found:
            known = all(each.holders is not None for each in view.holders)
            return Verdict(state=CLEAR if known else UNKNOWN, kind=KIND)
        return self._firing(view, found)

    def _found(self, view: HostView) -> Iterator[_Found]:
        seen = set()
        for each in view.holders:
            for holder in each.stale:
                # Count a process once, even if the driver also lists it on a MIG slice.
                used = holder.process.used_bytes
                place = (holder.process.pid, each.gpu.mig_parent_uuid or each.gpu.uuid)
                if place not in seen and (used is None or used >= self._settings.bytes_min):
                    yield each, holder.judged, holder
                    seen.add(place)
            if each.unaccounted.verdict == records.STALE:
                yield each, each.unaccounted, None

    def _kept_asleep(self, view: HostView) -> Iterator[_Found]:
        for each in view.holders:
            uuid, using = each.gpu.uuid, view.using(each.gpu.uuid)
            ours = [one for one in each.holders or () if one.judged.verdict == records.VLLM]
            if len(using) != 1 or not using[0].up or not ours:
                self._asleep_since_s.pop(uuid, None)
                continue
            held = sum(one.process.used_bytes or 0 for one in ours)
            pid, most = self._awake.get(uuid, (None, 0))
            if not using[0].asleep:
                # Keep the maximum, because memory may be freed before a scrape reports the sleep.
                ours_pid = ours[0].process.pid
                self._awake[uuid] = ours_pid, max(held, most if pid == ours_pid else 0)
                self._asleep_since_s.pop(uuid, None)
                continue
            usual = most or each.gpu.memory_total_bytes or 0
            # Sleeping engines hold either everything or less than a tenth. An engine
            # never seen awake may hold half of the whole GPU.
            if not usual or held <= HALF * usual:
                self._asleep_since_s.pop(uuid, None)
                continue
            since_s = self._asleep_since_s.setdefault(uuid, view.at_s)
            if view.at_s - since_s >= self._settings.asleep_seconds:
                told = f"{using[0].name} has slept for {seconds(view.at_s - since_s)} and holds {size(held)} of {size(usual)}"  # fmt: skip
                judged = Judged(verdict=records.STALE, reason=records.SLEEPING_ENGINE, evidence=(told,))  # fmt: skip
                largest = max(ours, key=lambda one: one.process.used_bytes or 0)
                yield each, judged, replace(largest, judged=judged)

    def _firing(self, view: HostView, found: list[_Found]) -> Verdict:
        gpu, judged, holder = found[0]
        reason = judged.reason or "unknown"
        whole = sum(map(_bytes, found))
        held = f"{size(_bytes(found[0]))} of GPU {gpu.gpu.index}"
        who = f"{_who(holder) if holder else STORY.causes[reason].title} holds {held}"
        others = f"; {size(whole)} in all" if len(found) > 1 else ""
        hit = [server.name for each, _, _ in found for server in view.hit(each.gpu.uuid)]
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause=reason,
            severity="ticket",
            summary=f"{who}{others}{_hurts(view, gpu.gpu.uuid)}",
            evidence_for=tuple(map(_evidence, found[:SHOWN_MAX])),
            concerns=tuple(dict.fromkeys(hit)),
        )


def _hurts(view: HostView, uuid: str) -> str:
    using = view.using(uuid)
    up = [
        f"{each.name} ({each.gpus[uuid]})" if each.gpus.get(uuid) else each.name
        for each in using if each.up
    ]  # fmt: skip
    if up:
        return f", which {', '.join(up)} {'uses' if len(up) == 1 else 'use'}"
    names = ", ".join(each.name for each in using)  # a stale process may belong to a dead server
    return f", which {names} used when last scraped" if using else ""


def _bytes(one: _Found) -> int:
    gpu, _, holder = one
    used = gpu.unaccounted_bytes if holder is None else holder.process.used_bytes
    return used or 0


def _largest_first(one: _Found) -> tuple[int, int]:
    return -_bytes(one), one[0].gpu.index


def _who(holder: Holder) -> str:
    process, told = holder.process, []
    command = process.cmdline[0] if process.cmdline else process.name
    if command:
        told.append(command.rpartition("/")[2])
    told.append(f"PID {process.pid}")
    if holder.place:
        told.append(holder.place)
    elif process.uid is not None:
        told.append(f"user {process.uid}")
    return f"{STORY.causes[holder.judged.reason or ''].title} ({', '.join(told)})"


def _evidence(one: _Found) -> Evidence:
    gpu, judged, holder = one
    text = "; ".join(judged.evidence)
    if holder is not None:
        aged = "" if holder.age_seconds is None else f", {seconds(holder.age_seconds)} old"
        text = f"PID {holder.process.pid}{aged}: {text}"
    if judged.remedy:
        text = f"{text}. Do: {judged.remedy}"
    return Evidence(
        name=judged.reason or "stale",
        value=_bytes(one),
        unit="bytes",
        expected=0,
        text=f"GPU {gpu.gpu.index}: {text}",
    )
