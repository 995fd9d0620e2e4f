"""The lock that keeps several watchers from restarting at once."""

from typing import Annotated, Literal

from pydantic import Field

from vllm_watch.settings.base import FilePath, Name, Problem, Seconds, Settings

HOOK_GRACE_SECONDS = 5.0
"""A hook that does not keep its own timeout is cut off this much later."""


class LockSettings(Settings):
    """Who may restart now, when several watchers could."""

    kind: Literal["none", "file", "lease"] = "none"
    """`file`: among the watchers of one host; `lease`: a Kubernetes Lease.
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
    Why: One at a time, each watched for ten minutes, are six. When more become unhealthy, the cause is not in one
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

    def unusable(self, hook_seconds: float, has_state_dir: bool) -> list[Problem]:
        """Return what cannot work as it is set; `hook_seconds` is how long one call of the hook may take."""
        found: list[Problem] = []
        least = hook_seconds + HOOK_GRACE_SECONDS
        if self.kind != "none" and self.ttl_seconds < least:
            cause = f"{self.ttl_seconds:g} is less than a call of the hook may take ({hook_seconds:g} s and a little)"
            remedy = f"set it to {least:g} or more, or the hook's timeout_seconds lower"
            found.append(Problem(("lock", "ttl_seconds"), cause, remedy))
        if self.kind == "file" and self.path is None and not has_state_dir:
            remedy = "name a folder that all watchers of the host share"
            found.append(Problem(("lock", "path"), "is missing", remedy))
        return found
