"""The ranks of one server side by side, and what a steady engine takes beside."""

import pytest

from tests.signals.holders.series import POD, core, gpu, look_on, process
from vllm_watch.signals.holders.judge import remarks


def ranks(gib, busy, **fields):
    """One worker to a GPU, below one server."""
    return tuple(
        gpu(
            process(10 + i, f"VLLM::Worker_TP{i}", gib=held, ppid=5, cgroup=POD, **fields),
            index=i, utilization_ratio=load,
        )
        for i, (held, load) in enumerate(zip(gib, busy, strict=True))
    )  # fmt: skip


GROUPS = {
    "one lags at load": (
        ranks((12, 70, 69, 70), (0.0,) * 4),
        ["GPU 0 holds 12.0 GiB of its group, another 70.0 GiB: the ranks load at different speeds, or got unequal shares"],
    ),
    "one got a seventh less": (
        ranks((60, 70, 70, 70), (0.0,) * 4),
        ["GPU 0 holds 60.0 GiB of its group, another 70.0 GiB: the ranks load at different speeds, or got unequal shares"],
    ),
    "one holds a little less": (ranks((64, 70, 70, 70), (0.0,) * 4), []),
    "one does not take part": (
        ranks((70,) * 4, (1.0, 1.0, 0.0, 1.0)),
        ["GPU 2 is at 0 % while the 3 others of its group compute: its rank does not take part"],
    ),
    "all are idle": (ranks((70,) * 4, (0.0,) * 4), []),
    "loads are not told": (ranks((70, 70), (None, 1.0)), []),
    "what they hold is not told": (ranks((70, 70), (1.0, 1.0), used_bytes=None), []),
    "one rank alone": (ranks((70,), (0.0,)), []),
    "data-parallel cores do not work in step": (
        (gpu(core(1, gib=70), utilization_ratio=0.0), gpu(core(2, gib=30), index=1, utilization_ratio=1.0)),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("gpus", "said"), GROUPS.values(), ids=GROUPS)
def test_a_group(gpus, said):
    assert list(remarks(look_on(lambda s: gpus, seconds=0))) == said
