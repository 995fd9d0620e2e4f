"""Detectors' learnt state of one target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """State of one target, or of this host, as exported by its Watch."""

    target: str
    group: str
    saved_t: float
    state: Mapping[str, Any]
