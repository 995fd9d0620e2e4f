"""Results of checks: ok, problem, warning, or unknown."""

from dataclasses import dataclass

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """Its command if there is a single one."""

    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Only a PROBLEM stops a launch."""

    check: str
    status: str
    text: str
    cause: str | None = None
    """Slug of a problem or warning."""
    fixes: tuple[Fix, ...] = ()
