"""A disk that fails below the state folder of a real daemon: what is told of engines does not wait for it.

Full, read-only and failing: a library between SQLite and the kernel answers with that error. Slow: each flush
takes seconds. (What a failing disk means for restarts is in tests/restart/test_failing_disk.py.)
"""

import errno
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.host import Host
from tests.faults.site import PATIENCE_SECONDS, site

SHIM = Path(__file__).parents[1] / "restart" / "failing_disk.c"
FAULTS = {
    "full": (errno.ENOSPC, "full"),
    "read-only": (errno.EROFS, "io"),
    "failing": (errno.EIO, "io"),
}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "failing_disk.so"
    built = subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return library


def on_disk(state):
    """Ids of the incidents in the state file."""
    with closing(sqlite3.connect(state / "vllm-watch.sqlite")) as connection:
        return {name for (name,) in connection.execute("SELECT id FROM incident")}


@pytest.mark.parametrize(("number", "reason"), FAULTS.values(), ids=FAULTS)
async def test_a_disk_that_is(tmp_path, shim, number, reason):
    """The crash is told, the lack of a disk too with its remedy, and what waited is written when it can be."""
    armed, state = tmp_path / "armed", tmp_path / "state"
    environ = {"LD_PRELOAD": str(shim), "FAILING_DISK": str(armed)}
    async with site("--state-dir", state, environ=environ) as here:
        armed.write_text(str(number))
        incident = await here.dies()
        status = await here.process.until(
            lambda status: status["store"]["errors"].get(reason), PATIENCE_SECONDS
        )
        assert not status["store"]["ok"]
        (said,) = here.process.events("state_not_kept")
        assert (said["reason"], bool(said["cause"]), bool(said["remedy"])) == (reason, True, True)
        assert (await here.looks(4))["incidents"] == []

        armed.unlink()
        await here.process.until(lambda status: status["store"]["ok"], PATIENCE_SECONDS)
        await here.process.end(signal.SIGKILL)
    assert incident["id"] in on_disk(state)


async def test_a_disk_that_is_slow(tmp_path):
    """Looks and judgement go on at their pace; an incident waits for no disk, and is written in the end."""
    host, state = Host(tmp_path), tmp_path / "state"
    async with site("--state-dir", state, environ=host.environ) as here:
        host.slow_disk(15)
        incident = await here.dies()
        assert incident["id"] not in on_disk(state)  # told, though the disk is still at it
        began = await here.target()
        after = await here.looks(6)
        assert after["incidents"] == []
        assert after["signals"]["t"] > began["signals"]["t"]
        assert here.process.events("state_not_kept") == []
        host.slow_disk(0)
        saved = (await here.process.status())["store"]["last_success_timestamp_seconds"] or 0
        await here.other.misbehave("")
        await here.process.until(
            lambda status: (status["store"]["last_success_timestamp_seconds"] or 0) > saved,
            PATIENCE_SECONDS,
        )
        await here.process.end(signal.SIGKILL)
    assert incident["id"] in on_disk(state)
    host.close()
