"""Every shell command that README, docs and --help show.

A page's commands are its blocks of `sh` and `console`. Those of a block under a comment that says how to run it are
followed by the test of their page; of all others what can be known without running them is checked (test_shown.py).
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.daemon_process import ROOT
from vllm_watch.cli.helpers.commands import COMMANDS

FOLLOWED = {
    "docs/getting-started.md": "tests/deploy/test_followed.py",
    "docs/install.md": "tests/deploy/test_followed.py",
    "docs/install/bare-metal.md": "tests/deploy/test_followed.py",
    "docs/install/compose.md": "tests/deploy/test_install_pages.py",
    "docs/install/docker.md": "tests/deploy/test_install_pages.py",
    "docs/install/kubernetes.md": "tests/deploy/test_install_pages.py",
    "docs/security.md": "tests/test_security_page.py",
}
"""Pages whose blocks are steps of one walk, each with the test that walks it."""

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = (
    r"(?:amtool|apt|bash|cd|curl|docker|helm|jq|journalctl|kubectl|make|nvidia-smi|pgrep|pip|pipx|promtool|py-spy|"
    rf"python3?|sudo|systemctl|top|uv|vllm-watch (?:{'|'.join(COMMANDS)}))\b"
)
A_COMMAND = re.compile(rf"^(?:\$ )?(?:\w+=\S+ )*{PROGRAMS}")


@dataclass(frozen=True)
class Shown:
    """One command: the page or the command's --help that shows it, its text, and the folder that its block went to."""

    where: str
    text: str
    folder: str = "."

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def pages() -> list[Path]:
    """README, docs, and what lies beside what is deployed."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]  # fmt: skip


@cache
def shown() -> tuple[Shown, ...]:
    """All of them; one that several places show alike is there once."""
    found: dict[tuple[str, str], Shown] = {}
    for page in pages():
        name = str(page.relative_to(ROOT))
        if name in FOLLOWED:
            continue
        for kind, text in FENCE.findall(page.read_text()):
            for each in _of_block(name, kind, text):
                found.setdefault((each.text, each.folder), each)
    for name in COMMANDS:
        text = import_module(f"vllm_watch.cli.{name.replace('-', '_')}").HELP
        for line in re.findall(r"^  (\S.*)$", text.partition("examples:\n")[2], re.MULTILINE):
            each = Shown(f"{name} --help", _without_remark(line))
            found.setdefault((each.text, "."), each)
    return tuple(found.values())


def _of_block(where: str, kind: str, text: str) -> list[Shown]:
    if kind == "console":
        return [Shown(where, line[2:]) for line in text.splitlines() if line.startswith("$ ")]
    found: list[Shown] = []
    folder, begun = ".", ""
    for line in text.splitlines() if kind == "sh" else ():
        begun += f"{line}\n"
        if line.endswith("\\"):
            continue
        command, begun = _without_remark(begun), ""
        if command.startswith("cd "):
            folder = command.removeprefix("cd ")
        elif command:
            found.append(Shown(where, command, folder))
    assert not begun, f"{where}: {begun}"
    return found


def _without_remark(text: str) -> str:
    return re.sub(r"(^|\s+)# .*", "", text).strip()


def unlabelled() -> list[str]:
    """Lines that look like commands in blocks that are not called so."""
    return [
        f"{page.relative_to(ROOT)}: {line}"
        for page in pages()
        for kind, text in FENCE.findall(page.read_text()) if kind not in ("sh", "console")
        for line in text.splitlines() if A_COMMAND.match(line)
    ]  # fmt: skip


def spans() -> list[tuple[str, str]]:
    """(page, text) of every command of ours or of make that a sentence names."""
    span = re.compile(r"`((?:vllm-watch|make) [^`\n]+)`")
    return [
        (str(page.relative_to(ROOT)), text)
        for page in pages()
        for text in span.findall(FENCE.sub("", page.read_text()))
    ]  # fmt: skip
