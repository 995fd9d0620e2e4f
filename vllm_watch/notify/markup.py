"""Texts of others made fit for a message: bounded, one line, without secrets, and nothing but text in Markdown. Pure."""

import re

from vllm_watch.support.redaction import HIDDEN, is_secret_name, redacted

# What begins anything in CommonMark or in the dialects of chats (~~struck~~, ||hidden||, <!channel>).
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&])")
# Control characters, those that turn the direction of writing, and those that are not seen.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_MENTION = re.compile(r"@(?=\w)")
_LONG_URL_TAIL = re.compile(r"(https?://[^\s/?#]+[^\s?#]*)[?#]\S*")
# A name is looked for at its beginning only: else a long word costs the square of its length.
_PAIR = re.compile(
    r"(?<![\w-])(?P<name>[\w-]+)(?P<sep>[\"']?\s*[:=]\s*[\"']?)(?P<value>[^\s,;\"']{4,})"
)
_OPTION = re.compile(r"(?<![\w-])(?P<name>--?[\w-]+)(?P<sep>\s+)(?P<value>[^\s-]\S*)")
_KNOWN_SECRET = re.compile(
    r"\b(?:sk-|hf_|ghp_|gho_|glpat-|xox[abprs]-|nvapi-|AKIA|eyJ[\w-]+\.)[\w.-]{8,}"
)
"""Tokens that say by their beginning what they are (OpenAI, Hugging Face, GitHub, GitLab, Slack, NVIDIA, AWS, JWT)."""


def clean(text: str, characters_max: int) -> str:
    """Return the text as one line without secrets, cut to so many characters."""
    line = " ".join(_UNSEEN.sub(" ", _beginning(text, 2 * characters_max + 200)).split())
    line = _KNOWN_SECRET.sub(HIDDEN, redacted(line))
    for pattern in (_PAIR, _OPTION):
        line = pattern.sub(_without_value, line)
    line = _LONG_URL_TAIL.sub(r"\1", line)
    return line if len(line) <= characters_max else line[: characters_max - 1].rstrip() + "…"


def _beginning(text: str, characters_max: int) -> str:
    """Return whole words of the beginning: what is cut in the middle may be a secret that is not known as one."""
    if len(text) <= characters_max:
        return text
    whole = re.split(r"\s\S*$", text[:characters_max], maxsplit=1)[0]
    return whole if len(whole) < characters_max else "…"


def _without_value(found: re.Match[str]) -> str:
    """`--api-key abc`, `"password": "abc"` and `token: abc`, beside the `key=…` that is known everywhere."""
    name, separator = found["name"], found["sep"]
    if not is_secret_name(name) or found["value"].startswith(HIDDEN[0]):
        return found[0]
    return f"{name}{separator}{HIDDEN}"


def markdown(line: str) -> str:
    """Return a cleaned line that Markdown shows as it stands."""
    return _MENTION.sub("@\u200b", _MARKS.sub(r"\\\1", line))
