"""The commands of a page of docs: fenced blocks, each under a comment that says how a test is to run it."""

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"^(?:<!-- (?P<how>[^:\n]+?)(?:: (?P<shows>.+?))? -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """`how` it is run, and a pattern of what is then to be seen ("" for anything)."""

    how: str
    shows: str
    kind: str  # sh or yaml
    text: str


def blocks(page: Path) -> list[Block]:
    """All of a page, in their order."""
    return [
        Block(found["how"] or "", found["shows"] or "", found["kind"], found["text"])
        for found in _BLOCK.finditer(page.read_text())
    ]
