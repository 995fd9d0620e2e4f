"""The status page's files, read once, and one digest of them all: an open page loads itself anew when it changes."""

import hashlib
from functools import lru_cache
from importlib.resources import files

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@lru_cache(maxsize=1)
def contents() -> dict[str, bytes]:
    """Return what each file holds, by its name."""
    folder = files("vllm_watch.export").joinpath("page")
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir(), key=lambda each: each.name)
        if file.name.rpartition(".")[2] in TYPES
    }


@lru_cache(maxsize=1)
def digest() -> str:
    """Return what differs between two versions of the page, and is equal for the same one."""
    found = hashlib.sha256()
    for name, content in contents().items():
        found.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return found.hexdigest()[:16]
