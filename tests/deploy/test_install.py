"""docs/install.md, followed as a stranger would: every command that needs no Docker, as it stands, from an empty home."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon_process import ROOT
from tests.deploy.blocks import blocks
from vllm_watch import __version__

PAGE = ROOT / "docs/install.md"
BLOCKS = blocks(PAGE)
HERE = {"run"}  # those install, and need an index of packages
ALONE = {"run in the background", "run until"}  # those serve, on the port that the page says
SECONDS_MAX = 600


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of somebody who has uv and pipx."""
    folder = tmp_path_factory.mktemp("tools")
    for command in (
        ["venv", "--without-pip", folder],
        [
            "pip",
            "--python",
            folder / "bin/python",
            "install",
            "--quiet",
            "--no-compile",
            "uv",
            "pipx",
        ],
    ):
        subprocess.run([sys.executable, "-m", *command], check=True, timeout=SECONDS_MAX)
    return folder / "bin"


def followed(clone: Path, home: Path, tools: Path, hows: set[str], *before: str) -> list[str]:
    """What the blocks of these kinds showed."""
    home.mkdir(exist_ok=True)
    theirs = ("VLLM_", "PYTHON", "VIRTUAL_ENV", "UV_", "PIPX_", "XDG_")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(theirs)}
    environ |= {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "UV_PYTHON_DOWNLOADS": "never",
        "PIP_COMPILE": "0",
    }
    done = subprocess.run(
        [*before, sys.executable, "-m", "tests.deploy.follow", "docs/install.md", home, *sorted(hows)],
        cwd=clone, env=environ | ({"ALONE": "1"} if before else {}), capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    said: list[str] = json.loads(done.stdout)
    return said


def test_every_command_is_tried() -> None:
    """Each block says how it is run."""
    assert {block.how for block in BLOCKS} == HERE | ALONE
    assert len(BLOCKS) == PAGE.read_text().count("\n```") / 2


def test_the_page_installs_by_pip_uv_and_pipx(clone: Path, tools: Path) -> None:
    """Wheel, every way to install it, with extras, and to take it away again; then it serves and says that it lives."""
    home = clone.parent / "home"
    said = followed(clone, home, tools, HERE)
    assert (
        sum(f"\nvllm-watch {__version__}\n" in f"\n{each}" for each in said) == 3
    )  # pip, uv, pipx
    assert not (home / ".local/bin/vllm-watch").exists()
    namespaces = ["--net"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    assert len(followed(clone, home, tools, ALONE, "unshare", *namespaces)) == 2
