"""Results of checks: ok, problem, warning, or unknown."""

from dataclasses import dataclass

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """An instruction, with its command if there is a single one."""

    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. Only a PROBLEM stops a launch."""

    check: str
    status: str
    text: str
    cause: str | None = None
    """Slug of a problem or warning."""
    fixes: tuple[Fix, ...] = ()
