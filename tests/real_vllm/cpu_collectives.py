"""A plugin of vLLM, loaded by its own processes: the collectives of variable size that its CPU build lacks, on gloo.

Without them a mixture of experts cannot be served by data-parallel ranks on CPUs.
"""

from typing import Any


def add() -> None:
    """vLLM calls this in each of its processes."""
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415
    import torch.distributed as dist  # type: ignore[import-not-found]  # noqa: PLC0415
    from vllm.distributed.device_communicators import (  # type: ignore[import-not-found]  # noqa: PLC0415
        base_device_communicator,
    )

    def all_gatherv(self: Any, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
        def one(tensor: Any) -> Any:
            lengths = sizes or [tensor.shape[0]] * self.world_size
            padded = tensor.new_zeros((max(lengths), *tensor.shape[1:]))
            padded[: tensor.shape[0]] = tensor
            parts = [torch.empty_like(padded) for _ in lengths]
            dist.all_gather(parts, padded, group=self.cpu_group)
            return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

        assert dim == 0
        return [one(each) for each in input_] if isinstance(input_, list) else one(input_)

    def reduce_scatterv(
        self: Any, input_: Any, dim: int = -1, sizes: list[int] | None = None
    ) -> Any:
        total = input_.contiguous().clone()
        dist.all_reduce(total, group=self.cpu_group)
        lengths = sizes or [total.shape[0] // self.world_size] * self.world_size
        begin = sum(lengths[: self.rank_in_group])
        return total[begin : begin + lengths[self.rank_in_group]].contiguous()

    communicator = base_device_communicator.DeviceCommunicatorBase
    communicator.all_gatherv, communicator.reduce_scatterv = all_gatherv, reduce_scatterv
