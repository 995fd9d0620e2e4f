"""Escape control sequences in untrusted text, so that a terminal does not execute them."""


def printable(text: str) -> str:
    """Return the text with control characters, except newlines, escaped (``\\x1b``)."""
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
