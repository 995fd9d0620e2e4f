"""The results of checks."""

from dataclasses import dataclass

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """A remedy. `command` is None if no single command suffices."""

    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A result. Only a PROBLEM stops a launch."""

    check: str
    status: str
    text: str
    cause: str | None = None
    fixes: tuple[Fix, ...] = ()
