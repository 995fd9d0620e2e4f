"""Find the model of a `vllm serve` command and check its files."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_watch.capacity.bounds import BYTES_MAX, is_size, shown
from vllm_watch.cli.helpers import checkpoints
from vllm_watch.cli.helpers.capacity.model import Found, find_checkpoint
from vllm_watch.errors import WatchError
from vllm_watch.preflight.command import Command
from vllm_watch.preflight.facts import ABSENT, CACHE, FOLDER, REMOTE, ModelFiles, Room
from vllm_watch.support import json_text, regular_file

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json", "tokenizer*.py", "tokenization*.py", "*.vocab", "spiece*", "tokenizer.*")  # fmt: skip
_LFS = b"version https://git-lfs"
_HEADER_BYTES_MAX = 100_000_000  # the limit of safetensors
_INDEX_BYTES_MAX = 16 << 20
_FILES_MAX = 2000
_TRUE = ("1", "ON", "YES", "TRUE")


def find_files(command: Command) -> tuple[ModelFiles | None, Found | None]:
    """Return the model's files and config."""
    named = command.model
    if named is None:
        return None, None
    environment = command.environment
    if "://" in named or environment.get("VLLM_USE_MODELSCOPE", "").upper() in _TRUE:
        return ModelFiles(kind=REMOTE, path=named), None
    try:
        return _find(command, named)
    except (OSError, RuntimeError) as error:  # e.g. a name too long
        cause = f"{shown(named)} cannot be read: {getattr(error, 'strerror', None) or error}"
        return ModelFiles(kind=FOLDER, path=named, config_error=cause), None


def _find(command: Command, named: str) -> tuple[ModelFiles | None, Found | None]:
    environment, path = command.environment, Path(named).expanduser()
    if path.is_dir():
        return _looked_at(path, FOLDER, None, environment)
    if path.is_file():
        size = path.stat().st_size
        return ModelFiles(kind=FOLDER, path=named, weights=1, bytes_total=size, bytes_here=size), None  # fmt: skip
    if not _REPOSITORY.fullmatch(named) or ":" in named:
        return ModelFiles(kind=ABSENT, path=str(path)), None
    caches = _caches(command)
    for cache in caches:
        snapshot = checkpoints.snapshot(cache, named, command.text("revision"))
        if snapshot is not None:
            return _looked_at(snapshot, CACHE, named, environment)
    return ModelFiles(kind=ABSENT, path=str(caches[-1]), repository=named), None


def is_offline(environment: Mapping[str, str]) -> bool:
    """Return True if the Hugging Face Hub is disabled."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(environment.get(name, "").upper() in _TRUE for name in names)


def has_token(command: Command) -> bool:
    """Return True if there is a hub token."""
    environment = command.environment
    if command.text("hf-token") not in (None, "true"):
        return True
    if environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN"):
        return True
    stored = environment.get("HF_TOKEN_PATH") or checkpoints.hub_home(environment) / "token"
    return Path(stored).expanduser().is_file()


def download_room(command: Command) -> Room | None:
    """Return the free space for a download."""
    return room(_caches(command)[0])


def room(path: Path) -> Room | None:
    """Return the free space at a path, which need not exist."""
    here = path
    while not here.exists() and here != here.parent:
        here = here.parent
    try:
        known = os.statvfs(here)
    except OSError:
        return None
    return Room(
        path=str(path),
        total_bytes=known.f_blocks * known.f_frsize,
        free_bytes=known.f_bavail * known.f_frsize,
        writable=os.access(here, os.W_OK),
    )


def _caches(command: Command) -> list[Path]:
    named, hub = command.text("download-dir"), checkpoints.hub_cache(command.environment)
    return [Path(named).expanduser(), hub] if named else [hub]


def _looked_at(
    folder: Path, kind: str, repository: str | None, environment: Mapping[str, str]
) -> tuple[ModelFiles, Found | None]:
    found, error = None, None
    if (folder / "config.json").exists() or not (folder / "params.json").exists():
        try:
            found = find_checkpoint(str(folder), environment, from_hub=False, weights_gib=None)
        except WatchError as wrong:
            error = wrong.cause
    config: Mapping[str, Any] | None = found.config if found else None
    origin = str((config or {}).get("_name_or_path") or "")
    if repository is None and "/" in origin and _REPOSITORY.fullmatch(origin):
        repository = origin
    expected, total = _index(folder)
    missing = tuple(name for name in expected if not _is_file(folder / name))
    present = [folder / name for name in expected if name not in missing]
    present = present if expected else checkpoints.weights(folder)
    size = sum(map(checkpoints.size, present))
    return ModelFiles(
        kind=kind, path=str(folder), config=config, config_error=error, weights=len(present),
        bytes_total=total or size or None, bytes_here=size,
        missing=missing,
        damaged=tuple(text for each in present if (text := _damage(each)) is not None),
        tokenizer=any(any(folder.glob(pattern)) for pattern in _TOKENIZERS), repository=repository,
    ), found  # fmt: skip


def _index(folder: Path) -> tuple[tuple[str, ...], int | None]:
    for name in checkpoints.INDEXES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            found = json_text.read(regular_file.read(path, _INDEX_BYTES_MAX))
            named = {each for each in found["weight_map"].values() if isinstance(each, str)}
            total = found.get("metadata", {}).get("total_size")
        except (ValueError, OSError, LookupError, TypeError, AttributeError):
            return (), None
        return tuple(sorted(named))[:_FILES_MAX], total if is_size(total, BYTES_MAX) else None
    return (), None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # e.g. a name too long
        return False


def _damage(path: Path) -> str | None:
    size = checkpoints.size(path)
    try:
        with regular_file.opened(path) as file:
            head = file.read(len(_LFS))
            if head == _LFS:
                return f"{path.name} is Git LFS's pointer of {size} bytes, not the weights"
            if path.suffix != ".safetensors":
                return None if size else f"{path.name} is empty"
            length = int.from_bytes(head[:8], "little")
            if len(head) < 8 or not 0 < length <= min(_HEADER_BYTES_MAX, size):  # noqa: PLR2004
                return f"{path.name} ({size:,} bytes) does not begin as safetensors does"
            file.seek(8)
            header = json_text.read(file.read(length))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0)
        if not is_size(whole, BYTES_MAX):
            return f"{path.name} names {shown(whole)} bytes as its own length"
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{path.name} cannot be read: {shown(error)}"
    return f"{path.name} is {size:,} of {whole:,} bytes long" if size < whole else None
