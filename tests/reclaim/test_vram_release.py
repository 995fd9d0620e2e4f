"""Is the memory really back? Before and after compared, and who still holds it named."""

import asyncio
from dataclasses import replace

import pytest

from tests.signals.holders.series import GIB, core, gpu, process
from vllm_watch.reclaim.vram_release import claims, judge, wait
from vllm_watch.samples.gpu import GpuReading

CORE = core(4711, gib=50)
OTHER = process(99, "python3", "train.py", gib=8)
BEFORE = (gpu(CORE, OTHER, extra_gib=0.5),)

AFTER = {
    "all is back": (gpu(OTHER, extra_gib=0.5), True, ""),
    "another engine took it at once": (gpu(core(5000, gib=60), OTHER, extra_gib=0.5), True, ""),
    "the driver's own bookkeeping moved": (gpu(OTHER, extra_gib=0.7), True, ""),
    "it is listed with nothing": (gpu(replace(CORE, used_bytes=0), OTHER, extra_gib=0.5), True, ""),
    "its number is another's now": (
        gpu(process(4711, "python3", create_time=CORE.create_time + 86000, gib=1), OTHER, extra_gib=0.5), True, "",
    ),
    "it lives": (BEFORE[0], False, "process 4711 still holds 50.0 GiB: it is alive (state S)"),
    "it is stuck": (gpu(replace(CORE, state="D"), OTHER), False, "stuck in the kernel (state D)"),
    "a zombie": (gpu(replace(CORE, state="Z", ppid=7), OTHER), False, "its parent, process 7, has not reaped it"),
    "gone and still charged": (gpu(replace(CORE, state="X", create_time=None), OTHER), False, "it is gone, but the driver"),
    "hidden": (gpu(replace(CORE, state=None), OTHER), False, "its state cannot be read"),
    "a context outlived it": (gpu(OTHER, extra_gib=50.5), False, "50.0 GiB that no process holds"),
    "half of it came back": (gpu(OTHER, extra_gib=25), False, "24.5 GiB that no process holds"),
    "the GPU fell off the bus": (replace(gpu(), lost=True), None, "it fell off the bus"),
    "who holds it is not said": (replace(gpu(), processes=None), None, "not listed"),
}  # fmt: skip


@pytest.mark.parametrize(("now", "released", "still"), AFTER.values(), ids=AFTER)
def test_what_is_so_now(now, released, still):
    found = judge(claims(BEFORE, [4711]), (now,))
    assert found.released is released
    assert still in "; ".join(found.still)
    assert bool(found.still) == bool(still)


def test_no_reading_is_no_release():
    """A driver that hangs has confirmed nothing."""
    found = judge(claims(BEFORE, [4711]), None, "the driver has not answered for 10 s")
    assert (found.released, found.still) == (None, ("GPU 0: the driver has not answered for 10 s",))


def test_one_of_two_gpus_keeps_it():
    before = (gpu(CORE), gpu(core(4711, gib=3), index=1))
    found = judge(claims(before, [4711]), (gpu(), gpu(core(4711, gib=3), index=1)))
    assert [each.released for each in found.gpus] == [True, False]
    assert found.released is False
    assert [(each.gpu.memory_used_bytes, each.after_bytes) for each in found.gpus] == [
        (50 * GIB, 0), (3 * GIB, 3 * GIB),
    ]  # fmt: skip


def test_unknown_sizes():
    """Where the driver does not say how much each holds, its going off the list is all there is."""
    hidden = replace(CORE, used_bytes=None)
    wanted = claims((gpu(hidden, OTHER),), [4711])
    assert wanted[0].held_bytes is None
    assert judge(wanted, (gpu(OTHER),)).released is True
    assert judge(wanted, (gpu(hidden, OTHER),)).released is False


def test_a_slice_is_judged_by_itself():
    parent, part = gpu(CORE), replace(gpu(CORE), uuid="MIG-0", mig_parent_uuid="GPU-0")
    wanted = claims((parent, part), [4711])
    assert [each.gpu.uuid for each in wanted] == ["MIG-0"]


async def test_it_waits_until_it_is_so():
    """Looks again and again; and gives up at the deadline with the last look."""
    looks = [BEFORE, None, BEFORE, (gpu(OTHER, extra_gib=0.5),)]
    asked = iter(looks)

    async def read():
        gpus = next(asked)
        return GpuReading(status="ok" if gpus else "hung", text="" if gpus else "hangs", gpus=gpus)

    wanted = claims(BEFORE, [4711])
    found = await wait(read, wanted, deadline_seconds=10, interval_seconds=0.01)
    assert found.released is True
    assert next(asked, "all were made") == "all were made"

    async def never():
        await asyncio.sleep(0)
        return GpuReading(status="ok", gpus=BEFORE)

    found = await wait(never, wanted, deadline_seconds=0.1, interval_seconds=0.01)
    assert found.released is False
    assert found.waited_seconds > 0.05
