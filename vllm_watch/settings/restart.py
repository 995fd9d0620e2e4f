"""When an engine may be restarted, by what, and how it is seen whether that helped."""

from collections.abc import Mapping
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from vllm_watch.settings.base import FilePath, HttpUrl, Problem, Seconds, Sections, Settings, quoted
from vllm_watch.settings.lock import LockSettings
from vllm_watch.settings.restart_times import FreezeSettings, ScheduleSettings, WindowText, Zone

Mode = Literal["off", "observe", "approve", "auto"]
Trigger = Literal["incident", "schedule", "alertmanager"]


class BlockersSettings(Settings):
    """What must agree before an act; an answer that cannot be had blocks."""

    prometheus_url: HttpUrl | None = None
    """A Prometheus to ask."""

    token_file: FilePath | None = None
    """File with the bearer token for it."""

    queries: tuple[str, ...] = Field((), max_length=20)
    """PromQL; a query that returns anything blocks."""

    alerts: str = Field("", max_length=500)
    """Regular expression; a firing alert whose whole name matches blocks."""

    timeout_seconds: Seconds = Field(5.0, le=60)
    """For each question.
    Why: A Prometheus that is slower has other troubles, and blocks."""

    @property
    def any(self) -> bool:
        """Is there anything to ask?"""
        return bool(self.queries or self.alerts)


class DrainSettings(Settings):
    """Letting requests finish before the restart. A server that makes no progress is not waited for."""

    enabled: bool = True
    """Wait at all?
    Why: It costs a minute and saves requests."""

    deadline_seconds: Seconds = Field(60.0, le=3600)
    """The longest wait for running and waiting to be zero.
    Why: With the hook's own time it must fit the termination grace."""


class VerifySettings(Settings):
    """How it is seen whether a restart helped."""

    start_seconds: Seconds = Field(1800.0, le=4 * 3600)
    """The longest a start may take where none was seen yet; else twice the longest seen, and 3 minutes at
    least.
    Why: Large models load for 10 to 20 minutes."""

    settle_seconds: Seconds = Field(300.0, le=4 * 3600)
    """How long after the first tokens throughput may take to be as when fresh.
    Why: Caches are cold and the queue is long right after a start."""


class RestartSettings(Sections):
    """Restarting engines: off unless told otherwise. Each key can be set again at a target."""

    mode: Mode = "off"
    """`observe`: say what would be done; `approve`: a person confirms each; `auto`: act.
    Why: Trust is earned in that order."""

    hook: str = Field("", max_length=63)
    """Which of `hooks` restarts it."""

    triggers: tuple[Trigger, ...] = ("incident", "schedule", "alertmanager")
    """What may ask, beside people.
    Default: all three
    Why: Each goes through the same checks."""

    time_zone: Zone = "UTC"
    """Of windows and schedules.
    Why: The one zone that never changes its clocks."""

    windows: tuple[WindowText, ...] = Field((), max_length=50)
    """When it may happen: `Mon-Fri 01:00-05:00`; none: any time, but for what is no emergency."""

    deny_windows: tuple[WindowText, ...] = Field((), max_length=50)
    """When it may not."""

    freezes: tuple[FreezeSettings, ...] = Field((), max_length=200)
    cooldown_seconds: Seconds = 1800.0
    """From one restart in a group to the next.
    Why: Less than that shows nothing about whether the last one helped."""

    cooldown_load_times: Annotated[float, Field(ge=0, le=100)] = 2.0
    """... and at least so many times what this engine needs to start.
    Why: One to load, one to show what it does."""

    budget_per_hour: int = Field(1, ge=0, le=100)
    """Restarts of a group in an hour.
    Why: A second within an hour shows that the first was no cure."""

    budget_per_day: int = Field(3, ge=0, le=1000)
    """Restarts of a group in a day.
    Why: What needs more is not cured by restarts."""

    peers: Literal["watched", "none"] = "watched"
    """`watched`: the group's other targets of this watcher must be healthy enough; `none`: you say that
    there are none, or that they do not matter.
    Why: Who has no peers, or none that matter, must say so before anything acts by itself."""

    peers_healthy_ratio_min: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The share of the group that must be healthy without the one restarted.
    Why: When half of a group is unhealthy at once the cause is seldom in one of them."""

    new_version_seconds: Annotated[float, Field(ge=0, le=7 * 86400)] = 3600.0
    """How long a new version of vllm-watch only looks on.
    Why: A bad release must not restart a fleet."""

    schedules: tuple[ScheduleSettings, ...] = Field((), max_length=50)
    blockers: BlockersSettings = BlockersSettings()
    lock: LockSettings = LockSettings()
    drain: DrainSettings = DrainSettings()
    verify: VerifySettings = VerifySettings()

    @property
    def zone(self) -> ZoneInfo:
        """The zone of windows and schedules."""
        return ZoneInfo(self.time_zone)

    @property
    def protected(self) -> bool:
        """Is there anything that keeps two engines from being restarted at once?"""
        return self.blockers.any or self.lock.kind != "none" or self.peers == "none"

    def unusable(self, hooks: Mapping[str, float], has_state_dir: bool) -> list[Problem]:
        """Return what cannot work as it is set; `hooks`: the seconds that a call of each may take, by name."""
        found: list[Problem] = []
        if self.hook and self.hook not in hooks:
            known = ", ".join(hooks) or "none is configured"
            cause = f"{quoted(self.hook)} is not a hook"
            found.append(Problem(("hook",), cause, f"write the name of one: {known}"))
        if self.mode in ("approve", "auto"):
            if not self.hook:
                remedy = f"mode {self.mode} needs the name of a hook"
                found.append(Problem(("hook",), "is missing", remedy))
            if not has_state_dir:
                cause = f"{self.mode} needs a journal on disk"
                found.append(Problem(("mode",), cause, "set state_dir, or take observe"))
        if self.mode == "auto" and not self.protected:
            cause = "auto needs something that keeps two from restarting at once"
            remedy = "set blockers.queries or blockers.alerts, lock.kind, or peers: none"
            found.append(Problem(("mode",), cause, remedy))
        if self.blockers.any and self.blockers.prometheus_url is None:
            cause, remedy = "is missing: there is nobody to ask", "write the URL of a Prometheus"
            found.append(Problem(("blockers", "prometheus_url"), cause, remedy))
        return found + self.lock.unusable(hooks.get(self.hook, 0.0), has_state_dir)
