"""The caller of a change over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The name of the token, and the address that sent it."""

    actor: str
    source: str
