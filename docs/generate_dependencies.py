"""Writes docs/dependencies.md: what users get besides our own code, why, and under which licence.

What is declared and why is from pyproject.toml, where each has its reason beside it; what that brings along is from
requirements.lock; licences are from what is installed.
"""

import re
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).parent / "dependencies.md"

HEAD = """\
# Dependencies

<!-- Made by docs/generate_dependencies.py from pyproject.toml, requirements.lock and what is installed. Do not edit. -->

Check which packages `pip install vllm-watch` installs on Linux, and their licences. `requirements.lock` has versions and hashes for the image, `requirements-build.lock` for
the wheel's build; `requirements-dev.lock` has the versions for tests.

## Declared

| package | why | licence |
|---|---|---|
"""
BROUGHT = """
## Transitive

"""
OPTIONAL = """
## Optional

| package | why | licence |
|---|---|---|
"""
FOOT = """
## How this is maintained

- `make lock` writes the lock files (`LOCK_ARGS=--upgrade` updates versions), `make sbom` writes `dist/vllm-watch.cdx.json` (CycloneDX).
- `.github/workflows/release.yml` builds tagged releases with signed provenance: `gh attestation verify FILE --repo OWNER/REPO`. We
  checked it (schema, zizmor), but neither it nor its `pip-audit` has run: **we do not claim that there are no known vulnerabilities**.
- Tests check that lock files satisfy `pyproject.toml`, that imports match declarations, and each licence.
"""
# As their metadata says it → as SPDX says it, where that differs.
SPDX = {
    "MIT License": "MIT", "BSD License": "BSD-3-Clause", "Apache 2": "Apache-2.0", "Apache 2.0": "Apache-2.0", "BSD": "BSD-3-Clause", "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause", "Python Software Foundation License": "PSF-2.0",
}  # fmt: skip
_NAME_MAX = 40  # some put the whole text of the licence there


class Locked(NamedTuple):
    """One package of the lock file."""

    name: str
    version: str
    marker: str  # "" where it is for every platform
    hashes: int
    by: tuple[str, ...]  # which packages want it


def locked(file: Path = ROOT / "requirements.lock") -> list[Locked]:
    """What the lock file holds."""
    found = []
    for block in re.split(r"\n(?=[a-zA-Z0-9])", file.read_text()):
        pinned = re.match(r"([\w.-]+)==([\w.+!-]+)(?: ; (.+?))?(?= \\|\n)", block)
        if pinned is None:
            continue  # the comment at its top
        notes = re.findall(r"^ +# +(?:via )?([\w.-]+)", block, re.MULTILINE)
        by = tuple(note for note in notes if note != "via")
        found.append(
            Locked(pinned[1], pinned[2], pinned[3] or "", block.count("--hash=sha256:"), by)
        )
    return found


def text() -> str:
    """The whole page."""
    project = (ROOT / "pyproject.toml").read_text()
    data = tomllib.loads(project)["project"]
    direct = [Requirement(each).name for each in data["dependencies"]]
    optional = [
        Requirement(e).name for extra in data["optional-dependencies"].values() for e in extra
    ]
    linux = [each for each in locked() if "win32" not in each.marker]
    brought = [each for each in linux if each.name not in {canonicalize_name(n) for n in direct}]
    return (
        HEAD + "".join(f"| {name} | {reason(project, name)} | {licence(name)} |\n" for name in direct)
        + BROUGHT + ", ".join(f"{e.name} ({licence(e.name)})" for e in brought) + ".\n"
        + OPTIONAL + "".join(f"| {name} | {reason(project, name)} | {licence(name)} |\n" for name in optional)
        + FOOT
    )  # fmt: skip


def reason(project: str, name: str) -> str:
    """What stands beside it in pyproject.toml. Raises LookupError where nothing does."""
    found = re.search(rf'^.*"{re.escape(name)}[^"]*"[\],]*\s+# (.+)$', project, re.MULTILINE)
    if found is None:
        raise LookupError(f"pyproject.toml does not say why {name} is needed")
    return found[1]


def licence(name: str) -> str:
    """The licence as SPDX names it, from the package's own metadata. Raises LookupError where it names none."""
    about = metadata(name)
    fields = ("License-Expression", "License", "Classifier")
    said: list[str] = [value for field in fields for value in about.get_all(field) or []]
    said = [
        each.rpartition(" :: ")[2] if each.startswith("License ::") else each
        for each in said if each.startswith("License ::") or " :: " not in each
    ]  # fmt: skip
    for each in said:
        if each and len(each) < _NAME_MAX:
            return SPDX.get(each, each)
    raise LookupError(f"{name} does not say what its licence is")


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: text()}))
