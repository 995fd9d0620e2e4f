"""Define the results of checks."""

from dataclasses import dataclass

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """`command` is None if no single one does it."""

    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Only a PROBLEM stops a launch."""

    check: str
    status: str
    text: str
    cause: str | None = None
    fixes: tuple[Fix, ...] = ()
