"""Find a model's config, its checkpoint and the checkpoint's size. The Hugging Face Hub is asked only with --from-hub."""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_watch.capacity.plan import Checkpoint
from vllm_watch.capacity.units import BYTES_MAX, is_size, shown
from vllm_watch.cli.helpers import terminal
from vllm_watch.errors import WatchError
from vllm_watch.support import json_text, regular_file

_CONFIG_BYTES_MAX = 16 << 20  # a model with a trillion parameters has an index of 8 MB
_REMEDY = "name a model's folder or its config.json"
_HUB = "https://huggingface.co"
_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")  # the Hub's limits


@dataclass(frozen=True, slots=True)
class Found:
    """A model's config and weights."""

    name: str
    config: dict[str, Any]
    checkpoint: Checkpoint


def find_checkpoint(
    named: str, environment: Mapping[str, str], *, from_hub: bool, weights_gib: float | None
) -> Found:
    """Return the named model. Raises WatchError with the places searched."""
    try:
        return _find(named, environment, from_hub=from_hub, weights_gib=weights_gib)
    except (OSError, RuntimeError) as error:  # e.g. a name too long
        cause = f"{shown(named)} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise WatchError(cause, _REMEDY) from None


def _find(
    named: str, environment: Mapping[str, str], *, from_hub: bool, weights_gib: float | None
) -> Found:
    path, is_repository = Path(named).expanduser(), _REPOSITORY.fullmatch(named) is not None
    if path.is_file():
        folder, config = path.parent, read_json(path)
        size = _checkpoint_bytes(folder) if path.name == "config.json" else None
    else:
        here = path if path.is_dir() else None
        if here is None and is_repository:
            here = snapshot(hub_cache(environment), named, having="config.json")
        if here is None:
            if from_hub and is_repository:
                with terminal.waiting(f"asking the hub for {named}"):
                    return _of_hub(named, environment, weights_gib)
            cause = f"{named}: there is no such file or folder, nor is it in the hub's cache ({hub_cache(environment)})"
            remedy = "give the model's folder or its config.json; --from-hub fetches the config"
            raise WatchError(cause, remedy)
        folder, config, size = here, read_json(here / "config.json"), _checkpoint_bytes(here)
    quantized = folder / "hf_quant_config.json"
    if quantized.is_file() and "quantization_config" not in config:
        config["quantization_config"] = read_json(quantized) | {"quant_method": "modelopt"}
    return Found(named, config, Checkpoint(given_gib=weights_gib, bytes_total=size))


def read_json(path: Path) -> dict[str, Any]:
    """Return a file's JSON object. Raises WatchError."""
    try:
        with regular_file.opened(path) as file:
            raw = file.read(_CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise WatchError(f"{path} cannot be read: {error.strerror}", _REMEDY) from None
    return _parse(raw, str(path))


def _parse(raw: bytes, where: str) -> dict[str, Any]:
    remedy = "name the model's config.json"
    if len(raw) > _CONFIG_BYTES_MAX:
        raise WatchError(f"{where} is longer than {_CONFIG_BYTES_MAX >> 20} MiB", remedy)
    try:
        config = json_text.read(raw)
    except ValueError:
        raise WatchError(f"{where} is not JSON", remedy) from None
    if not isinstance(config, dict):
        raise WatchError(f"{where} is not a JSON object", remedy)
    return config


def _checkpoint_bytes(folder: Path) -> int | None:
    for name in INDEXES:
        if (folder / name).is_file():
            size = _total_size(read_json(folder / name))
            if size is not None:
                return size
    return sum(map(file_bytes, weights(folder))) or None


def _total_size(index: Mapping[str, Any]) -> int | None:
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return size if is_size(size, BYTES_MAX) else None


def _of_hub(named: str, environment: Mapping[str, str], weights_gib: float | None) -> Found:
    base = f"{environment.get('HF_ENDPOINT') or _HUB}/{named}/resolve/main"
    names = ("config.json", *((INDEXES[0],) if weights_gib is None else ()))
    from vllm_watch.cli.helpers import hub  # noqa: PLC0415 - loads an HTTP client

    urls = [f"{base}/{name}" for name in names]
    fetched = asyncio.run(hub.fetch(urls, _CONFIG_BYTES_MAX))
    if isinstance(fetched[0], WatchError):
        raise fetched[0]
    config, size = _parse(fetched[0], f"{named}/config.json"), None
    # A model without an index has a single weight file.
    if len(fetched) > 1 and isinstance(fetched[1], bytes):
        with contextlib.suppress(WatchError):
            size = _total_size(_parse(fetched[1], f"{named}/{names[1]}"))
    return Found(named, config, Checkpoint(given_gib=weights_gib, bytes_total=size))


INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")  # by priority
_FILES_MAX, _REFERENCE_BYTES = 2000, 200


def hub_home(environment: Mapping[str, str]) -> Path:
    """Return the Hugging Face Hub client's folder."""
    cache = Path(environment.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(environment.get("HF_HOME") or cache / "huggingface").expanduser()


def hub_cache(environment: Mapping[str, str]) -> Path:
    """Return the hub client's download cache."""
    return Path(environment.get("HF_HUB_CACHE") or hub_home(environment) / "hub").expanduser()


def snapshot(
    cache: Path, repository: str, revision: str | None = None, *, having: str = ""
) -> Path | None:
    """Return the revision's snapshot, or else the newest snapshot. It must contain the file `having`."""
    entry = cache / f"models--{repository.replace('/', '--')}"
    reference = entry / "refs" / (revision or "main")
    names = [_first_line(reference)] if reference.is_file() else []
    named = [entry / "snapshots" / name for name in (*names, revision) if name]
    newest = sorted(entry.glob("snapshots/*"), key=_modified, reverse=True)
    return next((each for each in (*named, *newest) if each.is_dir() and (each / having).exists()), None)  # fmt: skip


def _first_line(path: Path) -> str:
    with regular_file.opened(path) as file:
        return file.read(_REFERENCE_BYTES).decode(errors="replace").split("\n")[0].strip()


def file_bytes(path: Path) -> int:
    """Return the file's size, or 0 if missing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def weights(folder: Path) -> list[Path]:
    """Return the weight files. Mistral's `consolidated` files are left out if others exist."""
    for pattern in _WEIGHTS:
        files = sorted(folder.glob(pattern))[:_FILES_MAX]
        own = [each for each in files if not each.name.startswith("consolidated")] or files
        if own:
            return own
    return []
