"""What people read uses none of the words of tests/words.md; what colleagues read, ever less unnatural English."""

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests import english

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vllm_watch"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')
FENCED = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)


@cache
def glossary() -> dict[str, str]:
    """Banned word → what to say."""
    page = (ROOT / "tests/words.md").read_text()
    rows = re.findall(r"^- (.+): not (`.+)$", page, re.MULTILINE)
    return {word: say for say, banned in rows for word in re.findall(r"`([^`]+)`", banned)}


@cache
def banned() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, glossary()))})\b", re.IGNORECASE)


def of_scripts() -> Iterator[tuple[Path, str]]:
    """Quoted texts of the page's scripts, less what is filled in, and the page itself."""
    for file in sorted((PACKAGE / "export/page").glob("*.js")):
        code = re.sub(r"^\s*(?://|/?\*).*$|\s// .*$", "", file.read_text(), flags=re.MULTILINE)
        for text in filter(lambda each: " " in each, QUOTED.findall(code)):
            yield file, re.sub(r"\$\{[^}]*\}", "…", text)
    page = PACKAGE / "export/page/index.html"
    yield page, re.sub(r"<[^>]*>", " ", page.read_text())


def of_python() -> Iterator[tuple[Path, str]]:
    """Every text of more than one word in code that is no docstring: summaries, evidence, errors, help, HELP."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)} | docs
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and " " in node.value
                and id(node) not in bare
            ):
                yield file, node.value


def of_rules() -> Iterator[tuple[Path, str]]:
    """What alerts say."""
    for file in sorted((ROOT / "alerts").rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            for group in document.get("groups", ()):
                for rule in group["rules"]:
                    yield from ((file, text) for text in rule.get("annotations", {}).values())


def of_dashboards() -> Iterator[tuple[Path, str]]:
    """Titles and descriptions of panels."""

    def texts(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, each in value.items():
                if key in {"title", "description", "content", "text"} and isinstance(each, str):
                    yield each
                else:
                    yield from texts(each)
        elif isinstance(value, list):
            for each in value:
                yield from texts(each)

    for file in sorted((ROOT / "dashboards").glob("*.json")):
        yield from ((file, text) for text in texts(json.loads(file.read_text())))


def of_pages() -> Iterator[tuple[Path, str]]:
    """Prose of the documentation, line by line, without code."""
    for file in PAGES:
        text = file.read_text()
        for line in FENCED.sub("", text).splitlines():
            yield file, line


@pytest.mark.parametrize("read", [of_scripts, of_python, of_rules, of_dashboards, of_pages])
def test_no_banned_word_is_read_by_anybody(read) -> None:
    """The glossary says what to write instead."""
    found = [
        f"{file.relative_to(ROOT)}: {match[0]!r} (say: {glossary()[match[0].lower()]}): {text.strip()[:120]}"
        for file, text in read()
        for match in banned().finditer(text)
    ]
    assert found == []


PEOPLE_ONLY = {
    "tell: write report, return, show": (r"\b(?:tell|tells|told|telling)\b", 0),
    "say: write report, return, show": (r"\b(?:say|says|saying)\b", 0),
    "a look: write a scrape or a poll": (r"\b(?:a|the|next|last) looks?\b|\blooks\b(?! like a file)", 0),
    "nobody, somebody: name the client, the user, the process": (r"\b(?:nobody|somebody|whoever)\b", 0),
    "what as a noun: name the thing": (r"(?<=[a-z,:] )what (?!to\b|is wrong\b|would make\b|this build\b)\w+", 1),
}  # fmt: skip
"""Words of people, said of programs, with how many texts have them: the count may only fall."""
_SCHEMA = "state/schema.py"  # its comments are for whoever opens the database


@pytest.mark.parametrize("kind", PEOPLE_ONLY)
def test_programs_do_not_tell_or_look(kind) -> None:
    """The kind's name gives the words to write instead."""
    pattern, most = PEOPLE_ONLY[kind]
    found = [
        f"{file.relative_to(ROOT)}: {text.strip()[:120]}"
        for read in (of_scripts, of_python)
        for file, text in read()
        if not str(file).endswith(_SCHEMA) and not (file.suffix == ".js" and "\n" in text)
        if re.search(pattern, text)
    ]
    assert len(found) == most, "\n".join(found)


SEVERITIES = re.compile(r"\b(?:a|A|as a|open|opens a) tickets?\b(?! system)|\bpage or ticket\b")


@pytest.mark.parametrize("read", [of_scripts, of_python, of_rules, of_dashboards, of_pages])
def test_severities_are_critical_and_warning(read) -> None:
    """`page` and `ticket` are values of labels, of JSON and of the configuration."""
    assert [(file.name, text) for file, text in read() if SEVERITIES.search(text)] == []


def test_the_readers_find_what_people_read() -> None:
    """None of them is silent: a reader that finds nothing would hold nothing."""
    for read in (of_scripts, of_python, of_rules, of_dashboards, of_pages):
        assert len(list(read())) > 50, read.__name__


def test_no_room_has_more_unnatural_english_than_its_budget() -> None:
    """Rewrite what is listed; `make english` then lowers the budget."""
    above = english.above_budget(
        english.hits_by_room(ROOT), english.read_budget(english.BUDGET), ROOT
    )
    assert above == [], "\n".join(above)


def repository(root: Path) -> None:
    """Make a repository of it with our hooks, by the command of the Makefile."""
    shutil.copytree(ROOT / ".githooks", root / ".githooks")
    shutil.copy(ROOT / "Makefile", root)
    for command in (
        ["git", "init", "-q"],
        ["git", "config", "user.name", "t"],
        ["git", "config", "user.email", "t@t"],
        ["make", "hooks"],
        ["git", "add", "."],
    ):
        subprocess.run(command, cwd=root, check=True, timeout=600)


SUBJECTS = {
    "status: hide gauges of a dead engine": 0,
    'Revert "What the 14th stranger misread"': 0,
    "watch: " + "ü" * 66: 1,
    "What the 14th stranger misread": 1,
    "status: hide gauges.": 1,
    "status: hide gauges; show others": 1,
    "status: hid gauges and added others": 0,  # no program knows every verb
    "status: added gauges": 1,
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_commit_has_an_area_and_an_imperative(tmp_path, subject) -> None:
    """Git itself runs the hook that `make` installed."""
    repository(tmp_path)
    done = subprocess.run(
        ["git", "commit", "-qm", subject], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    assert (done.returncode, bool(done.stderr)) == (SUBJECTS[subject], bool(SUBJECTS[subject]))
    assert done.returncode == 0 or "Use `area: imperative`" in done.stderr
