"""Collects GPU trouble as evidence. `gpu_fault` judges it."""

from vllm_watch.detectors.base import Evidence, View
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.signals import xid
from vllm_watch.signals.gpu_roster import GpuRoster


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
        self.xids = tuple(
            sorted({code for gpu in view.gpus or () for code in gpu.xid_errors or ()})
        )

    @property
    def needs_hands(self) -> bool:
        return bool(self.lost) or any(map(xid.needs_hands, self.xids))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (Evidence(name="gpu_trouble", value=self.text, text=self.text),) if self.text else ()

    @property
    def text(self) -> str:
        said = []
        if self.lost:
            said.append(f"{len(self.lost)} GPU{'s' * (len(self.lost) > 1)} lost")
        if self.xids:
            said.append("Xid " + ", ".join(map(str, self.xids)))
        return "; ".join(said) + " on this host" if said else ""
