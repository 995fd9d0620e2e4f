"""Remove secrets from all output.

Unknown secrets are found by patterns, and keys from files by their value. The text is untrusted, so
no pattern may backtrack.
"""

import re
from collections import OrderedDict
from functools import lru_cache

HIDDEN = "[hidden]"

_SECRET_WORDS = frozenset(
    {"apikey", "authorization", "credential", "credentials", "key", "passwd", "password", "secret", "token"}
)  # fmt: skip
_NAME = r"[\w-]*(?:token|key|passwd|password|secret|credentials?|authorization)"
# If a quote or bracket is not closed, the text was cut, so hide the rest of the line.
_VALUE = r"""(?:\[[^\]]*+\]?|"[^"\n]*+"?|'[^'\n]*+'?|[^\s&'",;)\]}]++)"""
_WORD = re.compile(r"[^\s'\"]++")
_QUERY_VALUE = re.compile(r"=[^&#]*+")
_ASSIGNED = re.compile(rf"((?<![\w-]){_NAME})=(?!\[hidden\]){_VALUE}", re.IGNORECASE)
# Python, JSON and YAML: 'api_key': ['...'], "token": "...", token: ...
_MAPPED = re.compile(
    rf"""(['"]{_NAME}['"]\s*+:\s*+)(?!\[hidden\]|None\b|null\b|True\b|true\b|False\b|false\b){_VALUE}""",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"((?<![\w.'\"-])(?!Authorization|key\b(?!-))\w[\w-]*+)(\s*+:\s*+|\s++=\s++)"
    rf"""([^\s,;"']{{4,}}+|(?=["']){_VALUE})""",
    re.IGNORECASE,
)
# Command lines, and lists of arguments: "--api-key", "VALUE".
_OPTION = re.compile(
    r"""((?<![\w-])--[\w-]++)(\s++|["'],\s*+["'])((?!\[hidden\])[^\s"'-][^\s"']*+|(?=["']\w)"""
    rf"{_VALUE})"
)
# Hide an unknown authentication scheme, too. argparse reports "--api-key: expected one argument".
_HEADER = re.compile(
    r"\b(X-API-Key|API-Key|Authorization)\s*+:\s*+(?!expected (?:one|at least one) argument)"
    r"((?:Bearer|Basic|Token|ApiKey)\s++)?[^\s'\",]++(?(2)|(?:[ \t]++(?!\[hidden\])[^\s'\",]++)?)",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"\b((?:Set-)?Cookie:[ \t]*+)[^\n'\"]++", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"(-----BEGIN (?:[A-Z]++ )?PRIVATE KEY-----)[^-]++")
_BEARER = re.compile(r"\b(Bearer|Basic)\s++[^\s'\"]++", re.IGNORECASE)
_TOKEN = re.compile(r"\bToken\s++(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}+")  # in prose, no digit follows
_ISSUED = re.compile(
    r"\b(?:sk-|[rs]k_(?:live|test)_|gsk_|hf_|gh[oprsu]_|github_pat_|glpat-|npm_|xox[abeprs]-|xapp-|nvapi-|ya29\.|GOCSPX-"
    r"|dop_v1_)[\w.-]{8,}+|\b(?:AKIA|ASIA|LTAI)[A-Za-z0-9]{12,}+|\bAIza[\w-]{30,}+|(?<![\w-])eyJ[\w-]++\.[\w.-]{8,}+"
)
"""JWTs and API keys."""

_HOOK_LABELS = frozenset({"hook", "hooks", "webhook"})
_HOOK_PATH = re.compile(
    r"/(?:api/webhooks|webhook\w*+|with/key)/.|/services/T[A-Z0-9]+/|/(?:integration|workflows|hooks?)/[\w-]{16}|/bot\d+:"
)
"""Webhook URLs, in which the path is the credential."""

