"""A new user: the package installed into an empty environment finds the vLLM that runs here, with no configuration."""

import asyncio
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.daemon_process import ROOT, daemon
from tests.real_vllm.server import MODEL_NAME, RealVllm

pytestmark = pytest.mark.real_vllm

FOUND_SECONDS_MAX = 120.0  # a second, on an idle machine


def installed(folder: Path) -> Path:
    """The Python of a new environment that has what `pip install .` brings, and nothing else."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "vllm_watch", source / "vllm_watch", ignore=shutil.ignore_patterns("__pycache__")
    )
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "."]
    subprocess.run(pip, cwd=source, check=True, timeout=600)
    return python


async def test_it_finds_the_vllm_of_this_host(vllm: RealVllm, tmp_path: Path) -> None:
    """`pip install .` and `vllm-watch run`: the page has the engine and its model, and the log says what was found."""
    python = await asyncio.to_thread(installed, tmp_path)
    unset = {"PYTHONPATH": "", "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "5"}
    async with daemon(tree=tmp_path, python=str(python), environ=unset) as process:
        status = await process.until(
            lambda status: any(
                each["url"] == vllm.url and each["signals"] and each["signals"]["up"]
                for each in status["targets"]
            ),
            FOUND_SECONDS_MAX,
        )
        said = next(e for e in process.events("vllm_found") if vllm.url in e["servers"])
    (target,) = (each for each in status["targets"] if each["url"] == vllm.url)
    (engine,) = target["signals"]["engines"].values()
    assert engine["model_name"] == MODEL_NAME
    assert f"{MODEL_NAME} at :{vllm.url.rpartition(':')[2]}" in said["text"]
