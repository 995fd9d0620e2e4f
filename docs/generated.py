"""Writes generated files, or reports which committed ones are stale: `python docs/generate_NAME.py [--check]`."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], there: Iterable[Path] = ()) -> int:
    """Write the files; with --check write nothing, and return 1 if one is stale, or `there` and made by nothing."""
    if "--check" not in sys.argv:
        for path, text in files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return 0
    stale = [path for path in there if path not in files]
    stale += [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        sys.stderr.write(f"{path} is stale: run make generate\n")
    return 1 if stale else 0
