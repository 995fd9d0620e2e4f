"""A driver that hangs, and a machine without one: readings keep coming, and the process can always end."""

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest
from structlog.testing import capture_logs

from tests.nvml_stub import NvmlStub, h200, one
from tests.sources.test_processes import Row

DEADLINE_SECONDS = 0.3
PATIENCE_SECONDS = 20  # of a busy machine, with what is due at the deadline
FOREVER = 600  # seconds that a call hangs unless released


def nvml_threads():
    return [thread for thread in threading.enumerate() if thread.name == "nvml"]


async def recovered(source):
    """Read until the driver answers again: the released call needs a moment to return."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (reading := await source.read()).status == "hung":
            await asyncio.sleep(0.01)
    return reading


CALLS = [
    "nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetTemperature", "nvmlEventSetWait_v2",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
async def test_whichever_call_hangs_is_named_and_recovered_from(stub, make_source, call):
    """ "hung" at the deadline with the call's name, and all well once it returns."""
    stub.set_state(gpus={0: h200()}, **{f"hang__{call}": FOREVER})
    source = make_source(deadline_seconds=DEADLINE_SECONDS)
    begun_s = time.monotonic()
    async with asyncio.timeout(PATIENCE_SECONDS):
        reading = await source.read()
    assert time.monotonic() - begun_s >= DEADLINE_SECONDS
    assert (reading.status, reading.gpus) == ("hung", None)
    assert call.removesuffix("_v2") in reading.text.replace("_v2", "")
    stub.patch({f"hang.{call}": None})
    assert [gpu.temperature_celsius for gpu in (await recovered(source)).gpus] == [61.0]


async def test_a_proc_that_hangs_is_not_laid_at_the_drivers_door(stub, make_source, tmp_path):
    """A process stuck in the kernel can block who reads its files; here, a pipe that nobody writes to."""
    Row(2, "kthreadd", ppid=0, flags=0x208040).write(tmp_path)
    Row(30).write(tmp_path)
    pipe = tmp_path / "30" / "cmdline"
    pipe.unlink()
    os.mkfifo(pipe)
    stub.set_state(driver="525.147.05", gpus={0: h200(compute="30:1000")})
    source = make_source(tmp_path, deadline_seconds=DEADLINE_SECONDS)
    reading = await source.read()
    assert reading.status == "hung"
    assert reading.text.startswith("/proc has not answered")
    os.close(os.open(pipe, os.O_WRONLY))
    pipe.unlink()
    pipe.write_bytes(b"vllm\0")
    assert [p.pid for gpu in (await recovered(source)).gpus for p in gpu.processes] == [30]


async def test_while_it_hangs_reads_answer_at_once_from_one_thread(stub, make_source):
    """No second thread, no second call, however many ask; and one line in the log."""
    stub.set_state(gpus={0: h200()}, hang__nvmlDeviceGetPowerUsage=FOREVER)
    source = make_source(deadline_seconds=DEADLINE_SECONDS)
    with capture_logs() as lines:
        await source.read()
        asked = stub.library.stub_calls(b"nvmlDeviceGetPowerUsage")
        source._settings = source._settings.model_copy(update={"deadline_seconds": FOREVER})
        async with asyncio.timeout(PATIENCE_SECONDS):
            readings = await asyncio.gather(*(source.read() for _ in range(100)))
    assert {reading.status for reading in readings} == {"hung"}
    assert len(nvml_threads()) == 1
    assert stub.library.stub_calls(b"nvmlDeviceGetPowerUsage") == asked
    assert [line["status"] for line in lines] == ["hung"]


async def test_xids_of_a_poll_that_hung_are_not_lost(stub, make_source):
    """They were taken from the driver, which tells each once; the next reading tells them."""
    stub.set_state(gpus={0: h200(), 1: h200(1)})
    source = make_source(deadline_seconds=DEADLINE_SECONDS)
    await one(source)
    stub.patch(hang__nvmlDeviceGetPowerUsage=FOREVER)
    stub.xid(1, 79)
    assert (await source.read()).status == "hung"
    stub.patch(hang__nvmlDeviceGetPowerUsage=None)
    stub.xid(1, 45)
    assert [gpu.xid_errors for gpu in (await recovered(source)).gpus] == [(), (79, 45)]
    assert [gpu.xid_errors for gpu in await one(source)] == [(), ()]


async def test_a_reader_that_is_cancelled_disturbs_nobody(stub, make_source):
    """The poll goes on and its result is there for the others."""
    stub.set_state(gpus={0: h200()}, hang__nvmlDeviceGetPowerUsage=0.2)
    source = make_source(deadline_seconds=10)
    impatient, patient = (asyncio.create_task(source.read()) for _ in range(2))
    await asyncio.sleep(0.05)
    impatient.cancel()
    assert (await patient).status == "ok"
    assert impatient.cancelled()


