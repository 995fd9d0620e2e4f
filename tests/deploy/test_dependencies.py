"""What is locked: all that is declared, with all that it needs, and a hash of every file; and what `make deps` would install."""

import os
import re
import shutil
import subprocess
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


def test_the_image_with_apprise_is_the_other_one_with_more() -> None:
    """The same versions of all that both have; so is a host's, with the terminal view."""
    plain, more, host = (
        {(each.name, each.version) for each in generator.locked(ROOT / name)}
        for name in ("requirements.lock", "requirements-apprise.lock", "requirements-host.lock")
    )
    assert plain < more < host


STALE = {
    "raised": ("structlog>=99", "structlog>=99 is locked as "),
    "added": (
        "pytest>=8",
        "pytest>=8 is locked as None",
    ),  # installed here, and nothing that users get
}


@pytest.mark.parametrize(("declared", "complaint"), STALE.values(), ids=STALE)
def test_a_stale_lock_is_found_out(declared: str, complaint: str) -> None:
    """The check above sees a dependency that was added or raised without `make lock`."""
    assert any(each.startswith(complaint) for each in unmet(ROOT / "requirements.lock", [declared]))


def test_the_image_installs_nothing_else() -> None:
    """Every pip install of the Dockerfile is of locked files by their hashes, or reaches no index."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"-m pip [^&\n]*(?:install|wheel) [^&\n]*", text)
    assert len(installs) == 4
    for each in installs:
        assert "--require-hashes" in each or "--no-deps" in each, each


def test_a_dependency_without_a_reason_is_refused() -> None:
    """The page can not be made for it."""
    text = '    "aiohttp>=3.10",\n    "structlog>=24.1",  # logs\n'
    assert generator.reason(text, "structlog") == "logs"
    with pytest.raises(LookupError, match="does not say why aiohttp is needed"):
        generator.reason(text, "aiohttp")


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


def test_a_kubectl_of_google_is_left_alone(tmp_path: Path) -> None:
    """Debian's kubernetes-client conflicts with Google's kubectl; the other tools are still installed."""
    for name in ("make", "bash", "sh", "sort"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    programs = {"kubectl": "", "id": "echo 0", "apt-get": 'echo "$@"'}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    said = subprocess.run(
        ["make", "deps"], cwd=ROOT, env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    packages = said.stdout.splitlines()[-1].partition("--no-install-recommends")[2].split()
    assert "kubernetes-client" not in packages
    assert {"prometheus", "chromium", "gcc", "libc6-dev"} <= set(packages)
