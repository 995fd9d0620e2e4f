"""One fake driver for this process: NVML is global to it, so the library is loaded once and re-scripted."""

import asyncio
import threading

import pytest

from tests.nvml_stub import NvmlStub
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The fake driver, compiled and loaded."""
    stub = NvmlStub(tmp_path_factory.mktemp("nvml"))
    stub.library = stub.load()
    return stub


@pytest.fixture
def stub(built):
    """The fake driver without GPUs; afterwards without a driver, and with no call hanging."""
    built.set_state()
    yield built
    built.unload_driver()


class Clock:
    """A monotonic clock that stands still until told."""

    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    """What paces the looks that are made once a minute."""
    return Clock()


@pytest.fixture
async def make_source(stub, clock):
    """Sources that are closed at the end, once no call hangs any more."""
    made = []

    def make(procfs=None, **settings):
        processes = ProcReader(procfs) if procfs else ProcReader()
        made.append(NvmlSource(GpuSettings(**settings), processes, monotonic=clock))
        return made[-1]

    yield make
    stub.patch({key: None for key in stub.state if key.startswith("hang.")})
    for source in made:
        await asyncio.wait_for(source.close(), 10)
    for thread in threading.enumerate():
        if thread.name == "nvml":  # one that hung until now: NVML is shared with the next test
            await asyncio.to_thread(thread.join, 20)
