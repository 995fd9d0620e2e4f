"""No string that people read has a word that the glossary of docs/development.md has a better one for."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

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
    page = (ROOT / "docs/development.md").read_text().partition("## Words")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)[1:]
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
        for group in yaml.safe_load(file.read_text())["groups"]:
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
    """Prose of the documentation, line by line, less code and the glossary."""
    for file in PAGES:
        text = file.read_text()
        if file.name == "development.md":
            text = text.partition("## Words")[0]
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


KINDS = {
    "is no X: write is not a X": r"(?<!here )\b(?:is|are) no (?!longer\b|more\b|less\b|fewer\b)\w+",
    "a look: write a scrape or a poll": r"\bwants (?:a look|one now)\b",
    "so long, so many: name the number": r"\b[Ff]or so long an?\b|\bSo many must\b",
    "tell it once: write print once and exit": r"\btell it once\b|\bis told once\b",
    "whatever it says: name the thing": r"\bwhatever (?:the memory says|it was called)\b|\bwhich share of its work\b",
    "who wants: write required": r"\bit wants a key\b|\bstands there\b, and",
    "its past: name the time": r"\bits starts took\b|\bthis one has taken\b|\bthe longest pause it recovered from\b",
    "argparse's own words": r"\b1 restarts\b|\bnot as by default\b",
}  # fmt: skip
"""Kinds of sentences that were mended in what programs print; pages of the documentation have more of the first."""


@pytest.mark.parametrize("read", [of_scripts, of_python, of_dashboards])
@pytest.mark.parametrize("kind", KINDS)
def test_no_sentence_of_a_mended_kind_comes_back(read, kind) -> None:
    """The kind's name says what to write instead."""
    found = [
        f"{file.relative_to(ROOT)}: {text.strip()[:120]}"
        for file, text in read()
        if re.search(KINDS[kind], text)
    ]
    assert found == []


SEVERITIES = re.compile(r"\b(?:a|A|as a|open|opens a) tickets?\b(?! system)|\bpage or ticket\b")


@pytest.mark.parametrize("read", [of_scripts, of_python, of_rules, of_dashboards, of_pages])
def test_severities_are_critical_and_warning(read) -> None:
    """`page` and `ticket` are values of labels, of JSON and of the configuration."""
    assert [(file.name, text) for file, text in read() if SEVERITIES.search(text)] == []


def test_the_readers_find_what_people_read() -> None:
    """None of them is silent: a reader that finds nothing would hold nothing."""
    for read in (of_scripts, of_python, of_rules, of_dashboards, of_pages):
        assert len(list(read())) > 50, read.__name__
