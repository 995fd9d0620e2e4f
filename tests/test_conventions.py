"""What a reader may count on in every file, without opening it."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from vllm_watch.cli.helpers.commands import COMMANDS
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import HooksSettings

ROOT = Path(__file__).parents[1]
FUNCTION_LINES_MAX = 60  # a screen
FILE_LINES_MAX = 600  # where one concept needs it; the aim is 100 to 250
CODE = sorted(
    file
    for folder in ("vllm_watch", "tests", "benchmarks", "dashboards", "alerts", "docs")
    for file in (ROOT / folder).rglob("*.py")
)
SOURCES = [file for file in CODE if file.is_relative_to(ROOT / "vllm_watch")]
# Not text, or not ours: captures are of other people's servers, and the licence is Apache's.
NOT_READ = {".png", ".gz", ".ico", ".woff2"}
# Every machine has these, so a path that begins so says nothing about this one.
EVERYWHERE = {"/", "/app", "/home", "/mnt", "/opt", "/root", "/src", "/srv", "/tmp", "/usr", "/var", "/var/tmp"}  # fmt: skip


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def in_the_repository() -> list[Path]:
    """The files of the repository, those that are not committed yet among them."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, timeout=600, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        return [path for path in ROOT.rglob("*") if path.is_file() and "/." not in str(path)]
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def test_every_file_says_what_it_is() -> None:
    """Every module begins with a docstring of at least a sentence: what this file is, and why."""
    silent = []
    for path in CODE:
        docstring = ast.get_docstring(tree(path)) or ""
        if not re.search(r"[.:?]$", docstring.split("\n\n")[0].strip()):
            silent.append(name(path))
    assert silent == []


def test_files_and_functions_are_short() -> None:
    """No function is longer than a screen, and no file holds more than one concept can need."""
    long = []
    for path in CODE:
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX:
            long.append(f"{name(path)}: {lines} lines")
        for node in ast.walk(tree(path)):
            if isinstance(node, FUNCTIONS):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{name(path)}: {node.name}: {lines} lines")
    assert long == []


def test_importing_a_package_loads_nothing() -> None:
    """An __init__ holds a docstring and the version at most."""
    full = []
    for path in (ROOT / "vllm_watch").rglob("__init__.py"):
        body = tree(path).body[1:]
        if [ast.unparse(node).partition(" = ")[0] for node in body] not in ([], ["__version__"]):
            full.append(name(path))
    assert full == []


def test_every_command_is_documented() -> None:
    headings = re.findall(r"^## `?([\w-]+)`?$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    assert [command for command in COMMANDS if command not in headings] == []


def test_every_restart_hook_has_its_companions() -> None:
    """Every kind of hook has settings, a test against its counterpart, and a page."""
    kinds = set(base.kinds())
    assert kinds <= set(HooksSettings.model_fields)
    for kind in kinds:
        assert (ROOT / f"tests/restart/hooks/test_{kind}.py").exists()
        assert (ROOT / f"docs/hooks/{kind}.md").read_text().startswith(f"# {kind}: ")


def test_every_page_of_docs_is_on_the_map() -> None:
    """docs/index.md leads to every page, to the runbooks through docs/alerts.md."""
    texts = [(ROOT / "docs" / page).read_text() for page in ("index.md", "alerts.md")]
    linked = set(re.findall(r"\]\(([\w./-]+\.md)[)#]", "".join(texts)))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index.md"} <= linked


def test_the_docs_stay_short() -> None:
    """As `wc -w` counts them. Who adds a page cuts another one: each fact stands once."""
    pages = (ROOT / "docs").rglob("*.md")
    assert sum(len(page.read_text().split()) for page in pages) <= 42_000


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in link and not (page.parent / link).exists():
                broken.append(f"{name(page)}: {link}")
    assert broken == []


def test_the_map_of_the_code_names_what_is_there() -> None:
    """Each file and folder that docs/architecture.md names; KIND and NAME stand for what is added."""
    known = [f"/{name(path)}" for path in in_the_repository()]
    page = (ROOT / "docs/architecture.md").read_text()
    gone = [
        named
        for named in set(re.findall(r"`([\w/]+(?:\.py|/))`", page))
        if not re.search("KIND|NAME", named) and not any(f"/{named}" in path for path in known)
    ]
    assert gone == []


def test_the_walk_of_an_observation_is_that_of_the_code() -> None:
    """Each hop of docs/architecture.md: its file has its function, or its class that method."""
    page = (ROOT / "docs/architecture.md").read_text()
    hops = re.findall(
        r"^\| \d+\w? \| `([\w/]+\.py)`[^|]*\| `(?:(\w+)\.)?(\w+)` \|", page, re.MULTILINE
    )
    assert len(hops) == 18
    missing = []
    for file, of, function in hops:
        body = tree(ROOT / "vllm_watch" / file).body
        if of:
            (body,) = [
                node.body for node in body if isinstance(node, ast.ClassDef) and node.name == of
            ]
        functions = (each for each in body if isinstance(each, FUNCTIONS))
        if function not in [each.name for each in functions]:
            missing.append(f"{file}: {of}.{function}")
    assert missing == []


def test_generated_pages_are_in_step() -> None:
    """docs/cli.md and docs/configuration.md say what the program does, and not what it did."""
    generators = sorted((ROOT / "docs").glob("generate_*.py"))
    assert len(generators) > 10
    for generator in generators:
        done = subprocess.run(
            [sys.executable, generator, "--check"],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_manual_pages_have_no_error_of_troff() -> None:
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *sorted((ROOT / "docs/man").iterdir())],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_number_of_tests_is_that_of_functions() -> None:
    """A table of a thousand cases is one test. What pages say is rounded down, and not out of date."""
    functions = sum(
        isinstance(node, FUNCTIONS) and node.name.startswith("test_")
        for file in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(tree(file))
    )
    stated = [
        (name(page), int(number.replace(",", "")))
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for number in re.findall(r"([0-9][0-9,]{2,}) (?:test functions|tests)\b", page.read_text())
    ]
    assert stated != []
    assert [each for each in stated if not 0.8 * functions <= each[1] <= functions] == []


def test_no_file_names_a_place_on_this_machine() -> None:
    """A path that exists where a file was written works nowhere else."""
    places = {str(ROOT), str(ROOT.parent), str(Path.home())} - EVERYWHERE
    found = []
    for path in in_the_repository():
        if path.suffix in NOT_READ:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if any(re.search(rf"(?<![\w.]){re.escape(place)}/", line) for place in places):
                found.append(f"{name(path)}:{number}: {line.strip()[:80]}")
    assert found == []
