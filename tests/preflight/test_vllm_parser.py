"""The installed vLLM's own parser is asked: its refusal is a problem, and no other end of it is one."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.preflight.vllm_stand_in import install
from vllm_watch.cli.helpers.launch import gather
from vllm_watch.cli.helpers.launch_software import ask_vllm
from vllm_watch.preflight.check_flags import check_vllm_parser
from vllm_watch.preflight.facts import OK, PROBLEM, UNKNOWN, Facts, Finding
from vllm_watch.preflight.judge import judge

SECONDS_MAX = 60
HANG = "import os, pathlib, time\npathlib.Path(os.environ['PID_FILE']).write_text(str(os.getpid()))\ntime.sleep(600)\n"  # fmt: skip


def facts_of(program: Path, *words: str, seconds_max: float = SECONDS_MAX, **environment: str) -> Facts:  # fmt: skip
    facts = gather([str(program), "serve", *words], {**os.environ, **environment})
    return replace(facts, asked=ask_vllm(facts, seconds_max))


def findings(program: Path, *words: str, seconds_max: float = SECONDS_MAX, **environment: str) -> list[Finding]:  # fmt: skip
    """All findings of the check `flags`."""
    findings = judge(facts_of(program, *words, seconds_max=seconds_max, **environment))
    return [each for each in findings if each.check == "flags"]


_INT = "argument --stream-interval: invalid int value: 'x'"
# A command, the statuses of what is found, and how vLLM's own word ends: None if ours, which has the fix, stands for both.
ASKED: tuple[tuple[str, list[str], str | None], ...] = (
    ("m --enforce-eager --tokenizer t --tool-call-parser hermes --reasoning-parser qwen3", [OK], ""),
    ("m --stream-interval x", [PROBLEM], _INT),
    ("m --enable-sleep-mode", [PROBLEM], "unrecognized arguments: --enable-sleep-mode"),  # unlike our table
    ("m --tool-call-parser bogus", [PROBLEM], None),
    ("m --reasoning-parser bogus", [PROBLEM], None),
    ("m --tokenizer wrong", [PROBLEM], "tokenizer 'wrong' has no files"),
    ("m --tokenizer cuda-only", [UNKNOWN], "perhaps only on this host: this tokenizer needs a CUDA device"),
    ("m --tokenizer broken", [UNKNOWN], "): RuntimeError: no driver"),
    ("m --dtype fp16", [PROBLEM], None),
    ("m m2", [PROBLEM], None),
    ("m --enforce-eager true", [PROBLEM], None),
    ("m --dtype", [PROBLEM], None),
    ("m --max-modle-len=8192", [PROBLEM], None),
    ("m --max-num-seqs 1k --stream-interval x", [PROBLEM, PROBLEM], _INT),  # ours about one does not explain vLLM's
)  # fmt: skip


@pytest.mark.parametrize(("line", "statuses", "sentence"), ASKED, ids=[row[0] for row in ASKED])
def test_what_it_says(line: str, statuses: list[str], sentence: str | None, tmp_path: Path) -> None:  # fmt: skip
    found = findings(install(tmp_path), *line.split())
    assert [each.status for each in found] == statuses
    own = [each.text for each in found if "own parser" in each.text]
    assert len(own) == (sentence is not None)
    assert all(each.endswith(sentence or ")") for each in own)


def test_a_flag_of_a_plugin_is_unknown(tmp_path: Path) -> None:
    """That of a platform adds flags only on its hardware."""
    facts = facts_of(install(tmp_path), "m", "--stream-interval", "x")
    facts = replace(facts, software=replace(facts.software, plugins=True))
    assert [each.status for each in check_vllm_parser(facts)] == [UNKNOWN]


BROKEN = {
    "every command is refused": ({"serve": "class ServeSubcommand:\n    def subparser_init(self, c):\n        c.add_parser('serve')\n"}, "it refuses every command"),
    "a library is missing": ({"vllm": "import ctypes\nctypes.CDLL('libnope.so.1')\n"}, "OSError: libnope.so.1"),
    "it crashes": ({"vllm": "import os\nos._exit(3)\n"}, "it ended without an answer"),
    "it writes much": ({"vllm": "print('x' * 1000000)\nimport os\nos.write(1, b'y' * 1000000)\nos._exit(0)\n"}, "it ended without an answer"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "says"), BROKEN.values(), ids=BROKEN)
def test_no_answer_is_unknown(changed: dict[str, str], says: str, tmp_path: Path) -> None:
    (finding,) = findings(install(tmp_path, **changed), "m", "--stream-interval", "x")
    assert finding.status == UNKNOWN
    assert finding.text.partition("): ")[2].startswith(says)


def test_a_release_without_the_parser(tmp_path: Path) -> None:
    """Nothing is reported: the table of flags has it."""
    assert facts_of(install(tmp_path, serve=""), "m").asked is None


def test_a_parser_that_hangs(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    (finding,) = findings(install(tmp_path, vllm=HANG), "m", seconds_max=2, PID_FILE=str(pid_file))
    assert finding.status == UNKNOWN
    assert finding.text.endswith("no answer within 2 s")
    assert not Path("/proc", pid_file.read_text()).exists()


def test_without_a_python_of_its_own(tmp_path: Path) -> None:
    program = install(tmp_path)
    for text in ("#!/bin/sh\nexit 1\n", f'#!/bin/sh\nexec {sys.executable} -I "$@"\n'):
        (tmp_path / "bin" / "python").write_text(text)
        facts = facts_of(program, "m")
        assert facts.asked is None or facts.asked.failure == "it ended without an answer"
    assert facts.asked is None  # a Python without vLLM
    (tmp_path / "bin" / "python").unlink()
    assert facts_of(program, "m").software.python is None
    assert facts_of(program, "m").asked is None


def test_the_older_way(tmp_path: Path) -> None:
    """python -m vllm.entrypoints.openai.api_server has the same parser without `serve`."""
    install(tmp_path)
    server = [str(tmp_path / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server", "--model", "m"]  # fmt: skip
    accepted = ask_vllm(gather(server, dict(os.environ)))
    assert accepted is not None
    assert (accepted.refusal, accepted.failure) == (None, None)
    refused = ask_vllm(gather([*server, "--stream-interval", "x"], dict(os.environ)))
    assert refused is not None
    assert refused.refusal == "argument --stream-interval: invalid int value: 'x'"


def test_the_python_of_the_first_line(tmp_path: Path) -> None:
    """A program of another folder belongs to the environment that its first line names."""
    install(tmp_path / "venv")
    program = tmp_path / "vllm"
    program.write_text(f"#!{tmp_path}/venv/bin/python\n")
    program.chmod(0o755)
    facts = facts_of(program, "m")
    assert facts.software.python == f"{tmp_path}/venv/bin/python"
    assert facts.asked is not None
    assert (facts.asked.refusal, facts.asked.failure) == (None, None)
    program.write_text(f"#!{tmp_path}/nowhere/bin/python\n")
    assert facts_of(program, "m").asked is None


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    text = "def make_arg_parser(p):\n    p.add_argument('model_tag')\n    p.add_argument('--api-key', nargs='+')\n    return p\n"  # fmt: skip
    check = "import os\ndef validate_parsed_serve_args(g):\n    if g.api_key:\n        raise ValueError(f'{g.api_key} {os.environ}')\n"  # fmt: skip
    facts = facts_of(install(tmp_path, cli_args=text + check), "m", "--api-key", "plainword", "other", MY_TOKEN="secretword")  # fmt: skip
    assert facts.asked is not None
    assert facts.asked.refusal is not None
    assert facts.asked.refusal.startswith("['[hidden]', '[hidden]'] ")
    assert not any(word in str(facts.asked) for word in ("plainword", "other", "secretword"))


def preflight(program: Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:  # fmt: skip
    command = [sys.executable, "-m", "vllm_watch", "preflight", *options, "--", str(program), "serve", "org/model", "--port", "18999"]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})  # fmt: skip


def test_as_an_entrypoint(tmp_path: Path) -> None:
    """The time is printed, and vLLM starts; --no-ask-vllm leaves it out."""
    program = install(tmp_path)
    out, error = preflight(program, "--exec").communicate(timeout=SECONDS_MAX)
    assert out == "vllm got serve org/model --port 18999\n"
    assert "ok       flags         vLLM's own parser accepts the command (" in error
    out, _ = preflight(program, "--no-ask-vllm").communicate(timeout=SECONDS_MAX)
    assert "own parser" not in out


def test_it_ends_with_preflight(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = install(tmp_path, vllm=HANG)
    with preflight(program, "--exec", environment={"PID_FILE": str(pid_file)}) as started:
        while not (pid_file.exists() and pid_file.read_text()):
            assert started.poll() is None
            time.sleep(0.05)
        started.terminate()
        assert started.wait(SECONDS_MAX) == 143
        started.communicate()
    assert not Path("/proc", pid_file.read_text()).exists()
