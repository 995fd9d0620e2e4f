"""docs/getting-started.md, followed as a new user would: what it says to type works, and shows what it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.daemon_process import ROOT
from tests.deploy.blocks import blocks

PAGE = ROOT / "docs/getting-started.md"
BLOCKS = blocks(PAGE)
HOWS = {"run", "run until", "run in the background", "run on a screen", "add to /etc/prometheus/prometheus.yml"}  # fmt: skip
WALK_SECONDS_MAX = 1800


def read(clone: Path, what: str, *before: str) -> list[str]:
    """What the blocks showed."""
    home = clone.parent / "home"
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [*before, sys.executable, "-m", "tests.deploy.reader", what, home], cwd=clone,
        env={k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTHON"))},
        capture_output=True, text=True, timeout=WALK_SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout)
    return said


def test_every_command_is_tried() -> None:
    """Each block says how it is run."""
    assert {block.how for block in BLOCKS} == HOWS
    assert len(BLOCKS) == PAGE.read_text().count("\n```") / 2


def test_the_page_works_from_an_empty_home(clone: Path) -> None:
    """Install, the demo, an alert in a Prometheus that was there, an engine: every step as it stands."""
    (installed,) = read(clone, "install")
    assert re.search(r"^vllm-watch \d", installed, re.MULTILINE)
    namespaces = ["--mount", "--net"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    said = read(clone, "walk", "unshare", *namespaces)
    assert len(said) == len(BLOCKS[1:])
