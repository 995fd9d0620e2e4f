"""Finds GPUs that a host has lost."""

from vllm_watch.samples.gpu import GpuSample

GPUS_MAX = 256
"""At most this many devices are followed. 16 GPUs with 7 slices each are 128 devices."""


class GpuRoster:
    """Follows the GPUs of one host."""

    def __init__(self) -> None:
        self._known: dict[str, GpuSample] = {}
        self.lost: tuple[GpuSample, ...] = ()

    def look(self, gpus: tuple[GpuSample, ...] | None) -> None:
        if gpus is None:
            return
        here = {gpu.uuid: gpu for gpu in gpus if not gpu.lost}
        for uuid, known in list(self._known.items()):
            # A removed slice is not lost if its GPU is still listed.
            if known.mig_parent_uuid in here and uuid not in here:
                del self._known[uuid]
        for uuid, gpu in here.items():
            if uuid in self._known or len(self._known) < GPUS_MAX:
                self._known[uuid] = gpu
        gone = [gpu for uuid, gpu in self._known.items() if uuid not in here]
        unseen = [gpu for gpu in gpus if gpu.lost and gpu.uuid not in self._known]
        self.lost = tuple(sorted((*gone, *unseen), key=lambda gpu: (gpu.index, gpu.uuid)))
