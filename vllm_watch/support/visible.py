"""Make untrusted text safe to display on a terminal."""

_CONTROLS = (*range(32), *range(127, 160))
_FORMATS = (0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)  # fmt: skip
"""Zero-width characters, line separators and direction marks."""

_TAGS, _SURROGATES = range(0xE0000, 0xE0080), range(0xD800, 0xE000)
"""Invisible letters, and lone surrogates from JSON, which a terminal cannot encode."""

_IN_A_LINE = (
    {code: f"\\x{code:02x}" for code in _CONTROLS}
    | {code: f"\\u{code:04x}" for code in (*_FORMATS, *_SURROGATES)}
    | {code: f"\\U{code:08x}" for code in _TAGS}
)
_IN_LINES = {code: shown for code, shown in _IN_A_LINE.items() if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    """Return the text with control characters and newlines escaped (`\\x1b`)."""
    return text.translate(_IN_A_LINE)


def visible_lines(text: str) -> str:
    """Return the text with control characters, except newlines and tabs, escaped."""
    return text.translate(_IN_LINES)


def printable(text: str) -> str:
    """Return the text with all that is not printable, except newlines, escaped (``\\x1b``)."""
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
