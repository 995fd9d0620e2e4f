"""The restart hooks that can be configured: one list per kind, one model per kind."""

import json
import re
import shutil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from vllm_watch.settings.base import (
    FilePath,
    Name,
    Problem,
    Seconds,
    Sections,
    Settings,
    WebhookUrl,
    problem,
    problems,
    quoted,
)

_DOCKER_ANSWER_SECONDS = 10.0  # what Docker takes to start the container, once it has stopped
# systemd's own alphabet of names; one that begins with - would be an option.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?\.service")

PORT = "{port}"
"""In a unit's name: the port of the target that is restarted."""

# A kind that has a rollout, and a DNS subdomain: it becomes a path.
_WORKLOAD = re.compile(r"(deployment|statefulset|daemonset|leaderworkerset)/[a-z0-9][a-z0-9.-]*")


def _unit(value: str) -> str:
    if not _UNIT.fullmatch(value.replace(PORT, "0", 1)):
        remedy = (
            "write its whole name, such as vllm@8000.service, or vllm@{port}.service for every port"
        )
        raise problem(f"{quoted(value)} is not the name of a service unit", remedy)
    return value


def _workload(value: str) -> str:
    if value and not _WORKLOAD.fullmatch(value):
        remedy = "write deployment/NAME, statefulset/NAME, daemonset/NAME or leaderworkerset/NAME"
        raise problem(f"{quoted(value)} is not a workload", remedy)
    return value


def _too_short(key: str, seconds: float, more: float, timeout: float) -> Problem:
    cause = f"{seconds:g} leaves no time for what follows within timeout_seconds ({timeout:g})"
    remedy = f"set timeout_seconds to {seconds + more:g} or more"
    return Problem((key,), cause, remedy)


def _argv(value: tuple[str, ...]) -> tuple[str, ...]:
    program = value[0]
    if len(value) == 1 and len(program.split()) > 1 and shutil.which(program) is None:
        written = json.dumps(program.split())
        raise problem(
            f"{quoted(program)} is one word, and no program",
            f"write each word by itself: {written}",
        )
    return value


class HookSettings(Settings):
    """What every kind has."""

    name: Name
    """What `restart.hook` calls it: a slug, unique among all hooks."""

    timeout_seconds: Seconds = Field(60.0, le=3600)
    """How long one call may take; then it is ended with all that it started.
    Why: Asking a supervisor takes seconds; a shutdown that drains, a minute."""


class CommandHook(HookSettings):
    """A command, without a shell. It is told everything in its environment (`VLLM_WATCH_*`)."""

    argv: Annotated[tuple[str, ...], AfterValidator(_argv)] = Field(min_length=1, max_length=100)
    """The program (absolute path) and its arguments."""

    environment: tuple[str, ...] = Field(("PATH", "HOME", "LANG"), max_length=100)
    """Variables of vllm-watch's own environment that the command may see.
    Why: What else is there may be a secret."""

    relaunches: bool = True
    """Does the command itself see to it that the server runs again?
    Why: `systemctl restart` and its like do."""


class WebhookHook(HookSettings):
    """A POST of JSON, signed, to whatever can restart."""

    url: WebhookUrl
    """Where to send it."""

    secret_file: FilePath | None = None
    """File with the key of the HMAC-SHA256 signature; none: not signed."""

    retries: int = Field(3, ge=0, le=10)
    """How often a call that surely did nothing (refused, 429, 503) is sent again.
    Why: The same idempotency key goes with each."""


class GateHook(HookSettings):
    """An exec probe in the engine's container asks, and Kubernetes restarts it: no rights needed."""

    timeout_seconds: Seconds = Field(120.0, le=3600)
    """How long the gate says `kill`, at most: until the server has ended.
    Why: Kubernetes takes three failed probes (30 s by default) and a grace of 30 s."""


class SystemdHook(HookSettings):
    """A unit of the systemd of this host."""

    unit: Annotated[str, AfterValidator(_unit)] = Field(max_length=255)
    """Such as `vllm@8000.service`; of `vllm@{port}.service` each target has the unit of its own port. systemd is asked
    through `systemctl`."""

    user: bool = False
    """A unit of the user's own systemd instead of the system's.
    Why: Engines run as system units."""


class DockerHook(HookSettings):
    """A container of the Docker (or Podman) of this host."""

    container: str = Field(min_length=1, max_length=255)
    """Its name or id."""

    socket: FilePath = Path("/var/run/docker.sock")
    """The Engine API's socket.
    Why: Docker's own place."""

    stop_seconds: Seconds = Field(30.0, le=3600)
    """What Docker gives it from SIGTERM to SIGKILL.
    Why: vLLM ends in seconds; a hung engine never does."""

    @model_validator(mode="after")
    def _start_fits(self) -> "DockerHook":
        if self.stop_seconds + _DOCKER_ANSWER_SECONDS > self.timeout_seconds:
            wrong = _too_short("stop_seconds", self.stop_seconds, _DOCKER_ANSWER_SECONDS, self.timeout_seconds)  # fmt: skip
            raise problems([wrong])
        return self


class KubernetesHook(HookSettings):
    """The pod, through the API server: with rights of its own, see docs/hooks/kubernetes.md."""

    action: Literal["evict", "rollout_restart"] = "evict"
    """Evict the target's pod (PodDisruptionBudgets hold), or restart the workload's rollout.
    Why: Evicting touches one pod and asks the budget."""

    namespace: str = Field("", max_length=253)
    """Where the pod is.
    Default: the target's, else our own"""

    workload: Annotated[str, AfterValidator(_workload)] = Field("", max_length=300)
    """`deployment/NAME`, `statefulset/NAME`, `daemonset/NAME` or `leaderworkerset/NAME`, for
    `rollout_restart`."""

    state_outlives_pod: bool = False
    """Does `state_dir` lie on a volume that outlives the pod of vllm-watch? Only then may that pod itself
    be replaced.
    Why: With the journal the budget would be gone."""

    @model_validator(mode="after")
    def _has_workload(self) -> "KubernetesHook":
        if self.action == "rollout_restart" and not self.workload:
            remedy = "write deployment/NAME or statefulset/NAME"
            raise problems([Problem(("workload",), "is missing for rollout_restart", remedy)])
        return self


class HooksSettings(Sections):
    """How an engine can be restarted. None is called unless `restart.hook` names it."""

    command: tuple[CommandHook, ...] = Field((), max_length=1000)
    webhook: tuple[WebhookHook, ...] = Field((), max_length=1000)
    gate: tuple[GateHook, ...] = Field((), max_length=1000)
    systemd: tuple[SystemdHook, ...] = Field((), max_length=1000)
    docker: tuple[DockerHook, ...] = Field((), max_length=1000)
    kubernetes: tuple[KubernetesHook, ...] = Field((), max_length=1000)

    def by_name(self) -> dict[str, tuple[str, HookSettings]]:
        """Return each hook's kind and settings by its name; of a name that stands twice, the first."""
        found: dict[str, tuple[str, HookSettings]] = {}
        for kind in type(self).model_fields:
            for hook in getattr(self, kind):
                found.setdefault(hook.name, (kind, hook))
        return found
