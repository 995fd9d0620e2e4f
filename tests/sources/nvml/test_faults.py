"""GPUs and drivers that fail, go, and come back; Xid errors."""

import pytest
from structlog.testing import capture_logs

from tests.nvml_stub import h200, one
from vllm_watch.samples.gpu import GpuSample


async def test_a_gpu_that_falls_off_the_bus_leaves_the_others(stub, make_source, clock):
    """Lost is a state of that GPU with its identity kept, said once in the log; so is its return."""
    stub.set_state(gpus={i: h200(i) for i in range(3)})
    source = make_source()
    await one(source)
    with capture_logs() as lines:
        stub.patch({"gpu.1.lost": 1})
        stub.xid(1, 79)
        stub.xid(2, 13)
        first = await one(source)
        again = await one(source)
        stub.patch({"gpu.1.lost": None})
        clock.now_s += 61
        back = await one(source)
    assert first[1] == GpuSample(
        index=1, uuid=h200(1)["uuid"], name="NVIDIA H200", lost=True, xid_errors=(79,)
    )
    assert [gpu.lost for gpu in first] == [False, True, False]
    assert [gpu.xid_errors for gpu in first] == [(), (79,), (13,)]
    assert [gpu.temperature_celsius for gpu in again] == [61.0, None, 61.0]
    assert [gpu.lost for gpu in back] == [False, False, False]
    assert [line["event"] for line in lines] == ["gpu_lost", "gpu_returned"]


async def test_xids_of_the_others_are_heard_while_one_is_lost(stub, make_source):
    """Waiting for events fails as a whole while a lost GPU is among those listened to."""
    stub.set_state(gpus={0: h200(), 1: h200(1)})
    source = make_source()
    await one(source)
    stub.patch({"gpu.0.lost": 1})
    await one(source)
    stub.xid(1, 48)
    assert [gpu.xid_errors for gpu in await one(source)] == [None, (48,)]


async def test_a_lost_gpu_stays_known_after_a_new_session(stub, make_source, clock):
    """Counted or not any more, its UUID is still told as lost; a neighbour that moved up is itself."""
    stub.set_state(gpus={i: h200(i) for i in range(3)})
    source = make_source()
    await one(source)
    stub.patch({"gpu.1.lost": 1})
    await one(source)
    clock.now_s += 61
    assert [gpu.lost for gpu in await one(source)] == [False, True, False]
    stub.set_state(gpus={0: h200(0), 1: h200(2)})  # the driver no longer counts it
    clock.now_s += 61
    gpus = await one(source)
    assert [(gpu.index, gpu.uuid, gpu.lost) for gpu in gpus] == [
        (0, h200(0)["uuid"], False),
        (1, h200(2)["uuid"], False),
        (1, h200(1)["uuid"], True),
    ]


async def test_a_gpu_lost_before_we_came(stub, make_source, clock):
    """Nobody knows its UUID; a name that cannot be taken for one holds its place until it answers."""
    stub.set_state(gpus={0: h200(), 1: h200(1, lost=1)})
    source = make_source()
    assert [(gpu.uuid, gpu.lost) for gpu in await one(source)][1] == ("unknown-1", True)
    stub.patch({"gpu.1.lost": None})
    clock.now_s += 61
    assert [(gpu.uuid, gpu.lost) for gpu in await one(source)][1] == (h200(1)["uuid"], False)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(4, ["GPU-0"]), (10, ["GPU-0", "unknown-1"]), (999, ["GPU-0", "unknown-1"])],
    ids=["no permission", "timeout", "unknown error"],
)
async def test_a_gpu_without_a_handle(stub, make_source, code, expected):
    """One that the container was not given is not ours to tell; one that fails is told, all unknown."""
    stub.set_state(
        gpus={0: h200(uuid="GPU-0"), 1: h200(1)}, error__nvmlDeviceGetHandleByIndex_v2__1=code
    )
    gpus = await one(make_source())
    assert [gpu.uuid for gpu in gpus] == expected
    assert all(gpu.memory_total_bytes is None and gpu.lost is None for gpu in gpus[1:])


