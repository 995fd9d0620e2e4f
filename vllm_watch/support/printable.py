"""Text from elsewhere, as it may be shown: on a terminal an escape sequence does more than say something."""


def printable(text: str) -> str:
    """Return it with every control character but line ends as it is written in source: ``\\x1b``."""
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
