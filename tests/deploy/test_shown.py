"""No command is shown that is neither run nor known to be impossible here; those have checks of their own."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.daemon_process import ROOT
from tests.deploy import rendered
from tests.deploy.shown import FOLLOWED, NOT_RUN, Shown, shown, spans, unlabelled
from vllm_watch.__main__ import _parser
from vllm_watch.cli.helpers.commands import COMMANDS, load

NOT_HERE = [each for each in shown() if each.not_run is not None]
MAKEFILE = (ROOT / "Makefile").read_text()
# No server listens there: a client that gets as far as asking it has understood the command.
KUBECONFIG = """\
{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}],
 contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}
"""


def options(command: str) -> list[str]:
    """Those that a command of ours knows."""
    return [*_parser(command, load(command))[1], "--help"]


def parses(words: list[str]) -> None:
    """Our program takes this."""
    _, unknown = _parser(words[0], load(words[0]))[0].parse_known_args(words)
    assert not unknown


def make(each: Shown, _folder: Path) -> None:
    subprocess.run(f"{each.text} -n", shell=True, check=True, cwd=ROOT, capture_output=True, timeout=600)  # fmt: skip


def docker(each: Shown, _folder: Path) -> None:
    """What runs in the container is ours, or is Python; an image that is built has its Dockerfile."""
    words = shlex.split(each.text.replace("\\\n", " "))
    if words[1:2] == ["build"]:
        assert (ROOT / "Dockerfile").exists()
    for at, word in enumerate(words[:-1]):
        if word == "vllm-watch" and words[at + 1] in COMMANDS:
            parses(words[at + 1 :])
    if "-c" in words and "python3" in words:
        ast.parse(words[words.index("-c") + 1])


def kubectl(each: Shown, folder: Path) -> None:
    """A real kubectl takes it, reads its files, and fails for want of a cluster alone."""
    if "--patch-file" in each.text and rendered.minor_version() < rendered.TODAYS_LANGUAGE:
        assert (ROOT / each.folder / shlex.split(each.text)[-1]).exists()
        return
    (folder / "config").write_text(KUBECONFIG)
    done = subprocess.run(
        ["bash", "-c", each.text], cwd=ROOT / each.folder, capture_output=True, text=True, timeout=600, check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "KUBECONFIG": str(folder / "config")},
    )  # fmt: skip
    assert "127.0.0.1:1" in done.stderr
    assert "refused" in done.stderr


def kustomize(each: Shown, _folder: Path) -> None:
    """The folder is one that tests/deploy/test_kubernetes.py renders, and checks."""
    assert set(re.findall(r"deploy/kubernetes/([\w/-]+)", each.text)) <= set(rendered.ALL)


def paths(each: Shown, _folder: Path) -> None:
    for path in re.findall(r"deploy/[\w/.-]+", each.text):
        assert (ROOT / path).exists()


CHECKS = {"make": make, "docker": docker, "kubectl": kubectl, "kustomize": kustomize, "paths": paths,
          "parses": lambda each, _: parses(shlex.split(each.text)[1:])}  # fmt: skip


@pytest.mark.parametrize("each", NOT_HERE, ids=str)
def test_what_is_not_run_is_checked_as_far_as_it_can_be(each: Shown, tmp_path: Path) -> None:
    """It is a command of bash's, and passes the check that the table names."""
    subprocess.run(["bash", "-n", "-c", each.text], check=True, timeout=600)
    assert each.not_run
    if check := CHECKS.get(each.not_run[1]):
        check(each, tmp_path)


def test_the_table_has_no_row_for_nothing() -> None:
    """Each is there for a command that is shown, has a reason, and names a check that there is."""
    for begin, (why, check) in NOT_RUN.items():
        assert why
        assert not check or check in CHECKS
        assert any(each.not_run == (why, check) for each in NOT_HERE), begin


def test_blocks_of_commands_are_called_so() -> None:
    """A block that is not `sh` or `console` is run by nobody, so nothing in it may look like a command."""
    assert unlabelled() == []


def test_pages_that_are_followed_have_a_test_that_follows_them() -> None:
    """It names the page."""
    for page, test in FOLLOWED.items():
        assert Path(page).name in (ROOT / test).read_text()


@pytest.mark.parametrize(("page", "text"), spans())
def test_a_command_in_a_sentence_has_the_options_that_it_names(page: str, text: str) -> None:
    """Commands of ours, and targets of make."""
    program, *words = shlex.split(text.partition(" -- ")[0])
    given = [word for word in words if not word.startswith("-") and "=" not in word]
    if program == "make":
        targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
        assert set(given) <= targets | {"…"}, page
        return
    if given[:1] == ["COMMAND"]:
        return
    assert given[0] in COMMANDS, page
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text.partition(" -- ")[0])) <= set(options(given[0])), page  # fmt: skip
