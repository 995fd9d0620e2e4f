"""The caller of a change over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The name of a token, and the address that used it."""

    actor: str
    source: str
