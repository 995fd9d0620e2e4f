"""Find checkpoints on this machine, and their weight files."""

from collections.abc import Mapping
from pathlib import Path

from vllm_watch.support import regular_file

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


def size(path: Path) -> int:
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
