"""Two workers of a real vLLM, of which one is stopped: its stacks name the worker that the other waits for.

py-spy is that of vLLM's environment, for `install.sh nixl` puts it there, or the one that PY_SPY names.
"""

import asyncio
import json
import os
import re
import signal
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.real_vllm.load import under_load
from tests.real_vllm.server import MODEL_NAME, RealVllm, find_venv
from tests.real_vllm.test_judgement import MIXED
from vllm_watch.diagnosis.stacks import NOT_READ
from vllm_watch.sources.processes import ProcessListing
from vllm_watch.sources.stacks import Stacks

PATIENCE = 180.0

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.long,
]


def complete(url: str) -> None:
    body = json.dumps({"model": MODEL_NAME, "prompt": [7] * 20, "max_tokens": 20}).encode()
    asked = urllib.request.Request(
        f"{url}/v1/completions", body, {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(asked, timeout=2 * PATIENCE).read()


def test_the_worker_that_the_others_wait_for_is_named(tmp_path: Path) -> None:
    """While it is stopped; the core waits for its answer."""
    program = Path(os.environ.get("PY_SPY") or find_venv() / "bin/py-spy")
    assert program.exists(), "no py-spy: run tests/real_vllm/install.sh nixl, or set PY_SPY"
    with RealVllm(tmp_path, "mp", more=("--tensor-parallel-size", "2")) as vllm:
        stacks = Stacks(ProcessListing(), lambda: program)

        with urllib.request.urlopen(f"{vllm.url}/metrics", timeout=30) as answer:
            said = answer.read().decode()
        started = float(re.findall(r"^process_start_time_seconds (\S+)$", said, re.MULTILINE)[0])

        async def dump() -> str:
            found = stacks.of(started, urlsplit(vllm.url).port, ("0",))
            return b"".join([each async for each in found or ()]).decode()  # type: ignore[union-attr]

        healthy = asyncio.run(dump())
        print(healthy.partition("=====")[0])
        worker = int(re.findall(r"VLLM::Worker_TP1 \(PID (\d+)\)", healthy)[0])
        assert "The other workers wait" not in healthy
        assert NOT_READ not in healthy
        complete(vllm.url)  # the first one compiles
        with under_load(vllm.url, replace(MIXED, clients=2, seconds_max=4 * PATIENCE)):
            time.sleep(5)
            os.kill(worker, signal.SIGSTOP)
            try:
                until_s = time.monotonic() + PATIENCE
                core = r"VLLM::EngineCore \(PID \d+\): waits in shared memory broadcast for a worker's answer"
                other = r"VLLM::Worker_TP0 \(PID \d+\): waits in a collective"
                while not re.search(f"{core}\n{other}", said := asyncio.run(dump())):
                    assert time.monotonic() < until_s, said
                    time.sleep(1)
            finally:
                os.kill(worker, signal.SIGCONT)
        print(said.partition("=====")[0])
        waits = (
            rf"The other workers wait for VLLM::Worker_TP1 \(PID {worker}\): stopped \(state T\)"
        )
        assert re.search(waits, said), said
