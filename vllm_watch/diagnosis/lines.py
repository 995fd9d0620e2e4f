"""Remove colours, Docker's JSON and control bytes from a line."""

import re

from vllm_watch.support import json_text

LINE_BYTES_MAX = 16 << 10
"""Bytes of a line to read. Prompts and dumps follow after the message."""

SHOWN_CHARACTERS_MAX = 8000
_SHOWN_BEFORE = 2000

_COLOUR = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LEVEL = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?= \d\d-\d\d \d\d:)|(?<![\w.'\"/-])(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|TRACE)(?=[\s:\]|,]|$)|\[([EWIF])(?:\d{3,4})? |\b\w*Warning(?=: )")  # fmt: skip
_DATE = re.compile(r" \d\d-\d\d \d\d:")
_QUIET = frozenset(("DEBUG", "INFO", "WARNING", "TRACE"))
_DOCKER = '{"log":"'


def clean(raw: bytes) -> str:
    """Return the text of a line."""
    text = raw[:LINE_BYTES_MAX].decode("utf-8", "replace")
    if text.startswith(_DOCKER):
        text = _unwrapped(text)
    if "\x1b" in text:
        text = uncoloured(text)
    return _CONTROL.sub("", text.rstrip("\r\n"))


def uncoloured(text: str) -> str:
    """Remove terminal escapes."""
    return _COLOUR.sub("", text)


def _unwrapped(text: str) -> str:
    try:
        said = json_text.read(text)
    except ValueError:
        return text
    log = said.get("log") if isinstance(said, dict) else None
    return log if isinstance(log, str) else text


def is_quiet(text: str, at: int) -> bool:
    """Return True if the message at `at` has the level WARNING or below."""
    level, dated = None, False
    for found in _LEVEL.finditer(text, 0, at + 1):
        # vLLM writes a date after the level.
        if _DATE.match(text, found.end()) or not dated:
            level, dated = found, dated or _DATE.match(text, found.end()) is not None
    if level is None:
        return False
    if level[1]:
        return level[1] in "WI"
    return level[0] in _QUIET or level[0].endswith("Warning")


def shown(text: str, at: int) -> str:
    """Return a limited part of the text around `at`. Carriage returns end it."""
    begin = text.rfind("\r", 0, at) + 1
    end = text.find("\r", at)
    piece, at = text[begin : None if end < 0 else end], at - begin
    if len(piece) > SHOWN_CHARACTERS_MAX:
        begin = max(0, at - _SHOWN_BEFORE)
        piece = piece[begin : begin + SHOWN_CHARACTERS_MAX]
    return piece.strip()