async def test_a_reloaded_driver_is_read_on_at_once(stub, make_source):
    """Every handle is void; NVML is initialised anew within the same poll."""
    stub.set_state(gpus={0: h200()}, generation=1)
    source = make_source()
    await one(source)
    stub.set_state(gpus={0: h200(temperature=33)}, generation=2, driver="590.44.01")
    reading = await source.read()
    assert (reading.status, reading.driver_version) == ("ok", "590.44.01")
    assert reading.gpus[0].temperature_celsius == 33.0


async def test_a_driver_that_goes_and_comes_back(stub, make_source, clock):
    """Gone is "no driver", looked at again once a minute."""
    stub.set_state(gpus={0: h200()})
    source = make_source()
    await one(source)
    stub.unload_driver()
    gone = await source.read()
    assert (gone.status, gone.gpus) == ("no_driver", ())
    stub.set_state(gpus={0: h200()})
    begun = stub.library.stub_calls(b"nvmlInitWithFlags")
    assert (await source.read()).status == "no_driver"
    assert stub.library.stub_calls(b"nvmlInitWithFlags") == begun
    clock.now_s += 61
    assert len(await one(source)) == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, "give the container its GPUs"),
        (18, "restart vllm-watch"),
        (999, "restart the container"),
        (17, "nvidia-smi"),
    ],
)
async def test_a_driver_that_refuses_says_what_to_do(stub, make_source, code, words):
    """No permission, replaced under us, devices taken away, anything else; and it recovers."""
    stub.set_state(gpus={0: h200()}, error__nvmlInitWithFlags=code)
    source = make_source()
    reading = await source.read()
    assert (reading.status, reading.gpus, words in reading.text) == ("error", None, True)
    stub.patch(error__nvmlInitWithFlags=None)
    assert len(await one(source)) == 1


async def test_unknown_is_not_a_machine_without_gpus(stub, make_source):
    """An error in words: where their count fails, and where they are expected and there is no driver."""
    stub.set_state(gpus={0: h200()}, error__nvmlDeviceGetCount_v2=999)
    reading = await make_source().read()
    assert (reading.status, reading.gpus) == ("error", None)
    stub.unload_driver()
    reading = await make_source(enabled="on").read()
    assert (reading.status, reading.gpus) == ("error", None)
    assert "install the driver" in reading.text


async def test_off_never_looks(stub, make_source):
    stub.set_state(gpus={0: h200()})
    begun = stub.library.stub_calls(b"nvmlInitWithFlags")
    reading = await make_source(enabled="off").read()
    assert (reading.status, reading.gpus) == ("no_driver", None)
    assert stub.library.stub_calls(b"nvmlInitWithFlags") == begun


async def test_a_state_is_logged_once(stub, make_source):
    stub.set_state(gpus={0: h200()})
    source = make_source()
    with capture_logs() as lines:
        await source.read()
        await source.read()
        stub.patch(error__nvmlInitWithFlags=4, generation=9)
        await source.read()
        await source.read()
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("info", "gpus_read"),
        ("warning", "gpus_unreadable"),
    ]


async def test_xids_are_told_once_and_by_gpu(stub, make_source):
    """Oldest first, since the last poll."""
    stub.set_state(gpus={0: h200(), 1: h200(1)})
    source = make_source()
    assert [gpu.xid_errors for gpu in await one(source)] == [(), ()]
    for gpu, code in ((1, 63), (0, 13), (1, 94)):
        stub.xid(gpu, code)
    assert [gpu.xid_errors for gpu in await one(source)] == [(13,), (63, 94)]
    assert [gpu.xid_errors for gpu in await one(source)] == [(), ()]


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
async def test_a_gpu_without_events_has_unknown_xids(stub, make_source, function):
    """None, not "no Xid": nobody listened."""
    stub.set_state(gpus={0: h200()}, **{f"error__{function}": 3})
    assert [gpu.xid_errors for gpu in await one(make_source())] == [None]


async def test_a_storm_of_xids_is_bounded_in_each_poll(stub, make_source):
    stub.set_state(gpus={0: h200()})
    source = make_source()
    await one(source)
    for _ in range(130):
        stub.xid(0, 31)
    assert [len(gpu.xid_errors) for gpu in await one(source)] == [100]
    assert [len(gpu.xid_errors) for gpu in await one(source)] == [30]
