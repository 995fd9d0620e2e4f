"""docs/capacity.md says what the program says: every row of its tables is computed anew."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.capacity.models import MODELS
from vllm_watch.__main__ import main
from vllm_watch.capacity.calibration import SAMPLER_COPIES

PAGE = (Path(__file__).parents[2] / "docs" / "capacity.md").read_text()
ROWS = re.findall(r"^\| ([\w.-]+) \| `(.+?)` \| (.+) \|$", PAGE, re.MULTILINE)
GIB = 1 << 30


def test_the_page_has_its_tables() -> None:
    """So that a changed form of the table can not hide it from the test."""
    assert len(ROWS) >= 30
    assert {len(cells.split(" | ")) for _, _, cells in ROWS} == {2, 5}


@pytest.mark.parametrize(("name", "flags", "cells"), ROWS)
def test_row(
    name: str, flags: str, cells: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags as they stand there, given to the command."""
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
    """The numbers in the sentences are those of the calibration."""
    copies = SAMPLER_COPIES.value
    assert f"about {copies:.1f} times over" in PAGE
    assert f"{copies * 1024 * 151936 * 4 / GIB:.1f} GiB, however small the model" in PAGE
