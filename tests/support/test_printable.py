"""What hooks say is shown as text, whatever is in it."""

import asyncio
import os

from vllm_watch.restart.hooks import child
from vllm_watch.support.visible import printable


def test_control_characters_are_written_out():
    """Line ends stay, and so do letters of every script."""
    assert (
        printable("größer 服务\nred \x1b[31m\x07 \u202e")
        == "größer 服务\nred \\x1b[31m\\x07 \\u202e"
    )


def test_escape_sequences_of_a_command():
    """They reach neither the journal nor a terminal."""
    argv = ("/bin/sh", "-c", r"printf '\033]0;owned\007\033[2J done'")
    ended = asyncio.run(child.run(argv, dict(os.environ), 10.0))
    assert ended.tail == r"\x1b]0;owned\x07\x1b[2J done"
