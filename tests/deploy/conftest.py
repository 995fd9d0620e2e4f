"""What tests of install paths begin with."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.helm import helm

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone would have: the files of the repository, and nothing that was built or left here."""
    folder = tmp_path_factory.mktemp("clone") / "clone"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def run_helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A helm with a home of its own. Raises CalledProcessError where it refuses."""
    folder = tmp_path_factory.mktemp("helm")
    program = helm(folder)
    environ = os.environ | {"HOME": str(folder), "KUBECONFIG": os.devnull}

    def call(*arguments: object) -> str:
        return subprocess.run(
            [program, *map(str, arguments)], env=environ, capture_output=True, text=True, timeout=600, check=True,
        ).stdout  # fmt: skip

    return call
