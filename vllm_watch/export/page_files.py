"""The status page's files and runbooks. Browsers reload the page when the files' digest changes."""

import hashlib
from functools import cache
from importlib.resources import files

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@cache
def contents(name: str = "page") -> dict[str, bytes]:
    """Return the page's files, or the rendered `runbooks`, by name."""
    folder = files("vllm_watch.export").joinpath(name)
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir(), key=lambda each: each.name)
        if file.name.rpartition(".")[2] in TYPES
    }


@cache
def digest() -> str:
    """Return a digest of the page's files."""
    found = hashlib.sha256()
    for name, content in contents().items():
        found.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return found.hexdigest()[:16]
