"""A server of this host hangs: its incident says where its processes stand, from end to end."""

import json

from tests.daemon_process import daemon
from tests.test_cpu_live import serving

PY_SPY = """#!/bin/sh
echo 'Thread 1 (active): "MainThread"'
echo '    all_reduce (torch/distributed/distributed_c10d.py:7)'
"""
OPENED_SECONDS = 60.0


def stall(status):
    """The open incident, as told."""
    found = [each for target in status["targets"] for each in target["incidents"]]
    return next((each for each in found if each["kind"] == "engine_stalled"), None)


async def test_where_it_stands_is_told(tmp_path):
    """On its target's card and among the incidents; what a busy machine leaves no time for is told, too."""
    py_spy = tmp_path / "py-spy"
    py_spy.write_text(PY_SPY)
    py_spy.chmod(0o700)
    async with serving() as url:
        soon = {
            "notice_seconds": 0.5,
            "notice_young_seconds": 0.5,
        }
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps({
            "py_spy": str(py_spy), "targets": [{"name": "a", "url": url}],
            "detectors": {"engine_stalled": soon},
        }))  # fmt: skip
        async with daemon("--config", config) as watcher:
            status = await watcher.until(
                lambda now: (stall(now) or {}).get("stacks"), OPENED_SECONDS
            )
            _, listed = await watcher.get("/api/v1/incidents")
    said = stall(status)["stacks"]
    assert said.startswith("API server (PID ")
    assert said.endswith((
        "): waits in a collective: all_reduce (torch/distributed/distributed_c10d.py:7).",
        "): no stack could be read.",
    ))  # fmt: skip
    assert json.loads(listed)["incidents"][0]["stacks"] == said
