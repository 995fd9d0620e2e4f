"""Every command with ten wrong inputs or more: wrong_inputs.txt has each input, its output and its exit status.

`python -m tests.cli.test_wrong_inputs` runs every line that begins with "$ " again and writes what it printed: read
the difference as a user would.
"""

import contextlib
import io
import os
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from vllm_watch.__main__ import main
from vllm_watch.cli.helpers.commands import COMMANDS

GOLDEN = Path(__file__).with_name("wrong_inputs.txt")
INPUTS_MIN = 10
PRIVATE = 0o600
FILES = {  # name → content and mode; no other file is in the folder
    "empty": ("", PRIVATE),
    "binary": ("\x00\x01\x02", PRIVATE),
    "text.txt": ("hello world\n", PRIVATE),
    "token": ("s3cret-of-twenty-characters\n", PRIVATE),
    "open-token": ("s3cret-of-twenty-characters\n", 0o644),
    "no-colon": ("alice\n", PRIVATE),
    "cut.jsonl": ('{"t": 1.0, "target"\n', PRIVATE),
    "cut.jsonl.gz": ("\x1f\u008b", PRIVATE),
    "vllm.log": ("INFO 11-27 07:00:00 nothing that anybody knows\n", PRIVATE),
    "config.json": ('{"architectures": ["GPT5"]}\n', PRIVATE),
    "llama.json": ('{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 14336, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}\n', PRIVATE),
    "vision.json": ('{"model_type": "vit"}\n', PRIVATE),
    "list.json": ("[1]\n", PRIVATE),
    "unknown-key.yaml": ("intervall: 5\n", PRIVATE),
    "interval.yaml": ("scrape: {interval_seconds: fast}\n", PRIVATE),
    "tab.yaml": ("scrape:\n\tinterval_seconds: 5\n", PRIVATE),
    "two.yaml": ("targets:\n- {url: 'http://127.0.0.1:9', name: a}\n- {url: 'http://127.0.0.1:10', name: a}\n", PRIVATE),
    "hooks.yaml": ("targets: [{url: 'http://127.0.0.1:9', name: llama}]\nhooks: {command: [{name: again, argv: [/bin/true]}]}\n", PRIVATE),
    "two-hooked.yaml": ("targets: [{url: 'http://127.0.0.1:9', name: llama}, {url: 'http://127.0.0.1:10', name: qwen}]\nhooks: {command: [{name: again, argv: [/bin/true]}]}\n", PRIVATE),
    "apprise.yaml": ("notifications: {apprise: [{name: chat, urls_file: empty}]}\n", PRIVATE),
    "slack.yaml": ("notifications: {slack: [{name: chat}]}\n", PRIVATE),
    "web.yaml": ("tls_server_config: {cert_file: missing.pem, key_file: missing.pem}\n", PRIVATE),
    "web-config.yaml": ("web_config: web.yaml\n", PRIVATE),
}  # fmt: skip


def output(line: str, folder: Path) -> str:
    """Return what a command line prints in that folder, and its exit status."""
    said = io.StringIO()
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "120"}
    stdin = io.TextIOWrapper(io.BytesIO(b""))
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, clean, clear=True),
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            status = main(shlex.split(line)[1:])
        except SystemExit as ended:  # argparse prints help and versions so
            status = ended.code
    return f"{said.getvalue().replace(str(folder), '/HOME')}exit {status}\n"


def inputs() -> list[str]:
    return [line[2:] for line in GOLDEN.read_text().splitlines() if line.startswith("$ ")]


def written(folder: Path) -> str:
    for name, (content, mode) in FILES.items():
        (folder / name).write_bytes(content.encode("latin-1"))
        (folder / name).chmod(mode)
    (folder / "folder").mkdir(exist_ok=True)
    said = "\n".join(f"$ {line}\n{output(line, folder)}" for line in inputs())
    assert {each.name for each in folder.iterdir()} == {*FILES, "folder"}, (
        "a mistake leaves no file"
    )
    return said


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Each input with what it prints now."""
    return [f"$ {each}" for each in written(tmp_path_factory.mktemp("wrong")).split("$ ")[1:]]


def test_every_output_is_known(blocks: list[str]) -> None:
    assert "".join(blocks) == GOLDEN.read_text()


def test_every_error_has_a_cause_and_a_remedy(blocks: list[str]) -> None:
    for block in blocks:
        lines = block.strip().splitlines()[1:]
        assert lines[-1] == ("exit 1" if "does not answer" in lines[0] else "exit 2"), (
            block
        )  # 1: the probe's
        assert lines[0].startswith("vllm-watch: "), block
        assert any(line.startswith("  → ") for line in lines), block
        assert "Traceback" not in block


def test_every_command_is_there() -> None:
    tried = Counter(line.split()[1] for line in set(inputs()))
    assert {name for name in COMMANDS if tried[name] < INPUTS_MIN} == set()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(written(Path(made)))
