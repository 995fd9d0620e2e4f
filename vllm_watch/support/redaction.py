"""Keeps secrets out of what people read: logs, configuration errors, recordings, printed settings.

Twice: by what looks like a secret, and by value: what was read from a file of keys is known, and is hidden
wherever it turns up, such as in the words of a server that repeats the key that it refuses.
"""

import re
from collections import OrderedDict
from functools import lru_cache

HIDDEN = "[hidden]"

_SECRET_WORDS = frozenset(
    {"apikey", "authorization", "credential", "credentials", "key", "passwd", "password", "secret", "token"}
)  # fmt: skip
_NAME = r"[\w-]*(?:token|key|passwd|password|secret|credentials?)"
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s&'",;)\]}]+)"""
_USERINFO = re.compile(r"(?<=://)[^\s'\"]+@")  # up to the last @: a password may hold / and @
# What a query is called is told, what it holds is not: it may be a signature, or a key by any name.
_QUERY = re.compile(r"(https?://[^\s'\"?#]*\?)([^\s'\"]+)")
_QUERY_VALUE = re.compile(r"=[^&#]*")
# From a name's beginning only: a long word of a stranger must not cost the square of its length.
_ASSIGNED = re.compile(rf"((?<![\w-]){_NAME})=(?!\[hidden\])(?:\[[^\]]*\]|{_VALUE})", re.IGNORECASE)
# As Python and JSON write mappings: 'api_key': ['...'], "token": "...".
_MAPPED = re.compile(
    rf"""(['"]{_NAME}['"]\s*:\s*)(?!None\b|null\b|True\b|true\b|False\b|false\b)(?:\[[^\]]*\]|{_VALUE})""",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"\b(X-API-Key|API-Key|Authorization)\s*:\s*(?!Bearer|Basic)[^\s'\",]+", re.IGNORECASE
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[^\s'\"]+", re.IGNORECASE)
_ISSUED = re.compile(
    r"\b(?:sk-|hf_|ghp_|xox[bp]-)[A-Za-z0-9_-]{16,}"
)  # shapes that keys are issued in

_KNOWN_MAX, _KNOWN_CHARACTERS_MIN = 1000, 8
"""Shorter ones would turn up by chance."""
_known: OrderedDict[str, None] = OrderedDict()


def never_show(secret: str) -> None:
    """Hide this value from now on wherever it turns up."""
    if len(secret) >= _KNOWN_CHARACTERS_MIN and secret not in _known:
        _known[secret] = None
        while len(_known) > _KNOWN_MAX:
            _known.popitem(last=False)
        safe_arguments.cache_clear()


def is_secret_name(name: str) -> bool:
    """Does the name's last word promise a secret? `api_key` does; `tokens` and `api_key_file` do not."""
    return re.split(r"[._\-\s]+", name.lower())[-1] in _SECRET_WORDS


def redacted(text: str) -> str:
    """Return the text without userinfo and queries of URLs, credentials, `token=…`, and what is known."""
    for secret in _known:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    text = _QUERY.sub(lambda match: match[1] + _without_values(match[2]), text)
    text = _ASSIGNED.sub(rf"\1={HIDDEN}", text)
    text = _MAPPED.sub(rf"\1{HIDDEN}", text)
    text = _HEADER.sub(rf"\1: {HIDDEN}", text)
    return _ISSUED.sub(HIDDEN, _BEARER.sub(rf"\1 {HIDDEN}", text))


def _without_values(query: str) -> str:
    return _QUERY_VALUE.sub(f"={HIDDEN}", query) if "=" in query else HIDDEN


@lru_cache(maxsize=4096)  # the processes that hold GPUs, at every look the same
def safe_arguments(cmdline: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command line of which the values of options that are named like secrets are hidden."""
    shown: list[str] = []
    hiding = False
    for argument in cmdline:
        name, equals, _ = argument.partition("=")
        if argument.startswith("-") or not hiding:
            # `--api-key a b` takes several values, so hide until the next option.
            secret = is_secret_name(name)
            hiding = secret and not equals and argument.startswith("-")
            shown.append(f"{name}={HIDDEN}" if secret and equals else redacted(argument))
        else:
            shown.append(HIDDEN)
    return tuple(shown)
