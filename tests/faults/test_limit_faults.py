"""A daemon that runs into its own limits: no file descriptor, no memory. The engines are well all the while."""

import asyncio
import resource
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.faults.host import NAME, Host
from tests.faults.site import PATIENCE_SECONDS, site


@contextmanager
def limited(pid, which, soft):
    """While it is open, the process may have no more than this."""
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, which, before)


def address_space_bytes(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmSize:")[1].split()[0]) * 1024


@pytest.mark.parametrize("name", ["127.0.0.1", NAME], ids=["by address", "by name"])
async def test_no_file_descriptor_is_left(tmp_path, name):
    """It says that it is the watcher's lack, opens no incident, serves who is connected, and goes on by itself."""
    host = Host(tmp_path)
    async with site(environ=host.environ, host=name) as here, aiohttp.ClientSession() as session:
        here.well.closes = here.other.closes = True  # each look needs a connection of its own
        await here.looks(2)
        async with session.get(here.process.url + "/metrics") as response:
            assert response.status == 200
        pid = here.process.process.pid
        if name == NAME:
            host.step(unix_s=31, monotonic_s=31)  # past what is remembered of the name
        with limited(pid, resource.RLIMIT_NOFILE, 3):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:  # on the connection that there is
                    async with session.get(here.process.url + "/metrics") as response:
                        text = await response.text()
                    wanted = 'vllm_watch_source_errors_total{source="metrics",target="well",reason="watcher"}'
                    if any(
                        line.startswith(wanted) and float(line.split()[-1]) >= 12
                        for line in text.split("\n")
                    ):
                        break
                    await asyncio.sleep(0.2)
            assert here.opened == []
        await here.until(lambda target: target["signals"]["up"])
        assert here.opened == []
        because = [
            line["because"] for line in here.process.events("target_unknown") if line["target"] == "well"
        ]  # fmt: skip
        assert "no file descriptor is left to this process" in because[0]
        assert (await here.dies())["cause"] == "crash"
    host.close()


async def test_the_memory_limit_is_reached():
    """Some looks fail; it neither hangs nor ends nor calls an engine dead, and goes on when there is room again."""
    async with site() as here:
        pid = here.process.process.pid
        with limited(pid, resource.RLIMIT_AS, address_space_bytes(pid)):
            for fault in ("floods", "invents series"):
                here.other.series = 40_000
                await here.other.misbehave(fault)
                asked = here.other.asked
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while here.other.asked < asked + 4:
                        await asyncio.sleep(0.2)
        await here.other.misbehave("")
        await here.looks(4)
        await here.until(lambda target: target["state"] == "serving")
        assert here.process.process.returncode is None
        assert [each for each in here.opened if each[0] == "well"] == []
        await here.until(lambda target: target["state"] == "serving", "other")
        await here.other.misbehave("refuses")
        await here.until(
            lambda target: any(each["cause"] == "crash" for each in target["incidents"]), "other"
        )
