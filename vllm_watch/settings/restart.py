"""When an engine may be restarted, by what, and how it is seen whether that helped."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from vllm_watch.settings import windows as weekly
from vllm_watch.settings.base import (
    FilePath,
    HttpUrl,
    Name,
    Problem,
    Seconds,
    Sections,
    Settings,
    problem,
    problems,
    quoted,
)

HOOK_GRACE_SECONDS = 5.0
"""A hook that does not keep its own timeout is cut off this much later."""

Trigger = Literal["incident", "schedule", "alertmanager"]


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        raise problem(
            f"{quoted(value)} is no time zone", "write one such as Europe/Berlin"
        ) from None
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str):
        return value  # YAML has read a date already
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        remedy = "write it as 2026-12-24T08:00:00+01:00"
        raise problem(f"{quoted(value)} is no date and time", remedy) from None


def _with_zone(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _window(value: str) -> str:
    try:
        weekly.parse(value)
    except ValueError as error:
        remedy = "write DAYS HH:MM-HH:MM, such as Mon-Fri 22:00-04:00"
        raise problem(str(error), remedy) from None
    return value


def _cron(value: str) -> str:
    if value:
        if any(character.isdigit() for character in value.rsplit(maxsplit=1)[-1]):
            cause = f"{quoted(value)} numbers its weekdays, of which some programs begin with Sunday, others with Monday"
            raise problem(cause, "write their names: 0 4 * * sun")
        try:
            CronTrigger.from_crontab(value, timezone="UTC")
        except ValueError as error:
            remedy = "write five fields: minute hour day month weekday, such as 0 4 * * sun"
            raise problem(f"{quoted(value)} is no cron expression ({error})", remedy) from None
    return value


Cron = Annotated[str, Field(max_length=100), AfterValidator(_cron)]
WindowText = Annotated[str, AfterValidator(_window)]
Zone = Annotated[str, AfterValidator(_zone)]
Moment = Annotated[datetime, BeforeValidator(_moment), AfterValidator(_with_zone)]


class FreezeSettings(Settings):
    """A span of time in which nothing is restarted."""

    begin: Moment
    """Such as `2026-12-24T08:00:00+01:00`; without a zone UTC."""

    end: Moment
    """The first moment after it."""

    reason: str = Field("", max_length=200)
    """Shown with every refusal."""

    @model_validator(mode="after")
    def _ends_later(self) -> "FreezeSettings":
        if self.end <= self.begin:
            remedy = "write an end after its begin"
            raise problems([Problem(("end",), "is not after begin", remedy)])
        return self


class ScheduleSettings(Settings):
    """A restart at set times. One that a gate refuses waits for `misfire_seconds`, then is left out."""

    name: Name
    """What metrics and the journal call it: a slug."""

    cron: Cron = ""
    """Five fields, such as `0 4 * * sun`, in `restart.time_zone`."""

    interval_seconds: Seconds | None = Field(None, ge=600)
    """In place of `cron`: from one to the next."""

    jitter_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.0
    """Each run comes up to so much later, so that a fleet does not restart as one.
    Why: One server alone needs none."""

    misfire_seconds: Seconds = 3600.0
    """How late it may still begin when it could not at its time.
    Why: A window that has passed is not made up for at noon."""

    uptime_seconds_min: Annotated[float, Field(ge=0)] = 0.0
    """Only if the server runs at least so long.
    Why: A schedule without conditions means just that."""

    throughput_ratio_max: Annotated[float, Field(gt=0, le=1)] | None = None
    """Only if it does at most this share of what it did when fresh, at equal load."""

    @model_validator(mode="after")
    def _has_times(self) -> "ScheduleSettings":
        if bool(self.cron) == (self.interval_seconds is not None):
            remedy = "write either cron or interval_seconds"
            raise problems([Problem(("cron",), "has no times, or two kinds of them", remedy)])
        return self


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


class LockSettings(Settings):
    """Who may restart now, when several watchers could."""

    kind: Literal["none", "file", "lease", "etcd"] = "none"
    """`file`: among the watchers of one host; `lease`: a Kubernetes Lease; `etcd`.
    Why: One watcher needs none."""

    name: Name = "vllm-watch"
    """All that share a name share its slots.
    Why: One lock for all."""

    slots: int = Field(1, ge=1, le=100)
    """How many may hold it at once.
    Why: One at a time."""

    restarts_per_hour_max: Annotated[int, Field(ge=1, le=1000)] | None = 6
    """How many restarts all that share it may make in an hour, whatever asks for them: a share of your
    fleet. `null`: no limit.
    Why: One at a time, each watched for ten minutes, are six. When more fall ill, the cause is not in one
    of them."""

    ttl_seconds: Seconds = Field(300.0, ge=15, le=86400)
    """How long its holder may begin something after it last renewed it; after three times that it is free
    again. No hook may take longer.
    Why: Longer than any hook; what a dead watcher held is free after a quarter of an hour."""

    release_delay_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.0
    """How long after a restart the next one must wait.
    Why: The cooldown holds already."""

    path: FilePath | None = None
    """`file`: the folder of the locks."""

    namespace: str = Field("", max_length=253)
    """`lease`: where it is; none: our own."""

    endpoints: tuple[HttpUrl, ...] = Field((), max_length=20)
    """`etcd`: its URLs."""

    ca_file: FilePath | None = None
    """`etcd`: the certificate that signed etcd's; none: what the system trusts."""

    certificate_file: FilePath | None = None
    """`etcd`: our own certificate, for an etcd that asks for one."""

    key_file: FilePath | None = None
    """`etcd`: the key of `certificate_file`."""


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

    mode: Literal["off", "observe", "approve", "auto"] = "off"
    """`observe`: say what would be done; `approve`: a person confirms each; `auto`: act.
    Why: Trust is earned in that order."""

    hook: str = Field("", max_length=63)
    """Which of `hooks` restarts it."""

    triggers: tuple[Trigger, ...] = ("incident", "schedule", "alertmanager")
    """What may ask, beside people.
    Default: all three
    Why: Each goes through the same gates."""

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
    Why: When half of a group is ill at once the cause is seldom in one of them."""

    new_version_seconds: Annotated[float, Field(ge=0, le=7 * 86400)] = 3600.0
    """How long a new version of vllm-watch only looks on.
    Why: A bad release must not restart a fleet."""

    schedules: tuple[ScheduleSettings, ...] = Field((), max_length=50)
    blockers: BlockersSettings = BlockersSettings()
    lock: LockSettings = LockSettings()
    drain: DrainSettings = DrainSettings()
    verify: VerifySettings = VerifySettings()

    @property
    def protected(self) -> bool:
        """Is there anything that keeps two engines from being restarted at once?"""
        asks = bool(self.blockers.queries or self.blockers.alerts)
        return asks or self.lock.kind != "none" or self.peers == "none"


def unusable(
    restart: RestartSettings, hooks: Mapping[str, float], has_state_dir: bool
) -> list[tuple[tuple[str, ...], str, str]]:
    """Return what cannot be done as it is set: key, cause and remedy of each.

    `hooks` has the seconds that a call of each may take, by its name.
    """
    found: list[tuple[tuple[str, ...], str, str]] = []
    lock = restart.lock
    if restart.hook and restart.hook not in hooks:
        known = ", ".join(hooks) or "none is configured"
        found.append(
            (("hook",), f"{quoted(restart.hook)} is no hook", f"write the name of one: {known}")
        )
    if restart.mode in ("approve", "auto"):
        if not restart.hook:
            found.append((("hook",), "is missing", f"mode {restart.mode} needs the name of a hook"))
        if not has_state_dir:
            cause = f"{restart.mode} needs a journal on disk"
            found.append((("mode",), cause, "set state_dir, or take observe"))
    if restart.mode == "auto" and not restart.protected:
        remedy = "set blockers.queries or blockers.alerts, lock.kind, or peers: none"
        found.append(
            (("mode",), "auto needs something that keeps two from restarting at once", remedy)
        )
    asks = bool(restart.blockers.queries or restart.blockers.alerts)
    if asks and restart.blockers.prometheus_url is None:
        cause = "is missing: there is nobody to ask"
        found.append((("blockers", "prometheus_url"), cause, "write the URL of a Prometheus"))
    return found + _unusable_lock(lock, hooks.get(restart.hook, 0.0), has_state_dir)


def _unusable_lock(
    lock: LockSettings, hook_seconds: float, has_state_dir: bool
) -> list[tuple[tuple[str, ...], str, str]]:
    found: list[tuple[tuple[str, ...], str, str]] = []
    if lock.kind != "none" and lock.ttl_seconds < hook_seconds + HOOK_GRACE_SECONDS:
        cause = f"{lock.ttl_seconds:g} is less than a call of the hook may take ({hook_seconds:g} s and a little)"
        remedy = f"set it to {hook_seconds + HOOK_GRACE_SECONDS:g} or more, or the hook's timeout_seconds lower"
        found.append((("lock", "ttl_seconds"), cause, remedy))
    if (lock.certificate_file is None) != (lock.key_file is None):
        key = "key_file" if lock.key_file is None else "certificate_file"
        found.append((("lock", key), "is missing", "a certificate and its key go together"))
    if lock.kind == "etcd" and not lock.endpoints:
        found.append((("lock", "endpoints"), "is missing", "write at least one URL of etcd"))
    if lock.kind == "file" and lock.path is None and not has_state_dir:
        found.append(
            (("lock", "path"), "is missing", "name a folder that all watchers of the host share")
        )
    return found
