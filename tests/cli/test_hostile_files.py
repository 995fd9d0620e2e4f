"""Files that strangers send along with a ticket: small, and made to take all memory or all time."""

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

MEMORY_BYTES = 300 << 20
CPU_SECONDS = (
    60  # each takes some seconds; without the bounds they took more, or the memory of the machine
)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command of ours with little memory."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))

    environ = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    return subprocess.run(
        [sys.executable, "-m", "vllm_watch", *map(str, arguments)],
        capture_output=True, text=True, check=False, preexec_fn=bounded, env=environ,
    )  # fmt: skip


def lines_of_targets() -> bytes:
    return b"".join(
        json.dumps({"t": 1.8e9 + i, "target": f"http://h{i}:1", "ok": True, "metrics": "x 1\n"}).encode() + b"\n"
        for i in range(20_000)
    )  # fmt: skip


def lines_of_engines() -> bytes:
    metrics = "".join(f'vllm:num_requests_running{{engine="{i}"}} 1\n' for i in range(64))
    return b"".join(
        json.dumps({"t": 1.8e9 + i, "target": f"http://h{i}:1", "ok": True, "metrics": metrics}).encode() + b"\n"
        for i in range(900)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lines_of_targets, "the recording has 1001 targets up to here"),
        (lines_of_engines, "the recording has over 4000 engines up to here"),
        (lambda: b"\n" * (1 << 26), "the recording has 10001 empty lines up to here"),
        (lambda: b'{"t":1,"a":"' + b"x" * (1 << 26), "longer than 16 MiB"),
    ],
    ids=["targets", "engines", "line feeds", "one line"],
)  # fmt: skip
def test_a_recording_that_unpacks_to_much_is_refused(tmp_path: Path, content, words: str) -> None:
    file = tmp_path / "trace.jsonl.gz"
    file.write_bytes(gzip.compress(content()))
    done = run("replay", file)
    assert done.returncode == 2, done
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("beginning", "times"), [(b"INFO 11-21 17:00:00 a line\n", 1), (b"x", 1 << 29)], ids=["lines", "one line"])  # fmt: skip
def test_a_log_that_unpacks_to_much_is_refused(
    tmp_path: Path, beginning: bytes, times: int
) -> None:
    file = tmp_path / "log.gz"
    file.write_bytes(gzip.compress(beginning * times + b"\n" * (1 << 28)))
    done = run("diagnose", file)
    assert done.returncode == 2, done
    assert "unpacks to over 300 times its size" in done.stderr


def test_half_a_character_in_a_recording_is_shown(tmp_path: Path) -> None:
    """JSON can name one, and no terminal can be sent one."""
    file = tmp_path / "trace.jsonl"
    file.write_text('{"t": 1.8e9, "target": "http://a/\\ud800", "ok": true, "metrics": "x 1\\n"}\n')
    done = run("replay", file)
    assert done.returncode == 0, done
    assert "http://a/\\ud800" in done.stdout
