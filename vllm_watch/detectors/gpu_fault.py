"""Detects a broken GPU: lost from the bus, an Xid error, memory errors.

Source: NVIDIA, Xid Errors; GPU Memory Error Management.
"""

from dataclasses import dataclass

from pydantic import Field

from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, HostView, Verdict, View
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals import xid
from vllm_watch.signals.holders import roles
from vllm_watch.signals.scales import KEPT_MAX, SHOWN_MAX


class GpuRoster:
    """Follows the GPUs of one host."""

    def __init__(self) -> None:
        self._known: dict[str, GpuSample] = {}
        self.lost: tuple[GpuSample, ...] = ()

    def look(self, gpus: tuple[GpuSample, ...] | None) -> None:
        if gpus is None:
            return
        here = {gpu.uuid: gpu for gpu in gpus if not gpu.lost}
        # A removed slice is not lost if its GPU is still listed; those that are there are added again.
        self._known = {
            uuid: gpu for uuid, gpu in self._known.items() if gpu.mig_parent_uuid not in here
        }
        for uuid, gpu in here.items():
            if uuid in self._known or len(self._known) < KEPT_MAX:
                self._known[uuid] = gpu
        gone = [gpu for uuid, gpu in self._known.items() if uuid not in here]
        unseen = [gpu for gpu in gpus if gpu.lost and gpu.uuid not in self._known]
        self.lost = tuple(sorted((*gone, *unseen), key=lambda gpu: (gpu.index, gpu.uuid)))


class GpuTrouble:
    """Follows the GPUs of one server."""

    def __init__(self) -> None:
        self._roster = GpuRoster()
        self._gpus: tuple[GpuSample, ...] | None = None
        self._others: frozenset[str] = frozenset()
        self.lost: tuple[str, ...] = ()
        self.xids: tuple[int, ...] = ()

    def look(self, view: View) -> None:
        gpus, others = view.observation.gpus, view.around.others_gpus
        if gpus is None or (gpus is self._gpus and others == self._others):
            return
        self._gpus, self._others = gpus, others
        # The roster gets all GPUs. Otherwise another server's GPU would seem lost.
        self._roster.look(gpus)
        self.lost = tuple(gpu.uuid for gpu in self._roster.lost if gpu.uuid not in others)
        codes = {code for gpu in view.gpus or () for code in gpu.xid_errors or ()}
        self.xids = tuple(sorted(codes))

    @property
    def needs_hands(self) -> bool:
        return bool(self.lost) or any(map(xid.needs_hands, self.xids))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        said = []
        if self.lost:
            said.append(f"{len(self.lost)} GPU{'s' * (len(self.lost) > 1)} lost")
        if self.xids:
            said.append("Xid " + ", ".join(map(str, self.xids)))
        text = "; ".join(said) + " on this host"
        return (Evidence(name="gpu_trouble", value=text, text=text),) if said else ()


KIND = "gpu_fault"
NEEDS = Needs(must=(Need(("gpus",), "the GPUs and their driver's errors are not seen"),))


class Settings(Base):
    """How long signs of a fault remain valid."""

    lost_looks: int = Field(2, ge=1)
    """A GPU is lost if it is missing from the driver's list in this many consecutive readings."""

    xid_seconds: float = Field(60.0, ge=0)
    """An Xid error counts for this many seconds. NVML reports it once, and its consequences follow
    within a minute."""

    ecc_seconds: float = Field(300.0, ge=0)
    """Memory errors count for this many seconds. Errors within five minutes are one burst."""


_RANKS = ("note", "application", "ecc", "support", "link", "reset", "reboot", "lost")


@dataclass(frozen=True, slots=True)
class _Finding:
    rank: str
    cause: str
    severity: str
    gpu: GpuSample
    text: str
    remedy: str
    value: float | str


@dataclass(slots=True)
class _Seen:
    xids: dict[int, float]  # code → time of the last report
    ecc: int | None = None
    ecc_grown: tuple[float, int] | None = None
    engine: bool | None = None