_GIT = re.compile(r"[\w.-]++(?:/[\w.-]++)++(?<=\.git)")
"""A repository before `@` and its tag, as pip writes it. It cannot have a password, as it has no colon."""

_KNOWN_MAX, _KNOWN_CHARACTERS_MIN = 1000, 8
"""At most this many secrets are known, with at least this many characters. Shorter ones would match ordinary text."""
_known: OrderedDict[str, None] = OrderedDict()


def redact_always(secret: str) -> None:
    """Hide this value in all output from now on."""
    if len(secret) >= _KNOWN_CHARACTERS_MIN and secret not in _known:
        _known[secret] = None
        while len(_known) > _KNOWN_MAX:
            _known.popitem(last=False)
        safe_arguments.cache_clear()


def is_secret_name(name: str) -> bool:
    """Return True if the last word of the name means a secret: `api_key`, but not `tokens` or `api_key_file`."""
    return re.split(r"[._\-\s]+", name.lower())[-1] in _SECRET_WORDS


def excerpt(text: str, characters_max: int) -> str:
    """Return the redacted beginning of an untrusted text."""
    shown = redacted(beginning(text, 2 * characters_max + 200))
    return shown if len(shown) <= characters_max else shown[: characters_max - 1].rstrip() + "…"


def beginning(text: str, characters_max: int) -> str:
    """Return the beginning up to a whole word, because part of a secret would not be recognized."""
    if len(text) <= characters_max:
        return text
    words = text[:characters_max].rsplit(None, 1)
    return words[0] if len(words) > 1 else "…"


def redacted(text: str) -> str:
    """Return the text without credentials, known secrets, and userinfo and queries of URLs."""
    for secret in _known:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _WORD.sub(_safe_word, text)
    text = _ASSIGNED.sub(rf"\1={HIDDEN}", text)
    text = _MAPPED.sub(rf"\1{HIDDEN}", text)
    text = _HEADER.sub(rf"\1: \2{HIDDEN}", text)
    text = _COOKIE.sub(rf"\1{HIDDEN}", text)
    text = _PRIVATE_KEY.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _TOKEN.sub(f"Token {HIDDEN}", text)
    text = _ISSUED.sub(HIDDEN, text)
    for pattern in (_OPTION, _PAIR):
        text = pattern.sub(_without_value, text)
    return text


def without_path(url: str) -> str:
    """Return a webhook's URL without its secret path."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.rpartition("@")[2].partition("/")
    return f"{scheme}{mark}{host}{slash}{HIDDEN if path else ''}"


def _without_value(found: re.Match[str]) -> str:
    name, between, _ = found.groups()
    return f"{name}{between}{HIDDEN}" if is_secret_name(name) else found[0]


def _safe_word(found: re.Match[str]) -> str:
    word = found[0]
    scheme, mark, rest = word.partition("://")
    if not mark:
        return word
    if _HOOK_PATH.search(rest) or not _HOOK_LABELS.isdisjoint(rest.partition("/")[0].split(".")):
        return without_path(word)
    before, at, after = rest.rpartition("@")
    if at and not _GIT.fullmatch(before):  # a password may contain / and @
        rest = f"{HIDDEN}@{after}"
    path, mark, query = rest.partition("?")
    if mark:
        rest = f"{path}?{_QUERY_VALUE.sub(f'={HIDDEN}', query) if '=' in query else HIDDEN}"
    return f"{scheme}://{rest}"


@lru_cache(maxsize=4096)
def safe_arguments(cmdline: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line with the values of secret options hidden."""
    shown: list[str] = []
    hiding = False
    for argument in cmdline:
        name, equals, _ = argument.partition("=")
        if argument.startswith("-") or not hiding:
            # `--api-key a b` has several values.
            secret = is_secret_name(name)
            hiding = secret and not equals and argument.startswith("-")
            shown.append(f"{name}={HIDDEN}" if secret and equals else redacted(argument))
        else:
            shown.append(HIDDEN)
    return tuple(shown)
