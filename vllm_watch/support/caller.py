"""The caller that requests a change over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The name of the caller's token, and the caller's address."""

    actor: str
    source: str