async def test_closing_lets_go_of_nvml_and_ends_the_thread(stub, make_source):
    """After a poll that was under way, never beneath it."""
    stub.set_state(gpus={0: h200()}, hang__nvmlDeviceGetPowerUsage=0.2)
    source = make_source(deadline_seconds=10)
    polling = asyncio.create_task(source.read())
    await asyncio.sleep(0.05)
    ended = stub.library.stub_calls(b"nvmlShutdown")
    await source.close()
    assert (await polling).status == "ok"
    assert stub.library.stub_calls(b"nvmlShutdown") == ended + 1
    assert stub.library.stub_overlaps() == 0
    assert nvml_threads() == []
    await source.close()
    assert (await source.read()).gpus is None


async def test_closing_does_not_wait_for_a_call_that_hangs(stub, make_source):
    """It is left behind; when it returns, its thread lets go of NVML and ends."""
    stub.set_state(gpus={0: h200()}, hang__nvmlDeviceGetPowerUsage=FOREVER)
    source = make_source(deadline_seconds=DEADLINE_SECONDS)
    await source.read()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await source.close()
    (thread,) = nvml_threads()
    stub.patch(hang__nvmlDeviceGetPowerUsage=None)
    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()


async def test_a_source_that_follows_one_left_hanging_waits_for_it(stub, make_source):
    """A reload of the configuration makes a new one; NVML is never called twice at once."""
    stub.set_state(gpus={0: h200()}, hang__nvmlDeviceGetPowerUsage=FOREVER)
    before = make_source(deadline_seconds=DEADLINE_SECONDS)
    await before.read()
    await before.close()
    overlaps = stub.library.stub_overlaps()
    source = make_source(deadline_seconds=DEADLINE_SECONDS)
    assert "a call from before" in (await source.read()).text
    stub.patch(hang__nvmlDeviceGetPowerUsage=None)
    assert (await recovered(source)).status == "ok"
    assert stub.library.stub_overlaps() == overlaps


# Each of these is a process of its own, as the daemon is.

PROGRAM = """
import asyncio, os, sys
import structlog
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
now_s = [0.0]
async def main():
    source = NvmlSource(GpuSettings(deadline_seconds=0.3), ProcReader(), monotonic=lambda: now_s[0])
    reading = await source.read()
    again = await source.read()
    print(reading.status, again.status, reading.gpus and len(reading.gpus), "pynvml" in sys.modules)
    print(reading.text, file=sys.stderr)
    if "close" in sys.argv:
        await source.close()
asyncio.run(main())
"""


def run(env, *arguments, program=PROGRAM):
    """Its output, exit status, and errors; a call that hangs does so for far longer than this waits."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("NVML_", "LD_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=clean | {"PYTHONPATH": "."} | env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return done.stdout.strip(), done.returncode, done.stderr


@pytest.mark.parametrize("library", ["absent", "damaged"])
def test_a_machine_without_the_library_is_a_normal_machine(tmp_path, library):
    """Said in words, no GPU, no error, and pynvml is not even imported. (Absent as on this machine.)"""
    if library == "damaged":
        (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    out, status, err = run({"LD_LIBRARY_PATH": str(tmp_path)}, "close")
    assert (out, status) == ("no_driver no_driver () False", 0)
    assert "libnvidia-ml.so.1" in err


def test_a_driver_that_is_installed_later_is_found_without_a_restart(tmp_path):
    """The library appears in a folder that was searched before in vain."""
    stub = NvmlStub(tmp_path / "built")
    stub.folder.mkdir()
    stub.build()
    stub.set_state(gpus={0: h200()})
    searched = tmp_path / "searched"
    searched.mkdir()
    program = PROGRAM.replace(
        "    again =",
        "    os.rename(sys.argv[1], sys.argv[2])\n    now_s[0] += 61\n    again =",
    )
    moved = str(stub.build()), str(searched / "libnvidia-ml.so.1")
    environ = stub.env() | {"LD_LIBRARY_PATH": str(searched)}
    out, _, err = run(environ, *moved, "close", program=program)
    assert out == "no_driver ok () True", err


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        ("nvmlInitWithFlags", (), "hung hung None True"),
        ("nvmlDeviceGetUtilizationRates", ("close",), "hung hung None True"),
        ("nvmlShutdown", ("close",), "ok ok 1 True"),
    ],
    ids=["never closed", "closed", "it hangs as it is closed"],
)
def test_a_process_ends_while_a_call_hangs(stub, call, arguments, said):
    """At once, with status 0 and nothing on stderr but what it says itself."""
    stub.set_state(gpus={0: h200()}, **{f"hang__{call}": FOREVER})
    out, status, err = run(stub.env(), *arguments)
    assert (out, status) == (said, 0)
    assert err.count("\n") == 1, err
