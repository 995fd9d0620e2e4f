"""What is locked: all that is declared, with all that it needs, and a hash of every file."""

import importlib.util
import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

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


def generator() -> ModuleType:
    """The program that writes docs/dependencies.md: it reads the lock file, too."""
    spec = importlib.util.spec_from_file_location(
        "generate_dependencies", ROOT / "docs/generate_dependencies.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()


def unmet(file: Path, declared: list[str]) -> list[str]:
    """What is declared, or needed by what is, and not locked as wanted."""
    pinned = {each.name: Version(each.version) for each in GENERATOR.locked(file)}
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
    assert [each.name for each in GENERATOR.locked(ROOT / name) if each.hashes == 0] == []
    assert "==" in (ROOT / name).read_text()


def test_the_image_with_apprise_is_the_other_one_with_more() -> None:
    """The same versions of all that both have; so is a host's, with the terminal view."""
    plain, more, host = (
        {(each.name, each.version) for each in GENERATOR.locked(ROOT / name)}
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


def test_the_page_is_in_step() -> None:
    """One line of reason and a licence for each, as they are declared, locked and installed."""
    assert (ROOT / "docs/dependencies.md").read_text() == GENERATOR.text(), "make generate"


def test_a_dependency_without_a_reason_is_refused() -> None:
    """The page can not be made for it."""
    text = '    "aiohttp>=3.10",\n    "structlog>=24.1",  # logs\n'
    assert GENERATOR.reason(text, "structlog") == "logs"
    with pytest.raises(LookupError, match="does not say why aiohttp is needed"):
        GENERATOR.reason(text, "aiohttp")


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
