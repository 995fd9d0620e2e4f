"""Every shell command that README, docs and --help show, and what is done with it.

A page's commands are its blocks of `sh` and `console`. Those of a block under a comment that says how to run it are
followed by the test of their page; all others are run as printed (sandbox.py), but for what NOT_RUN names.
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

NOT_RUN = {
    r"make ": ("builds an environment, or takes long", "make"),
    r"pip install": ("installs; docs/getting-started.md does, and is followed", ""),
    r"docker ": ("no Docker is here", "docker"),
    r"helm (install|test)": (
        "no cluster is here; tests/deploy/test_helm.py renders the chart",
        "paths",
    ),
    r"kubectl kustomize|kubectl apply .*-k ": ("no cluster is here", "kustomize"),
    r"kubectl (?!logs)": ("no cluster is here", "kubectl"),
    r"(sudo )?systemctl ": ("systemd does not run here", ""),
    r"(sudo )?nvidia-smi ": ("no GPU is here", ""),
    r"sudo py-spy ": ("not among our packages; tests/test_host_live.py runs it", ""),
    r"vllm-watch gpus --reclaim": ("ends a process; tests/cli/test_gpus_reclaim.py", "parses"),
}
"""What cannot be run here: a pattern of its beginning, why, and the check that is made in place of it."""

ENDS = {
    r"vllm-watch preflight(?!.*\|)": {3},  # an engine has port 8000
    r".*vllm-watch diagnose": {1},  # a failure was found
    r"vllm-watch capacity --model config.json": {3},  # it does not fit
    r"vllm-watch hook test restart-vllm --config \S+$": {1},  # one of its engines is down
    r"vllm-watch (approve|restart)": {0, 1},  # the first is done, and refuses the next
    r"vllm-watch gpus --watch": {130},
}
"""Exit statuses other than 0, all of them documented."""

SHOWS = {
    r"vllm-watch (run|demo)\b(?!.*list)": r"[Ss]erving",
    r".*replay --prometheus": r"1 × Down.*; your rules fired [1-9]",
    r"vllm-watch replay incident.jsonl.gz( --json)?$": r"Engine hung|engine_stalled",
    r"vllm-watch replay \w+.jsonl.gz": r".",
    r"vllm-watch top": r"llama|127.0.0.1|Down",
    r".*vllm-watch read": r"requests_running",
    r"vllm-watch capacity": r"FITS|fits",
    r"vllm-watch preflight": r"port 8000",
    r".*vllm-watch diagnose": r"memory",
    r"vllm-watch check-config.*yaml( --ask)?$": r"is usable",
    r"vllm-watch (approve|restart)": r"has begun|refused: ",
    r"vllm-watch pause": r"paused by anna",
    r"vllm-watch resume": r"not paused",
    r"vllm-watch silence": r"no restart for engine_down",
    r"vllm-watch journal(?! accept)": r"anna",
    r"vllm-watch (hook|notify) test": r"restart-vllm|oncall",
    r"vllm-watch gpus(?!.*jq)": r"GPU 0",
    r"curl .*grep": r"num_requests_running",
    r"curl .*health": r"200",
    r"pgrep": r"vllm serve",
}
"""What is to be seen of some of them."""

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

    @property
    def not_run(self) -> tuple[str, str] | None:
        """Why it is not run, and the check in place of it."""
        return next((why for begin, why in NOT_RUN.items() if re.match(begin, self.text)), None)

    @property
    def statuses(self) -> set[int]:
        """How it may end."""
        return next((each for begin, each in ENDS.items() if re.match(begin, self.text)), {0})

    @property
    def shows(self) -> str:
        """A pattern of its output."""
        return next((each for begin, each in SHOWS.items() if re.match(begin, self.text)), "")

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
