"""Who holds the memory of a GPU, its slices included."""

import time

import pytest

from tests.nvml_stub import GIB, h200, one
from tests.sources.test_processes import Row
from vllm_watch.samples.gpu import ProcessSample

OLD_DRIVER = "525.147.05"  # its PIDs are the host's, wherever these tests run


@pytest.fixture
def procfs(tmp_path):
    """A host's tree with one engine; NVML's number for it is the same."""
    Row(1, "systemd", ppid=0).write(tmp_path)
    Row(2, "kthreadd", ppid=0, flags=0x208040, cmdline=b"").write(tmp_path)
    Row(4711, "VLLM::EngineCor", ppid=4700).write(tmp_path)
    (tmp_path / "stat").write_text("btime 1700000000\n")
    return tmp_path


async def test_a_holder_is_named_with_its_memory_and_load(stub, make_source, procfs):
    """NVML's number and bytes, /proc's identity."""
    stamp = time.time_ns() // 1000
    stub.set_state(
        driver=OLD_DRIVER,
        gpus={0: h200(processes={4711: 120 * GIB}, process_utilization=f"4711:{stamp}:87")},
    )
    (gpu,) = await one(make_source(procfs))
    assert gpu.processes == (
        ProcessSample(
            pid=4711, used_bytes=120 * GIB, type="compute", name="VLLM::EngineCor",
            cmdline=("python3", "-m", "vllm"), ppid=4700, state="S", create_time=1_700_000_050.0,
            cpu_seconds=5.0, sm_utilization_ratio=0.87,
            cgroup="/kubepods/burstable/podab12/c0ffee", uid=1000, mps=False,
        ),
    )  # fmt: skip


async def test_one_process_in_several_lists_is_one_holder(stub, make_source, procfs):
    """Memory is counted per process, so the lists are merged and not summed."""
    stub.set_state(
        driver=OLD_DRIVER,
        gpus={0: h200(compute="30:1000,20:500", graphics="20:500,40:70", mps="30:1000,50:60")},
    )
    (gpu,) = await one(make_source(procfs))
    assert [(p.pid, p.used_bytes, p.type, p.mps) for p in gpu.processes] == [
        (20, 500, "compute", False),
        (30, 1000, "compute", True),
        (40, 70, "graphics", False),
        (50, 60, "mps", True),
    ]


@pytest.mark.parametrize(
    ("compute", "used"), [("30:-", None), (f"30:{142 * GIB}", None), ("30:0", 0)]
)
async def test_memory_of_a_process_that_is_not_told_is_unknown(
    stub, make_source, procfs, compute, used
):
    """All ones in containers and under WDDM; more than the GPU has is no answer either."""
    stub.set_state(driver=OLD_DRIVER, gpus={0: h200(compute=compute)})
    (gpu,) = await one(make_source(procfs))
    assert [p.used_bytes for p in gpu.processes] == [used]


async def test_lists_that_are_not_supported(stub, make_source, procfs):
    """Without MPS's list nothing is known of MPS; without any list nothing of processes."""
    stub.set_state(driver=OLD_DRIVER, gpus={0: h200(compute="30:1", mps=None, graphics=None)})
    source = make_source(procfs)
    (gpu,) = await one(source)
    assert [(p.pid, p.mps) for p in gpu.processes] == [(30, None)]
    stub.patch({"gpu.0.compute": None})
    (gpu,) = await one(source)
    assert gpu.processes is None


async def test_a_holder_that_is_gone_or_hidden(stub, make_source, procfs):
    """Listed by NVML: dead where the whole host is seen (X), unknown where it is not (None)."""
    stub.set_state(driver=OLD_DRIVER, gpus={0: h200(compute="30:1000")})
    (gpu,) = await one(make_source(procfs))
    assert [(p.state, p.name, p.used_bytes) for p in gpu.processes] == [("X", None, 1000)]
    (procfs / "1" / "stat").unlink()
    (gpu,) = await one(make_source(procfs))
    assert [(p.state, p.name, p.used_bytes) for p in gpu.processes] == [(None, None, 1000)]


@pytest.mark.parametrize("sizes", [None, 1], ids=["NOT_FOUND", "NVMLError(0)"])
async def test_no_new_samples_of_utilization_is_unknown(stub, make_source, procfs, sizes):
    """NVML says "nothing new" in two ways; neither is a load of 0, and neither an error."""
    stub.set_state(driver=OLD_DRIVER, gpus={0: h200(compute="30:1", process_utilization="")})
    stub.patch({"gpu.0.process_utilization_sizes": sizes})
    (gpu,) = await one(make_source(procfs))
    assert [p.sm_utilization_ratio for p in gpu.processes] == [None]


