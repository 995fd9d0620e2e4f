"""What one target's judgement needs to go on. Without a database: a watcher without a state folder has none, and still
hands this over when it reloads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Of one target, or of this host, as its Watch exports it."""

    target: str
    group: str
    saved_t: float  # Unix seconds
    state: Mapping[str, Any]
