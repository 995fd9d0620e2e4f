"""The Prometheus text format as prometheus_client writes it: headers, labels, numbers."""

from collections.abc import Mapping

_EXPONENT_FROM_DIGITS = 6  # integer digits from which on prometheus_client writes 1.0e+06


def header(name: str, kind: str, text: str) -> list[str]:
    """The two comment lines before a family's samples."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def labels(pairs: Mapping[str, str]) -> str:
    """In the order of their names; nothing at all where there are none."""
    if not pairs:
        return ""
    inside = ",".join(f'{key}="{_escaped(pairs[key])}"' for key in sorted(pairs))
    return "{" + inside + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """As Go would write it, which is what prometheus_client imitates."""
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > _EXPONENT_FROM_DIGITS:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text
