"""The KV blocks that `vllm-watch capacity` predicts are those that a real vLLM makes, for ten kinds of cache."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.real_vllm.server import ENVIRONMENT, find_venv
from tests.real_vllm.shapes import FLAGS, NEEDS_AVX512, SHAPES, cases
from vllm_watch.__main__ import main

pytestmark = [pytest.mark.real_vllm, pytest.mark.long]

SECONDS_MAX = (
    900  # 4 minutes on two idle cores: most of it is vLLM looking at a class of model anew
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM made of every shape, one start after another."""
    folder = tmp_path_factory.mktemp("sizing")
    shapes, results = folder / "shapes.json", folder / "found.jsonl"
    shapes.write_text(json.dumps(cases()))
    environment = {
        name: value for name, value in ENVIRONMENT.items() if name != "VLLM_CPU_KVCACHE_SPACE"
    }
    script = Path(__file__).with_name("sizing.py")
    with (folder / "vllm.log").open("wb") as log:
        subprocess.run(
            [find_venv() / "bin" / "python", script, shapes, results],
            env={**os.environ, **environment, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            stdout=log, stderr=subprocess.STDOUT, timeout=SECONDS_MAX, check=True,
        )  # fmt: skip
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    refused = [line for line in lines if "requires x86 with AVX-512" in line.get("error", "")]
    assert {line["name"] for line in refused} <= NEEDS_AVX512.keys()
    return {line["name"]: line for line in lines} | {
        line["name"]: NEEDS_AVX512[line["name"]] for line in refused
    }


@pytest.mark.parametrize("name", SHAPES)
def test_blocks_are_those_of_vllm(
    name: str, found: dict[str, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks, tokens and block size are equal, each as vLLM would say it."""
    config, flags = SHAPES[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = ["capacity", str(tmp_path), "--json", "--gpu-name", "cpu", "--gpu-memory-gib", "8"]
    for flag, value in (FLAGS | flags).items():
        spelled = "--" + flag.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(spelled if value else spelled.replace("--", "--no-", 1))
        else:
            arguments += [spelled, str(value)]
    assert main(arguments) == 0
    said = json.loads(capsys.readouterr().out)
    real = found[name]
    assert (said["num_gpu_blocks"], said["kv_cache_tokens"], said["block_size"]) == (
        real.get("num_gpu_blocks"), real.get("kv_cache_size_tokens"), real.get("block_size"),
    ), real  # fmt: skip
    # What machines without AVX-512 go by is still so.
    assert NEEDS_AVX512.get(name, {}).items() <= real.items()
