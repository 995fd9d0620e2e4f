"""Texts of others made fit for a message: bounded, one line, without secrets, and nothing but text in Markdown. Pure."""

import re

from vllm_watch.support.redaction import beginning, redacted
from vllm_watch.support.visible import visible_lines

# What begins anything in CommonMark or in the dialects of chats (~~struck~~, ||hidden||, <!channel>).
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&])")
_MENTION = re.compile(r"@(?=\w)")


def clean(text: str, characters_max: int) -> str:
    """Return the text as one line without secrets, cut to so many characters."""
    words = redacted(" ".join(visible_lines(beginning(text, 2 * characters_max + 200)).split()))
    line = " ".join(map(_without_tail, words.split(" ")))
    return line if len(line) <= characters_max else line[: characters_max - 1].rstrip() + "…"


def _without_tail(word: str) -> str:
    """A URL without its query and fragment."""
    scheme, mark, rest = word.partition("://")
    return scheme + mark + re.split(r"[?#]", rest, maxsplit=1)[0]


def markdown(line: str) -> str:
    """Return a cleaned line that Markdown shows as it stands."""
    return _MENTION.sub("@\u200b", _MARKS.sub(r"\\\1", line))
