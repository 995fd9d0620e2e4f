"""Judges holders of GPU memory by rules in order of precedence.

Without data, the verdict is `unknown`.
"""

from collections.abc import Callable, Sequence

from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals.holders import idle, lenders, roles, vanished, vllm
from vllm_watch.signals.holders.case import Case
from vllm_watch.signals.holders.records import UNKNOWN, GpuHolders, Holder, Judged, Limits
from vllm_watch.signals.holders.track import DEAD_STATES, Track, begin, follow, is_same
from vllm_watch.signals.holders.unaccounted import Account

TRACKS_MAX = 4096
"""At most this many processes are followed, 256 on each of 16 GPUs. A larger number would be a driver error."""

ABSENT_SECONDS = 60.0
"""A process that is absent for this long is forgotten. A single poll may omit a process."""


Rule = Callable[[Case], Judged | None]

RULES: tuple[Rule, ...] = (
    vanished.unseen, vanished.dead, lenders.lends, vanished.container_gone,
    vllm.orphan, vllm.living,
    vanished.stuck,
    idle.stands_by, idle.pool_worker, idle.stopped, idle.notebook, idle.process,
    idle.works,
)  # fmt: skip


class HolderJudge:
    """Follows the holders on one host's GPUs."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._tracks: dict[tuple[str, int, int | None], Track] = {}
        self._accounts: dict[str, Account] = {}

    def look(
        self,
        at_s: float,
        t: float,
        gpus: Sequence[GpuSample],
        *,
        answering: Sequence[frozenset[int]] | None = None,
    ) -> tuple[GpuHolders, ...]:
        """`t` is Unix time. `answering` lists the engine PIDs of each vLLM that answers on this host, or is None if unknown."""
        looked = [self._tracked(at_s, gpu) for gpu in gpus]
        tracks = [track for each in looked for track in each]
        vllms = [track.process for track in tracks if track.role in roles.VLLM_ROLES]
        served = None if answering is None else bool(answering)
        engines = {t.process.pid_here for t in tracks if t.role in (roles.CORE, roles.WORKER)}
        placed = all(pids & engines for pids in answering or ())
        host_seen = any(track.outside for track in tracks)
        parents = {gpu.mig_parent_uuid for gpu in gpus}
        judged = []
        for gpu, here in zip(gpus, looked, strict=True):
            borrowed = lenders.borrows(track.process for track in here)
            cases = [
                Case(
                    t=t, at_s=at_s, track=track, role=track.role, served=served, placed=placed,
                    others=vllms, limits=self._limits, borrowed_here=borrowed,
                )
                for track in here
            ]  # fmt: skip
            holders = tuple(sorted(map(_holder, cases), key=_largest_first))
            account = self._accounts.setdefault(gpu.uuid, Account())
            rest = account.look(
                at_s, gpu, self._limits, host_seen=host_seen, sliced=gpu.uuid in parents
            )
            judged.append(
                GpuHolders(
                    gpu=gpu,
                    holders=None if gpu.processes is None else holders,
                    unaccounted_bytes=account.unaccounted_bytes,
                    unaccounted=rest,
                )
            )
        self._forget(at_s, {gpu.uuid for gpu in gpus})
        return tuple(judged)

    def _tracked(self, at_s: float, gpu: GpuSample) -> list[Track]:
        processes = gpu.processes or ()
        computing = {
            p.pid for p in processes if p.type != "graphics" and p.state not in DEAD_STATES
        }
        return [
            self._follow(at_s, gpu, process, alone=computing == {process.pid})
            for process in processes
        ]

    def _follow(self, at_s: float, gpu: GpuSample, process: ProcessSample, *, alone: bool) -> Track:
        key = (gpu.uuid, process.pid, process.gpu_instance_id)
        track = self._tracks.get(key)
        if track is None or not is_same(track.process, process):
            track = begin(at_s, process)
            if len(self._tracks) < TRACKS_MAX:
                self._tracks[key] = track
        else:
            follow(track, at_s, process, gpu, alone=alone)
        return track

    def _forget(self, at_s: float, uuids: set[str]) -> None:
        gone = [key for key, track in self._tracks.items() if at_s - track.last_s > ABSENT_SECONDS]
        for key in gone:
            del self._tracks[key]
        for uuid in self._accounts.keys() - uuids:
            del self._accounts[uuid]


def _holder(case: Case) -> Holder:
    process = case.process
    judged = next(filter(None, (rule(case) for rule in RULES)), Judged(verdict=UNKNOWN))
    age = None if process.create_time is None else case.t - process.create_time
    return Holder(
        process=process,
        judged=judged,
        role=case.role,
        age_seconds=age if age is not None and age >= 0 else None,
        place=case.track.place,
    )


def _largest_first(holder: Holder) -> tuple[int, int]:
    used = holder.process.used_bytes
    return (1 if used is None else -used, holder.process.pid)
