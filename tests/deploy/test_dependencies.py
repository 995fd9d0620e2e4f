"""What is locked: all that is declared, with all that it needs, and a hash of every file; and what `make deps` would install."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from docs import generate_dependencies as generator

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED = {
    "requirements.lock": PROJECT["project"]["dependencies"],
    "requirements-apprise.lock": [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["apprise"]],
    "requirements-host.lock": [
        *PROJECT["project"]["dependencies"], *(each for name in ("apprise", "top") for each in PROJECT["project"]["optional-dependencies"][name]),
    ],
    "requirements-build.lock": PROJECT["build-system"]["requires"],
}  # fmt: skip


def unmet(file: Path, declared: list[str]) -> list[str]:
    """What is declared, or needed by what is, and not locked as wanted."""
    pinned = {each.name: Version(each.version) for each in generator.locked(file)}
    wanted, seen, found = [Requirement(each) for each in declared], set(), []
    while wanted:
        want = wanted.pop()
        name = canonicalize_name(want.name)
        if want.marker and not want.marker.evaluate({"extra": ""}):
            continue
        if name not in pinned or pinned[name] not in want.specifier:
            found.append(f"{want} is locked as {pinned.get(name)}")
        if name not in seen:
            seen.add(name)
            wanted += [Requirement(each) for each in requires(name) or []]
    return found


@pytest.mark.parametrize("name", DECLARED)
def test_lock_satisfies_what_is_declared(name: str) -> None:
    """Directly and further on, by what the installed packages say that they need."""
    assert unmet(ROOT / name, DECLARED[name]) == []


@pytest.mark.parametrize("name", DECLARED)
def test_every_file_that_is_locked_has_a_hash(name: str) -> None:
    """pip refuses what has none; a package has a wheel, at least."""
    assert [each.name for each in generator.locked(ROOT / name) if each.hashes == 0] == []
    assert "==" in (ROOT / name).read_text()


def test_the_image_installs_nothing_else() -> None:
    """Every pip install of the Dockerfile is of locked files by their hashes, or reaches no index."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"-m pip [^&\n]*(?:install|wheel) [^&\n]*", text)
    assert len(installs) == 4
    for each in installs:
        assert "--require-hashes" in each or "--no-deps" in each, each


def test_licences_let_it_be_shipped() -> None:
    """Nothing that users get asks them for more than to keep a notice."""
    fine = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "PSF-2.0", "ISC", "MPL-2.0"}
    page = (ROOT / "docs/dependencies.md").read_text()
    said = re.findall(r"^\| .* \| ([^|]+) \|$", page, re.MULTILINE)
    said += re.findall(
        r"[\w-]+ \(([^)]+)\)[,.]", page.partition("## Transitive")[2].partition("##")[0]
    )
    named = {part for each in said if each != "licence" for part in re.split(r" (?:AND|OR) ", each)}
    assert len(said) > 20
    assert named - fine == set()