async def test_utilization_of_processes_is_that_since_the_last_poll(stub, make_source, procfs):
    """Of several samples the newest; of old ones none, though the driver keeps them."""
    now = time.time_ns() // 1000
    hour_old, old = now - 3_600_000_000, now - 5_000_000
    stub.set_state(driver=OLD_DRIVER, gpus={0: h200(compute="30:1,31:1,32:1")})
    source = make_source(procfs)

    async def ratios(samples):
        stub.patch({"gpu.0.process_utilization": samples})
        (gpu,) = await one(source)
        return [p.sm_utilization_ratio for p in gpu.processes]

    samples = f"30:{hour_old}:99,31:{old}:10,31:{old + 1}:20,32:{old}:101"
    assert await ratios(samples) == [None, 0.2, None]
    assert await ratios(samples) == [None, None, None]
    assert await ratios(f"{samples},30:{old + 2}:40") == [0.4, None, None]


async def test_a_clock_set_back_does_not_hide_utilization(stub, make_source, procfs):
    """Samples stamped in what is now the future would otherwise be "newest" for hours."""
    now = time.time_ns() // 1000
    stub.set_state(
        driver=OLD_DRIVER,
        gpus={0: h200(compute="30:1", process_utilization=f"30:{now + 7_200_000_000}:50")},
    )
    source = make_source(procfs)
    await one(source)
    stub.patch({"gpu.0.process_utilization": f"30:{time.time_ns() // 1000}:60"})
    (gpu,) = await one(source)
    assert [p.sm_utilization_ratio for p in gpu.processes] == [0.6]


def sliced(**changes):
    """An H200 with two slices, as NVML shows it: no utilization, sensors on the whole GPU only."""
    slices = {
        f"mig.{place}.{key}": value
        for place, gpu_instance in ((0, 1), (4, 5))
        for key, value in {
            "uuid": f"MIG-{place}", "name": "NVIDIA H200 MIG 3g.71gb", "memory_total": 70 * GIB,
            "memory_used": 9 * GIB, "gpu_instance": gpu_instance, "compute_instance": 0,
            "compute": f"30{place}:{8 * GIB}:{gpu_instance}:0", "mps": "", "graphics": "",
        }.items()
    }  # fmt: skip
    whole = h200(
        mig_mode=1, utilization=None, compute=f"300:{8 * GIB}:1:0,304:{8 * GIB}:5:0", **changes
    )
    return whole | slices


async def test_slices_follow_their_gpu(stub, make_source, procfs):
    """The parent holds all, each slice its own; both name the instance of each process."""
    stub.set_state(driver=OLD_DRIVER, gpus={0: sliced(), 1: h200(1)})
    parent, first, second, other = await one(make_source(procfs))
    assert [gpu.uuid for gpu in (first, second)] == ["MIG-0", "MIG-4"]
    assert {gpu.mig_parent_uuid for gpu in (first, second)} == {parent.uuid}
    assert [(g.gpu_instance_id, g.compute_instance_id) for g in (parent, first, second)] == [
        (None, None), (1, 0), (5, 0),
    ]  # fmt: skip
    assert (first.memory_total_bytes, first.memory_used_bytes) == (70 * GIB, 9 * GIB)
    assert [gpu.utilization_ratio for gpu in (parent, first, second, other)] == [
        None,
        None,
        None,
        0.93,
    ]
    assert (parent.temperature_celsius, first.temperature_celsius) == (61.0, None)
    assert [(p.pid, p.gpu_instance_id, p.compute_instance_id) for p in parent.processes] == [
        (300, 1, 0), (304, 5, 0),
    ]  # fmt: skip
    assert [p.pid for p in second.processes] == [304]
    assert (other.uuid, other.mig_parent_uuid, other.index) == (h200(1)["uuid"], None, 1)


async def test_slices_come_and_go_while_we_watch(stub, make_source):
    stub.set_state(gpus={0: h200()})
    source = make_source()
    assert len(await one(source)) == 1
    stub.set_state(gpus={0: sliced()})
    assert [gpu.uuid for gpu in await one(source)][1:] == ["MIG-0", "MIG-4"]
    stub.patch({"gpu.0.mig.0.uuid": None})
    assert [gpu.uuid for gpu in await one(source)][1:] == ["MIG-4"]


async def test_a_gpu_that_cannot_be_sliced(stub, make_source):
    """GetMigMode is not supported there, and it is asked once only."""
    stub.set_state(gpus={0: h200(mig_mode=None)})
    source = make_source()
    asked = stub.library.stub_calls(b"nvmlDeviceGetMigMode")
    for _ in range(3):
        assert [gpu.mig_parent_uuid for gpu in await one(source)] == [None]
    assert stub.library.stub_calls(b"nvmlDeviceGetMigMode") == asked + 1
