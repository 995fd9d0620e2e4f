"""Settings of restarts: triggers, checks, lock, hook, drain and verification."""

from collections.abc import Mapping
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from vllm_watch.settings.base import (
    FilePath,
    HttpUrl,
    Name,
    Problem,
    Seconds,
    Sections,
    Settings,
    quoted,
)
from vllm_watch.settings.restart_times import FreezeSettings, ScheduleSettings, WindowText, Zone

Mode = Literal["off", "observe", "approve", "auto"]
Trigger = Literal["incident", "schedule", "alertmanager"]


HOOK_GRACE_SECONDS = 5.0
"""A hook is cancelled this long after its own timeout."""


class LockSettings(Settings):
    """A lock shared by several watchers, so that only one restarts at a time."""

    kind: Literal["none", "file", "lease"] = "none"
    """`file`: shared by the watchers of one host; `lease`: a Kubernetes Lease.
    Why: A single watcher needs no lock."""

    name: Name = "vllm-watch"
    """Name of the lock. Watchers with the same name share its slots.
    Why: With this default, all watchers share one lock."""

    slots: int = Field(1, ge=1, le=100)
    """Number of concurrent holders.
    Why: One restart at a time is safest."""

    restarts_per_hour_max: Annotated[int, Field(ge=1, le=1000)] | None = 6
    """Maximum restarts per hour by all watchers that share the lock; `null`: no limit.
    Why: If each restart takes ten minutes, six fit into an hour."""

    ttl_seconds: Seconds = Field(300.0, ge=15, le=86400)
    """Time within which the holder must renew the lock. After three times this period, others may
    take the lock. The period must exceed the hook's timeout.
    Why: Hooks take less time, and a dead watcher's lock is free after a quarter of an hour."""

    release_delay_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.0
    """How long the lock stays taken after a restart.
    Why: The cooldown already separates restarts."""

    path: FilePath | None = None
    """Folder of the locks of kind `file`."""

    namespace: str = Field("", max_length=253)
    """Namespace of the Lease; unset: vllm-watch's namespace."""

    def unusable(self, hook_seconds: float, has_state_dir: bool) -> list[Problem]:
        found: list[Problem] = []
        least = hook_seconds + HOOK_GRACE_SECONDS
        if self.kind != "none" and self.ttl_seconds < least:
            cause = f"{self.ttl_seconds:g} is too short: one call of the hook may take {least:g} s"
            remedy = f"set it to {least:g} or more, or lower the hook's timeout_seconds"
            found.append(Problem(("lock", "ttl_seconds"), cause, remedy))
        if self.kind == "file" and self.path is None and not has_state_dir:
            remedy = "name a folder that all watchers of the host share"
            found.append(Problem(("lock", "path"), "is missing", remedy))
        return found


class BlockersSettings(Settings):
    """Prometheus queries and alerts that block a restart. An unanswered query also blocks restarts."""

    prometheus_url: HttpUrl | None = None
    """URL of the Prometheus server."""

    token_file: FilePath | None = None
    """File with the bearer token for Prometheus."""

    queries: tuple[str, ...] = Field((), max_length=20)
    """PromQL queries; any result blocks the restart."""

    alerts: str = Field("", max_length=500)
    """Regular expression for whole alert names. A matching alert that fires blocks the restart."""

    timeout_seconds: Seconds = Field(5.0, le=60)
    """Timeout of each query.
    Why: A slower Prometheus has a problem itself."""

    @property
    def any(self) -> bool:
        return bool(self.queries or self.alerts)


class DrainSettings(Settings):
    """Requests can finish before a restart. A server that makes no progress is restarted at once."""

    enabled: bool = True
    """Whether to let requests finish.
    Why: Draining costs a minute and saves requests."""

    deadline_seconds: Seconds = Field(60.0, le=3600)
    """All requests must finish within this time.
    Why: The drain and the hook must both fit into the termination grace period."""


