"""Learnt state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Exported state of one target, of a host or of the fleet."""

    target: str
    group: str
    saved_t: float
    state: Mapping[str, Any]
