"""Keeps secrets out of what people read: logs, configuration errors, printed settings."""

import re

HIDDEN = "[hidden]"

_SECRET_WORDS = frozenset(
    {"apikey", "authorization", "credential", "credentials", "key", "passwd", "password", "secret", "token"}
)  # fmt: skip
_USERINFO = re.compile(r"(?<=://)[^\s'\"]+@")  # up to the last @: a password may hold / and @
# From a name's beginning only: a long word of a stranger must not cost the square of its length.
_ASSIGNED = re.compile(r"((?<![\w-])[\w-]*(?:token|key|password|secret))=[^\s&'\"]+", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[^\s'\"]+", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Does the name's last word promise a secret? `api_key` does; `tokens` and `api_key_file` do not."""
    return re.split(r"[._\-\s]+", name.lower())[-1] in _SECRET_WORDS


def redacted(text: str) -> str:
    """Return the text without userinfo in URLs, bearer or basic credentials, and `token=…`."""
    text = _ASSIGNED.sub(rf"\1={HIDDEN}", _USERINFO.sub(f"{HIDDEN}@", text))
    return _BEARER.sub(rf"\1 {HIDDEN}", text)
