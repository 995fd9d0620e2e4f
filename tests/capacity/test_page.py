"""docs/capacity.md says what the program says: every row of its tables is computed anew."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.capacity.models import LLAMA_31_8B, MODELS, QWEN35_27B
from tests.capacity.planning import plan
from vllm_watch.__main__ import main
from vllm_watch.capacity.overheads import (
    NON_TORCH_PER_RANK_GIB,
    SAMPLER_COPIES,
    SAMPLER_COPIES_UNSORTED,
    graph_count,
)

PAGE = (Path(__file__).parents[2] / "docs" / "capacity.md").read_text()
TEXT = " ".join(PAGE.split())
VISION = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "spatial_merge_size": 2}
ROWS = re.findall(r"^\| ([\w.-]+) \| `(.+?)` \| (.+) \|$", PAGE, re.MULTILINE)
GIB = 1 << 30


def test_the_page_has_its_tables() -> None:
    """So that a changed form of the table can not hide it from the test."""
    assert len(ROWS) >= 12
    assert {len(cells.split(" | ")) for _, _, cells in ROWS} == {2, 5}


@pytest.mark.parametrize(("name", "flags", "cells"), ROWS)
def test_row(
    name: str, flags: str, cells: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODELS[name]))
    main(["capacity", str(tmp_path), "--json", *shlex.split(flags)])
    said = json.loads(capsys.readouterr().out)
    per_token = said["kv_bytes_per_token_per_gpu"]
    memory = said["memory_bytes_per_gpu"]
    other = memory["activation"] + memory["cuda_graphs"] + memory["non_torch"]
    whole = (
        f"{memory['weights'] / GIB:.2f} | {other / GIB:.2f} | {memory['kv_cache'] / GIB:.2f} | "
        f"{said['kv_cache_tokens']:,} | {'yes' if said['fits'] else 'no'}"
    )
    per_request = f"{per_token / 1024:.1f} | {per_token * said['max_model_len'] / GIB:.2f}"
    assert cells in (whole, per_request)


def test_figures_of_the_text() -> None:
    now, before = SAMPLER_COPIES_UNSORTED.value, SAMPLER_COPIES.value
    assert f"{now:.1f} copies of their float32 logits (before 0.21 about {before:.1f})" in TEXT
    sizes = [f"{copies * 1024 * 151936 * 4 / GIB:.1f} GiB" for copies in (now, before)]
    assert (
        f"1024 sequences take {sizes[0]} (before 0.21 {sizes[1]}), however small the model" in TEXT
    )
    graphs = plan(LLAMA_31_8B, max_num_seqs=256).graph_bytes / GIB
    assert f"256 sequences need {graph_count(256)} graphs, about {graphs:.2f} GiB" in TEXT
    assert f"{NON_TORCH_PER_RANK_GIB.value} GiB per rank" in TEXT
    seen = plan(QWEN35_27B | {"vision_config": VISION}, gpu="H200").activation.encoder_bytes / GIB
    assert f"(16,384 tokens with Qwen: {seen:.1f} GiB)" in TEXT
