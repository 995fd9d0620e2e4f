"""What `make deps` would install: what is missing, and nothing beside a tool that is here."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_a_kubectl_of_google_is_left_alone(tmp_path):
    """Debian's kubernetes-client conflicts with Google's kubectl; the other tools are still installed."""
    for name in ("make", "bash", "sh", "sort"):
        (tmp_path / name).symlink_to(shutil.which(name))
    programs = {"kubectl": "", "id": "echo 0", "apt-get": 'echo "$@"'}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    said = subprocess.run(
        ["make", "deps"], cwd=ROOT, env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    packages = said.stdout.splitlines()[-1].partition("--no-install-recommends")[2].split()
    assert "kubernetes-client" not in packages
    assert {"prometheus", "chromium", "gcc", "libc6-dev"} <= set(packages)
