"""What the GPUs say when an engine stops: one that has gone, or an error code of the driver's.

A witness for the detectors of this folder; GPU faults are judged by a detector of their own.
"""

from vllm_watch.detectors.base import Evidence, View
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.signals import xid
from vllm_watch.signals.gpu_roster import GpuRoster


class GpuTrouble:
    """Follows those GPUs of a host on which a server runs or may run."""

    def __init__(self) -> None:
        self._roster = GpuRoster()
        self._gpus: tuple[GpuSample, ...] | None = None  # as last seen, and ...
        self._others: frozenset[str] = frozenset()
        self.lost: tuple[str, ...] = ()  # UUIDs that were there and are not, or that say so
        self.xids: tuple[int, ...] = ()  # codes that the driver reports now

    def look(self, view: View) -> None:
        """Take one look; where nobody asked or no answer came, nothing changes."""
        gpus, others = view.observation.gpus, view.around.others_gpus
        if gpus is None or (gpus is self._gpus and others == self._others):
            return  # they are polled more rarely than engines
        self._gpus, self._others = gpus, others
        # All of the host: one that turns out to be another server's is not lost by that.
        self._roster.look(gpus)
        self.lost = tuple(gpu.uuid for gpu in self._roster.lost if gpu.uuid not in others)
        self.xids = tuple(
            sorted({code for gpu in view.gpus or () for code in gpu.xid_errors or ()})
        )

    @property
    def needs_hands(self) -> bool:
        """Is it what no restart of a process cures: a GPU that is lost, or that must be reset?"""
        return bool(self.lost) or any(map(xid.needs_hands, self.xids))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The same for a verdict: at most one."""
        return (Evidence(name="gpu_trouble", value=self.text, text=self.text),) if self.text else ()

    @property
    def text(self) -> str:
        """What is wrong, in words; empty where nothing is."""
        said = []
        if self.lost:
            said.append(f"{len(self.lost)} GPU{'s' * (len(self.lost) > 1)} lost")
        if self.xids:
            said.append("Xid " + ", ".join(map(str, self.xids)))
        return "; ".join(said) + " on this host" if said else ""
