"""The caller of a change over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A token's name, and the address of the connection."""

    actor: str
    source: str
