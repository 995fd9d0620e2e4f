"""What is kept of incidents and watches, as it is handed to the store. Without a database: a watcher without a state
folder has none, and still hands such rows over when it reloads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """One incident as it was last told."""

    id: str
    target: str
    kind: str
    opened_t: float | None
    updated_t: float
    resolved_t: float | None
    event: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRow:
    """What one target's judgement needs to go on."""

    target: str
    group: str
    saved_t: float
    state: Mapping[str, Any]


def ended(row: IncidentRow, t: float, resolution: str) -> IncidentRow:
    """Return the incident as it ended at Unix time `t`."""
    end = {"t": t, "event": "resolved", "resolution": resolution, "restart_advised": False}
    return replace(row, updated_t=t, resolved_t=t, event={**row.event, **end})
