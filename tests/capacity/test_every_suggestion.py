"""Every suggestion of `capacity`, typed as it is printed, over drawn models, GPUs and flags: it fits.

Where no flag makes it fit, none is suggested, and the answer says what would do.
"""

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.capacity.models import MODELS as OLDER_MODELS
from tests.capacity.published_models import NEW_MODELS
from vllm_watch.__main__ import main

DRAWN, SEEDS = 20, 15
MODELS = OLDER_MODELS | NEW_MODELS
GPUS = ("T4", "L4", "RTX 3060", "RTX 3090", "RTX 4090", "RTX 5090", "A100 40GB", "A100 80GB", "L40S", "H100", "H200", "B200", "MI300X")  # fmt: skip
# Flag, how often it is given, its values.
FLAGS: tuple[tuple[str, float, tuple[object, ...]], ...] = (
    ("--tensor-parallel-size", 0.6, (1, 2, 3, 4, 5, 6, 8, 16)),
    ("--pipeline-parallel-size", 0.15, (2, 3, 4, 90)),
    ("--data-parallel-size", 0.1, (2, 4)),
    ("--decode-context-parallel-size", 0.1, (2, 3)),
    ("--gpus", 0.3, (1, 2, 3, 4, 8)),
    ("--max-model-len", 0.6, (2048, 8192, 32768, 40000, 131072, 262144)),
    ("--gpu-memory-utilization", 0.3, (0.3, 0.5, 0.8, 0.95)),
    ("--max-num-seqs", 0.3, (1, 16, 256, 1024)),
    ("--max-num-batched-tokens", 0.2, (2048, 16384, 65536)),
    ("--kv-cache-dtype", 0.2, ("fp8",)),
    ("--quantization", 0.2, ("fp8", "awq", "bitsandbytes")),
    ("--vllm-version", 0.2, ("0.6.3", "0.8.5", "0.11.0", "0.20.0")),
    ("--weights-gib", 0.15, (3, 10, 16, 30, 65)),
    ("--kv-cache-memory-bytes", 0.05, (1 << 28, 1 << 33)),
    ("--enforce-eager", 0.1, ("",)),
)


def drawn(rng: random.Random, folder: Path) -> list[str]:
    words = [str(folder / rng.choice(sorted(MODELS))), "--gpu-name", rng.choice(GPUS)]
    for flag, share, values in FLAGS:
        if rng.random() < share:
            words += [flag, str(rng.choice(values))]
    return [word for word in words if word]


def planned(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict[str, Any]:
    status = main(["capacity", "--json", *words])
    out = capsys.readouterr()
    assert status in (0, 3), (words, out.err)
    found: dict[str, Any] = json.loads(out.out)
    return found


def without(words: list[str], *flags: str) -> list[str]:
    """What the typed flags replace, and a count of GPUs that they go beyond."""
    kept = list(words)
    for flag in flags:
        while flag in kept:
            at = kept.index(flag)
            del kept[at : at + 2]
    return kept


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_fits_when_typed(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """300 draws in all: single flags, several together, more GPUs, larger GPUs."""
    for name, config in MODELS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    rng = random.Random(seed)
    for _ in range(DRAWN):
        words = drawn(rng, tmp_path)
        found = planned(capsys, words)
        typed = [f"{each['flag']} {each['value']}" for each in found["suggestions"]]
        if not found["fits"]:
            assert typed or found["other_ways"], f"nothing is said: {words}"
        for each in typed:
            assert planned(capsys, words + shlex.split(each))["fits"], (words, each)
        for way in found["other_ways"]:
            _try(capsys, words, way["change"])


def _try(capsys: pytest.CaptureFixture[str], words: list[str], change: str) -> None:
    head, _, typed = change.partition("--")
    flags = shlex.split(f"--{typed}") if typed else []
    if head.endswith("such GPUs: "):
        words = without(words, "--gpus", "--weights-gib" if "--weights-gib" in flags else "--gpus")
    elif head.startswith("GPUs of "):
        words = [*without(words, "--gpu-name"), "--gpu-memory-gib", head.split()[2].strip(",")]
    elif "checkpoint" in head:
        bits = "8" if "8-bit" in head else "4"
        folder = Path(words[0]).parent / f"bits-{bits}"
        folder.mkdir(exist_ok=True)
        config = json.loads((Path(words[0]) / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "gptq", "bits": int(bits), "group_size": -1}  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config))
        words = [str(folder), *without(words, "--weights-gib", "--quantization")[1:]]
    assert planned(capsys, words + flags)["fits"], (words, change)