class VerifySettings(Settings):
    """Verification that a restart helped."""

    start_seconds: Seconds = Field(1800.0, le=4 * 3600)
    """Timeout of the first start. Later starts may take twice the longest measured start, and at
    least 3 minutes.
    Why: Large models load for 10 to 20 minutes."""

    settle_seconds: Seconds = Field(300.0, le=4 * 3600)
    """Within this time after the first tokens, throughput must reach that of a freshly started
    engine.
    Why: Right after a start, caches are cold and the queue is long."""


class RestartSettings(Sections):
    """Restarts of engines: off by default. A target can override each key."""

    mode: Mode = "off"
    """`off`: no restarts; `observe`: only report would-be restarts; `approve`: an operator confirms each; `auto`: restart.
    Why: Restarts must be enabled explicitly."""

    hook: str = Field("", max_length=63)
    """Name of one of `hooks`."""

    triggers: tuple[Trigger, ...] = ("incident", "schedule", "alertmanager")
    """Automatic triggers; operators can always request a restart.
    Default: all three
    Why: All pass the same checks."""

    time_zone: Zone = "UTC"
    """Time zone of windows and schedules.
    Why: UTC has no DST."""

    windows: tuple[WindowText, ...] = Field((), max_length=50)
    """Allowed times, such as `Mon-Fri 01:00-05:00`; empty: any time. Automatic restarts for
    non-urgent incidents always need a window."""

    deny_windows: tuple[WindowText, ...] = Field((), max_length=50)
    """Times when restarts are forbidden."""

    freezes: tuple[FreezeSettings, ...] = Field((), max_length=200)
    cooldown_seconds: Seconds = 1800.0
    """Minimum time between two restarts in a group.
    Why: The effect of a restart is not known earlier."""

    cooldown_load_times: Annotated[float, Field(ge=0, le=100)] = 2.0
    """Minimum cooldown, as a multiple of the engine's start time.
    Why: The engine needs one start time to load, and the same time to prove itself."""

    budget_per_hour: int = Field(1, ge=0, le=100)
    """Maximum restarts of a group per hour.
    Why: If a second restart is needed within an hour, the first did not help."""

    budget_per_day: int = Field(3, ge=0, le=1000)
    """Maximum restarts of a group per day.
    Why: More restarts do not cure a fault."""

    peers: Literal["watched", "none"] = "watched"
    """`watched`: enough other targets of the group must be healthy; `none`: others are not checked.
    Why: Restarting without peers needs an explicit decision."""

    peers_healthy_ratio_min: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum healthy share of the group. The restarted target counts as unhealthy.
    Why: If half of a group is unhealthy, the cause is seldom in one engine."""

    new_version_seconds: Annotated[float, Field(ge=0, le=7 * 86400)] = 3600.0
    """A new version of vllm-watch restarts nothing for this long.
    Why: A bad release must not restart a fleet."""

    schedules: tuple[ScheduleSettings, ...] = Field((), max_length=50)
    blockers: BlockersSettings = BlockersSettings()
    lock: LockSettings = LockSettings()
    drain: DrainSettings = DrainSettings()
    verify: VerifySettings = VerifySettings()

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    @property
    def protected(self) -> bool:
        """True if something prevents two restarts at once, or if `peers: none` allows them."""
        return self.blockers.any or self.lock.kind != "none" or self.peers == "none"

    def unusable(self, hooks: Mapping[str, float], has_state_dir: bool) -> list[Problem]:
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
                found.append(Problem(("mode",), cause, "set state_dir, or use observe"))
        if self.mode == "auto" and not self.protected:
            cause = "auto needs a guard against two restarts at once"
            remedy = "set blockers.queries or blockers.alerts, lock.kind, or peers: none"
            found.append(Problem(("mode",), cause, remedy))
        if self.blockers.any and self.blockers.prometheus_url is None:
            cause = "is missing: queries and alerts need it"
            remedy = "write the URL of a Prometheus"
            found.append(Problem(("blockers", "prometheus_url"), cause, remedy))
        return found + self.lock.unusable(hooks.get(self.hook, 0.0), has_state_dir)
