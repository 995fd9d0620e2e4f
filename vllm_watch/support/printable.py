"""Make foreign text safe for a terminal: escape sequences in it are shown, not executed."""


def printable(text: str) -> str:
    """Return the text with control characters, except newlines, escaped as in source code (``\\x1b``)."""
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
