"""What the guard is told may be done, as data: made from the settings, with windows and freezes parsed."""

from dataclasses import dataclass
from datetime import UTC, tzinfo

from vllm_watch.settings.windows import Freeze, Window

MODES = ("off", "observe", "approve", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What holds for one target; see settings/restart.py for what each means and why."""

    mode: str  # one of MODES
    triggers: frozenset[str]
    windows: tuple[Window, ...] = ()  # none: any time
    deny_windows: tuple[Window, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    zone: tzinfo = UTC
    cooldown_seconds: float
    cooldown_load_times: float
    budget_per_hour: int
    budget_per_day: int
    blockers: tuple[str, ...] = ()  # names of what is asked
    has_lock: bool = False
    peers_matter: bool = True
    peers_healthy_ratio_min: float
    new_version_seconds: float
