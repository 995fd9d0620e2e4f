"""Make untrusted text safe for a message: one short line, without secrets and without effect in Markdown."""

import re

from vllm_watch.support.redaction import beginning, redacted
from vllm_watch.support.visible import visible_lines

# Includes marks of chat services: ~~struck~~, ||hidden||, <!channel>.
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&])")
_MENTION = re.compile(r"@(?=\w)")


def clean(text: str, characters_max: int) -> str:
    """Return one line without secrets."""
    words = redacted(" ".join(visible_lines(beginning(text, 2 * characters_max + 200)).split()))
    line = " ".join(map(_without_tail, words.split(" ")))
    return line if len(line) <= characters_max else line[: characters_max - 1].rstrip() + "…"


def _without_tail(word: str) -> str:
    scheme, mark, rest = word.partition("://")
    return scheme + mark + re.split(r"[?#]", rest, maxsplit=1)[0]


def markdown(line: str) -> str:
    """Escape a cleaned line."""
    return _MENTION.sub("@\u200b", _MARKS.sub(r"\\\1", line))
