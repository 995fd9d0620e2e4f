"""The settings of the lock."""

from typing import Annotated, Literal

from pydantic import Field

from vllm_watch.settings.base import FilePath, Name, Problem, Seconds, Settings

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
