"""What users install: complete, light, and honest about what it needs."""

import ast
import functools
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from vllm_watch import __version__

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vllm_watch"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
# Distribution → the module it brings, where that is named otherwise.
MODULES = {"nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client", "pyyaml": "yaml",
           "opentelemetry-sdk": "opentelemetry", "opentelemetry-exporter-otlp-proto-http": "opentelemetry"}  # fmt: skip
# Comes with a distribution that is declared, and is a part of its interface.
BROUGHT = {"pydantic_core": "pydantic", "rich": "textual"}


def modules_of(requirements: list[str]) -> set[str]:
    names = {Requirement(requirement).name for requirement in requirements}
    modules = {MODULES.get(name, name) for name in names}
    return modules | {module for module, by in BROUGHT.items() if by in modules}


REQUIRED = modules_of(PROJECT["dependencies"])
EXTRAS = modules_of([r for extra in PROJECT["optional-dependencies"].values() for r in extra])


def foreign_imports(file: Path) -> set[str]:
    """The modules that a file imports at any place and that are neither ours nor Python's."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"vllm_watch", "_typeshed"}


def loaded_by(module: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after importing this one."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


@functools.cache
def imported() -> set[str]:
    return {module for file in PACKAGE.rglob("*.py") for module in foreign_imports(file)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from the source distribution as an index's users would get it."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_wheel_has_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    """The page's scripts and styles and the mark for type checkers are in it, and no test is."""
    ours = {
        str(file.relative_to(ROOT))
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    manuals = {name for name in packed if "/share/man/man" in name}
    assert {name.rpartition("/")[2] for name in manuals} == {"vllm-watch.1", "vllm-watch.yaml.5"}
    assert packed - manuals == ours
    assert "vllm_watch/py.typed" in packed


def test_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    """Version, licence and the one command are in the metadata."""
    folder = f"vllm_watch-{__version__}.dist-info"
    metadata = message_from_string(wheel.read(f"{folder}/METADATA").decode())
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "Apache-2.0")
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    commands = wheel.read(f"{folder}/entry_points.txt").decode()
    assert commands.split() == ["[console_scripts]", "vllm-watch", "=", "vllm_watch.__main__:main"]


def test_everything_imported_is_declared() -> None:
    """Nothing works only because something else happens to bring it."""
    undeclared = imported() - REQUIRED - EXTRAS
    assert not undeclared


def test_everything_declared_is_imported() -> None:
    """A sidecar's image is pulled beside every engine: nothing unused is in it."""
    unused = (REQUIRED | EXTRAS) - imported() - set(BROUGHT)
    assert not unused


@pytest.mark.parametrize("group", ["supply", "docs"])
def test_what_holds_for_all_tests_needs_no_daemon(group: str) -> None:
    """`make supply` and `make docs` run tests where only their own group is installed."""
    there = modules_of(PYPROJECT["dependency-groups"][group])
    assert loaded_by("tests.conftest") & (REQUIRED | EXTRAS) <= there | {
        "rich"
    }  # by structlog, as above


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("## [")]
    assert headings[0].startswith((f"## [{__version__}]", "## [Unreleased]"))
    assert any(line.startswith(f"## [{__version__}]") for line in headings)
