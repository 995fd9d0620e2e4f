"""The Prometheus text format as prometheus_client writes it."""

from collections.abc import Mapping

_EXPONENT_FROM_DIGITS = 6  # with more integer digits prometheus_client writes 1.0e+06


def header(name: str, kind: str, text: str) -> list[str]:
    """Return the HELP and TYPE lines of a family."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def labels(pairs: Mapping[str, str]) -> str:
    """Return the labels, sorted by name."""
    if not pairs:
        return ""
    inside = ",".join(f'{key}="{_escaped(pairs[key])}"' for key in sorted(pairs))
    return "{" + inside + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """Format a number like Go, as prometheus_client does."""
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > _EXPONENT_FROM_DIGITS:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text
