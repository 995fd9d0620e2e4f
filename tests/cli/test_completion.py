"""`vllm-watch completion`: sourced by a real bash, which then completes what is typed."""

import subprocess

import pytest

from vllm_watch.__main__ import main
from vllm_watch.cli.helpers.commands import COMMANDS

ASK = """\
source {script}
read -r _ _ function _ < <(complete -p vllm-watch | sed 's/.*\\(-F [^ ]*\\).*/x \\1 x/')
COMP_WORDS=({words}) COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
COMP_LINE="${{COMP_WORDS[*]}}" COMP_POINT=${{#COMP_LINE}}
"$function" vllm-watch "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

TYPED = {
    "a command": ("vllm-watch re", {name for name in COMMANDS if name.startswith("re")}),
    "an option": ("vllm-watch replay --prom", {"--prometheus"}),
    "of its own command": ("vllm-watch gpus --prom", set()),
    "a choice": ("vllm-watch completion z", {"zsh"}),
    "a file, or a folder on the way": (
        "vllm-watch run --config mine.y",
        {"mine.yaml", "mine.yaml.d"},
    ),
    "a folder": ("vllm-watch run --state-dir st", {"state"}),
}


@pytest.mark.parametrize(("words", "offered"), TYPED.values(), ids=TYPED)
def test_bash_completes(words, offered, tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "mine.yaml.d").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "stale.txt").touch()
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK.format(script=script, words=words)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert (set(done.stdout.split()), done.stderr) == (offered, "")


def test_without_shtab(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'vllm-watch[completion]'" in capsys.readouterr().err