class HostDetector:
    """Follows the GPUs of one host."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._roster = GpuRoster()
        self._seen: dict[str, _Seen] = {}
        self._missing: dict[str, int] = {}

    def update(self, view: HostView) -> Verdict:
        gpus = view.gpus
        self._roster.look(gpus)
        lost = {gpu.uuid: gpu for gpu in self._roster.lost}
        self._missing = {uuid: self._missing.get(uuid, 0) + 1 for uuid in lost}
        told = {gpu.uuid for gpu in gpus if gpu.lost}
        for gpu in gpus:
            self._follow(view.at_s, gpu)
        for uuid in self._seen.keys() - lost.keys() - {gpu.uuid for gpu in gpus}:
            del self._seen[uuid]
        found = [finding for gpu in gpus for finding in self._findings(view.at_s, gpu)]
        doubtful = False
        for uuid, gpu in lost.items():
            if uuid in told or self._missing[uuid] >= self._settings.lost_looks:
                found.append(_lost(gpu))
            else:
                doubtful = True
        if not found:
            return Verdict(state=UNKNOWN if doubtful else CLEAR, kind=KIND)
        return self._firing(view, found)

    def _follow(self, at_s: float, gpu: GpuSample) -> None:
        seen = self._seen.setdefault(gpu.uuid, _Seen({}))
        for code in gpu.xid_errors or ():
            seen.xids[code] = at_s
        if gpu.ecc_uncorrected is not None:
            if seen.ecc is not None and gpu.ecc_uncorrected > seen.ecc:
                seen.ecc_grown = at_s, gpu.ecc_uncorrected - seen.ecc
            seen.ecc = gpu.ecc_uncorrected
        if gpu.processes:
            seen.engine = any(roles.role(p) in roles.VLLM_ROLES for p in gpu.processes)

    def _findings(self, at_s: float, gpu: GpuSample) -> list[_Finding]:
        seen, settings = self._seen[gpu.uuid], self._settings
        seen.xids = {c: s for c, s in seen.xids.items() if at_s - s <= settings.xid_seconds}
        found = [_xid(gpu, code) for code in seen.xids]
        if gpu.remapped_rows_failed:
            text = "a memory row could not be remapped: the spare rows are used up"
            remedy = "drain it and have it replaced"
            found.append(_Finding("link", "ecc", "ticket", gpu, text, remedy, "failed"))
        elif gpu.remapped_rows_pending:
            text = "memory rows wait to be remapped, which happens at the next reset"
            remedy = "reset it in the next window, when nothing runs on it"
            found.append(_Finding("ecc", "ecc", "ticket", gpu, text, remedy, "pending"))
        if seen.ecc_grown is not None and at_s - seen.ecc_grown[0] <= settings.ecc_seconds:
            grown = seen.ecc_grown[1]
            text = f"{grown} more memory errors that ECC could not correct"
            remedy = (
                "the process that read that memory has ended or has wrong data: see Xid 48, 63, 94, 95 in the kernel's log; drain it and "
                "reset it, and have it replaced if they come again"
            )
            found.append(_Finding("ecc", "ecc", "ticket", gpu, text, remedy, grown))
        return found

    def _firing(self, view: HostView, found: list[_Finding]) -> Verdict:
        found.sort(key=lambda each: (-_RANKS.index(each.rank), each.gpu.index))
        first = found[0]
        seen = self._seen.get(first.gpu.uuid)
        used = bool(view.servers) and (seen is None or seen.engine is not False)
        # A GPU without a watched engine affects no users.
        severity = first.severity if used or first.severity != "page" else "ticket"
        ill = dict.fromkeys(each.gpu.uuid for each in found)
        more = f" (and {len(ill) - 1} more GPUs)" if len(ill) > 1 else ""
        hit = tuple(dict.fromkeys(each.name for uuid in ill for each in view.hit(uuid)))
        # A server that answers has survived the error.
        died = {each.gpu.uuid for each in found if first.rank == each.rank == "application"}
        restarts = [each.name for u in ill if u in died for each in view.using(u) if not each.up]
        named = f"; used by {', '.join(hit)}" if hit else ""
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause=first.cause,
            severity=severity,
            restart_advised=bool(restarts),
            summary=f"GPU {first.gpu.index}{more}: {first.text}{named}",
            evidence_for=tuple(map(_evidence, found[:SHOWN_MAX])),
            concerns=hit,
            restart_targets=tuple(dict.fromkeys(restarts)),
        )


def _lost(gpu: GpuSample) -> _Finding:
    text = "lost: it has fallen off the bus, or its driver no longer lists it"
    return _Finding("lost", "gpu_lost", "page", gpu, text, xid.ADVICE[xid.REBOOT], "lost")


def _xid(gpu: GpuSample, code: int) -> _Finding:
    known = xid.lookup(code)
    text = f"Xid {code}, {known.text}"
    advice = xid.ADVICE[known.action].replace("INDEX", str(gpu.index))
    return _Finding(known.action, "xid", xid.SEVERITY[known.action], gpu, text, advice, code)


def _evidence(finding: _Finding) -> Evidence:
    gpu = finding.gpu
    text = f"GPU {gpu.index} ({gpu.uuid}): {finding.text}. Do: {finding.remedy}"
    return Evidence(name=finding.cause, value=finding.value, text=text)
