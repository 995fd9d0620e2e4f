"""Who asks for a change over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A token's name, and the address that the connection came from."""

    actor: str
    source: str
