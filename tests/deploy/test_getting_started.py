"""docs/getting-started.md, followed as a new user would: what it says to type works, and shows what it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon_process import ROOT
from tests.deploy.blocks import HOWS, Block, blocks
from tests.deploy.compose import environment, services

PAGE = ROOT / "docs/getting-started.md"
BLOCKS = blocks(PAGE)
WALK_SECONDS_MAX = 900
COMMANDS = {"up", "down", "ps", "logs"}


def shown(block: Block) -> str:
    return block.text.partition("\n")[0]


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
    """Each block says how it is run; what a test can not run is Docker's alone."""
    assert {block.how for block in BLOCKS} == HOWS
    assert len(BLOCKS) == PAGE.read_text().count("\n```") / 2


def test_the_page_works_from_an_empty_home(clone: Path) -> None:
    """Install, the demo, an alert in a Prometheus that was there, an engine: every step as it stands."""
    (installed,) = read(clone, "install")
    assert re.search(r"^vllm-watch \d", installed, re.MULTILINE)
    namespaces = ["--mount", "--net"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    said = read(clone, "walk", "unshare", *namespaces)
    assert len(said) == len(
        [b for b in BLOCKS if b.how[:3] in ("run", "add") and b.how != "run in the stack"][1:]
    )


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.how == "docker"], ids=shown)
def test_dockers_commands_name_what_there_is(block: Block) -> None:
    """Where no Docker is: the folder, the profile and the services that they name exist."""
    for line in block.text.splitlines():
        if line == "cd deploy":
            assert (ROOT / "deploy/compose.yaml").exists()
            continue
        found = re.fullmatch(r"(?:COMPOSE_PROFILES=([\w,]+) )?docker compose (\w+)(.*)", line)
        assert found, line
        profiles = (found[1] or environment()["COMPOSE_PROFILES"]).split(",")
        known = {name for profile in profiles for name in services(profile)}
        assert found[2] in COMMANDS
        named = {word for word in found[3].split() if not word.startswith("-")}
        assert named <= known, line
