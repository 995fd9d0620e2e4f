"""What a check says: fine, a problem that is known, something to know, or not knowable from here."""

from dataclasses import dataclass

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do, and the command that does it; None: there is no one command."""

    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. Only a PROBLEM stops a launch."""

    check: str
    status: str
    text: str
    cause: str | None = None
    """Slug, of problems and warnings."""
    fixes: tuple[Fix, ...] = ()
