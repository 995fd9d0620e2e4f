"""What strangers wrote, made fit to be looked at: nothing of it moves a cursor, turns the direction of writing or hides.

Engines, logs, pods and processes name things as they like; a terminal does what such a name says.
"""

_CONTROLS = (*range(32), *range(127, 160))
_FORMATS = (0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)  # fmt: skip
"""Zero-width characters, line separators, and those that turn the direction of writing."""

_TAGS, _SURROGATES = range(0xE0000, 0xE0080), range(0xD800, 0xE000)
"""Letters that nobody sees; halves of characters, which JSON can name and no terminal can be sent."""

_IN_A_LINE = (
    {code: f"\\x{code:02x}" for code in _CONTROLS}
    | {code: f"\\u{code:04x}" for code in (*_FORMATS, *_SURROGATES)}
    | {code: f"\\U{code:08x}" for code in _TAGS}
)
_IN_LINES = {code: shown for code, shown in _IN_A_LINE.items() if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    """Return it as one line in which each control character shows as its escape: `\\x1b`."""
    return text.translate(_IN_A_LINE)


def visible_lines(text: str) -> str:
    """The same for text of several lines: line feeds and tabs stay."""
    return text.translate(_IN_LINES)
