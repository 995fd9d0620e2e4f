"""What strangers say shows as what it is, wherever a person sees it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_watch.notify.words import clean
from vllm_watch.restart.hooks import child
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.support.visible import visible, visible_lines

EVIL = "m\x1b[2J\x9b2J\x07\u202e\u200b\u061c\U000e0041"
SHOWN = r"m\x1b[2J\x9b2J\x07\u202e\u200b\u061c\U000e0041"
METRICS = f'vllm:num_requests_running{{model_name="{EVIL}",engine="0"}} 1\nvllm:num_requests_waiting{{model_name="{EVIL}",engine="0"}} 0\n'


def test_controls_show_as_escapes() -> None:
    """Also those that are not seen and those that turn the direction of writing."""
    assert visible(EVIL) == visible_lines(EVIL) == clean(EVIL, 100) == SHOWN
    assert (visible("a\nb\tc"), visible_lines("a\nb\tc")) == (r"a\x0ab\x09c", "a\nb\tc")
    assert visible("\ud800") == r"\ud800"  # JSON can name it, and no output takes it
    assert visible("größer 日本 – ok") == "größer 日本 – ok"


@pytest.mark.parametrize("command", ["read", "replay", "diagnose"])
def test_commands_show_them(tmp_path: Path, command: str) -> None:
    """An engine's names and log lines cannot move the cursor of who looks at them."""
    file = tmp_path / "file"
    if command == "read":
        file.write_text(METRICS)
    elif command == "replay":
        looks = [
            {"t": 1.8e9 + i, "target": f"http://a/{EVIL}", "ok": True, "metrics": METRICS}
            for i in range(2)
        ]
        file.write_text("".join(json.dumps(look) + "\n" for look in looks))
    else:
        file.write_text(
            f"ValueError: no such model {EVIL} in EngineCore vllm.x\nEngineCore failed to start.\n"
        )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", command, str(file)], capture_output=True, text=True, check=False, env=environ
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1), said
    assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(said)
    assert r"m\x1b[2J\x9b2J" in said or command == "diagnose"


@pytest.mark.parametrize("form", ["json", "console"])
def test_the_log_shows_them(form: str) -> None:
    program = f"""
import structlog
from vllm_watch.support import logs
logs.configure("info", {form!r})
structlog.get_logger().info({EVIL!r}, target={EVIL!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(done.stderr)
    assert done.stderr.count("x1b[2J") == 2


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_journal_and_preflight_show_them(tmp_path: Path, more: list[str]) -> None:
    """What somebody gave as a reason, and what a launch names; as text and as JSON."""
    asyncio.run(_journaled(tmp_path))
    for command in (
        ["journal", *more, "--state-dir", str(tmp_path)],
        ["preflight", *more, "--", "vllm", "serve", EVIL],
    ):
        done = subprocess.run([sys.executable, "-m", "vllm_watch", *command], capture_output=True, text=True, check=False)  # fmt: skip
        said = done.stdout + done.stderr
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(said), command
        assert "[2J" in said, said


async def _journaled(folder: Path) -> None:
    journal = Journal(folder)
    try:
        await journal.note(
            Entry(t=1.8e9, actor=EVIL, source="token", action="pause", target=EVIL, reason=EVIL)
        )
    finally:
        await journal.close()


def test_escape_sequences_of_a_command():
    """They reach neither the journal nor a terminal."""
    argv = ("/bin/sh", "-c", r"printf '\033]0;owned\007\033[2J done'")
    ended = asyncio.run(child.run(argv, dict(os.environ), 10.0))
    assert ended.tail == r"\x1b]0;owned\x07\x1b[2J done"
