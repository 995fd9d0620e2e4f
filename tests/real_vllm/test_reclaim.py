"""A real vLLM whose API server is killed: its engine core is an orphan, is ended by hand, and the journal tells it.

The memory is a fake driver's, which charges it to the real engine core; all else is real.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.leftovers import lives
from tests.nvml_stub import GIB, NvmlStub, h200
from tests.real_vllm.server import RealVllm

pytestmark = pytest.mark.real_vllm

SECONDS_MAX = 120  # a look takes six seconds on a machine that has time
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def first_holder(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    (gpu,) = json.loads(done.stdout)["gpus"]
    return dict(gpu["holders"][0])


@pytest.fixture
def run(vllm: RealVllm, tmp_path: Path) -> Run:
    """Our command, on a host whose only GPU is the engine core's."""
    stub = NvmlStub(tmp_path)
    core = vllm.processes()["engine_core"]
    stub.set_state(gpus={0: h200(processes={core: 120 * GIB}, utilization=0)}, release_on_exit=1)
    environment = os.environ | stub.env() | {"VLLM_WATCH_STATE_DIR": str(tmp_path / "state")}

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "vllm_watch", *map(str, arguments)], env=environment,
            capture_output=True, text=True, timeout=SECONDS_MAX, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    return run


def test_a_killed_server_leaves_an_orphan_that_is_reclaimed(vllm: RealVllm, run: Run) -> None:
    """While it serves it is refused; after SIGKILL to its server it is named, ended, and journaled."""
    core = vllm.processes()["engine_core"]
    refused = run("gpus", "--reclaim", core, "--yes")
    assert refused.returncode == 1
    assert "not stale but vllm" in refused.stderr
    assert lives(core)

    vllm.kill("api_server")
    found = run("gpus", "--json")
    holder = first_holder(found)
    assert found.returncode == 1, found.stdout
    assert (holder["pid"], holder["verdict"], holder["reason"]) == (
        core, "stale", "orphaned_worker",
    ), vllm.log_tail()  # fmt: skip

    done = run("gpus", "--reclaim", core, "--yes", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["freed"]) == (0, True), done.stdout + done.stderr
    assert not lives(core)
    assert said["gpus"][0]["held_bytes"] == 120 * GIB
    entries = [json.loads(line) for line in run("journal", "--json").stdout.splitlines()]
    actions = [entry["action"] for entry in entries]
    assert actions[:2] == ["reclaim_intent", "reclaim_term"]
    assert actions[-1] == "reclaim_outcome"
    assert entries[0]["target"].startswith(f"process {core} (VLLM::EngineCore")
    assert entries[-1]["after"].startswith("freed: GPU 0 120.5 GiB → 512 MiB used")
