"""Counts unnatural patterns in the docstrings, comments and docs of each folder against a committed budget.

`make english` lowers the budget to the counts and refuses to raise it; tests/test_words.py fails above it.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BUDGET = ROOT / "tests/english-budget.txt"
SHOWN_MAX = 20

PATTERNS = {
    "what: name the thing": r"\bwhat\b",
    "say, tell: report, return, contain": r"\b(?:say|says|said|tell|tells|told)\b",
    "where: if, or the place": r"\bwhere\b",
    "look: scrape, poll, check": r"\blooks?\b",
    "who, nobody: the client, the caller": r"\b(?:who|whoever|whose|nobody|somebody|anybody)\b",
    "so long, so many: this long, N": r"\bso (?:long|many|much)\b",
    "is no X: is not an X": r"\b(?:is|are|was) no\b",
    "of first: subject, verb, object": r"(?:(?m:^)[ #*>|-]*|[.:;!?] )(?-i:Of) (?!course\b)",
    "odd: again, with, as before, continues": r"\b(?:anew|beside|as ever|goes on|go on|in words|for ever)\b",
}
IN_DOCSTRINGS = {
    "question: Return True if …": r"\A[^\n]*\?(?:\n|\Z)",
    "'...' first: a sentence of its own": r"\A\s*\.\.\.",
}
COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PATTERNS.items()}
COMPILED_DOCSTRINGS = {name: re.compile(pattern) for name, pattern in IN_DOCSTRINGS.items()}
# Phrases that are not counted: expression → reason.
ALLOWED = {
    r"\b(?:is|are|was) no (?:longer|more than)\b": "the usual adverbs",
    r"\blook(?:s|ed)? up\b": "the verb for DNS, tables and dictionaries",
    r"(?<=user )nobody\b": "the Unix account",
}
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
NOT_COUNTED = re.compile(f"{'|'.join(ALLOWED)}|{CODE.pattern}", CODE.flags | re.IGNORECASE)
STATEMENT_BEGINS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


class Hit(NamedTuple):
    """One pattern found in one line."""

    path: Path
    line: int
    pattern: str
    text: str


def docstrings_and_comments(source: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it is a docstring (also of an attribute)."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False
        elif token.type != tokenize.NL:
            if token.type == tokenize.STRING and before in STATEMENT_BEGINS:
                yield token.start[0], ast.literal_eval(token.string), True
            before = token.type


def hits(path: Path) -> Iterator[Hit]:
    """Every pattern in a Python file's docstrings and comments, or in a page less its code."""
    source = path.read_text()
    python = path.suffix == ".py"
    for first, raw, docstring in (
        docstrings_and_comments(source) if python else [(1, source, False)]
    ):
        # Newlines stay, so that lines can be counted.
        text = NOT_COUNTED.sub(lambda match: "\n" * match[0].count("\n"), raw)
        for name, pattern in (COMPILED | (COMPILED_DOCSTRINGS if docstring else {})).items():
            for match in pattern.finditer(text):
                offset = text.count("\n", 0, match.start())
                yield Hit(path, first + offset, name, text.splitlines()[offset].strip())


def room(path: Path, root: Path) -> str:
    """The folder that has a number of its own; `docs` for the README."""
    parts = path.relative_to(root).parts[:-1][:2]
    return "/".join(parts) or "docs"


def hits_by_room(root: Path) -> dict[str, list[Hit]]:
    """Every hit of the package and the docs."""
    found: dict[str, list[Hit]] = {}
    files = (root / "vllm_watch").rglob("*.py"), (root / "docs").rglob("*.md"), [root / "README.md"]
    for path in sorted(path for each in files for path in each):
        found.setdefault(room(path, root), []).extend(hits(path))
    return found


def read_budget(path: Path) -> dict[str, int]:
    """Counts by room. A merge may keep a room twice (.gitattributes): the lower count holds."""
    budget: dict[str, int] = {}
    for line in path.read_text().splitlines():
        name, count = line.split()
        budget[name] = min(int(count), budget.get(name, sys.maxsize))
    return budget


def newest_first(found: list[Hit], root: Path) -> list[Hit]:
    """Order hits by when git last saw their line change; those not committed yet come first."""
    when: dict[tuple[Path, int], int] = {}
    for path in {hit.path for hit in found}:
        command = ["git", "blame", "--line-porcelain", "--", str(path)]
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=600, check=False
        )
        times = re.findall(r"^author-time (\d+)$", done.stdout, re.MULTILINE)
        when |= {(path, number): int(time) for number, time in enumerate(times, 1)}
    return sorted(found, key=lambda hit: -when.get((hit.path, hit.line), sys.maxsize))


def above_budget(found: dict[str, list[Hit]], budget: dict[str, int], root: Path) -> list[str]:
    """One paragraph for each room above its budget: the counts, and its newest hits."""
    return [
        f"{name}: {len(found[name])} unnatural patterns, the budget is {budget.get(name, 0)}; the newest:"
        + "".join(
            f"\n  {hit.path.relative_to(root)}:{hit.line}: {hit.pattern}: {hit.text[:120]}"
            for hit in newest_first(found[name], root)[:SHOWN_MAX]
        )
        for name in sorted(found)
        if len(found[name]) > budget.get(name, 0)
    ]


def main(root: Path, path: Path) -> int:
    """Lower the budget to the counts, or print where they are above it and change nothing."""
    found = hits_by_room(root)
    if above := above_budget(found, read_budget(path), root):
        print(
            *above, "Rewrite them, or allow a phrase with its reason in tests/english.py.", sep="\n"
        )
        return 1
    path.write_text("".join(f"{name} {len(found[name])}\n" for name in sorted(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(ROOT, BUDGET))
