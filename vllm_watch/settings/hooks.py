"""The settings of restart hooks."""

import json
import re
import shutil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from vllm_watch.settings.base import (
    FilePath,
    Name,
    Seconds,
    Sections,
    Settings,
    WebhookUrl,
    matching,
    problem,
    quoted,
)

_DOCKER_ANSWER_SECONDS = 10.0  # for Docker to start the container after the stop
# Names of systemd units, but not of templates (`vllm@.service`). A leading - would begin an option.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?\.service")

PORT = "{port}"
"""Placeholder in a unit's name for the target's port."""

# KIND/NAME: a kind that has rollouts, and a DNS subdomain. Both become parts of a URL.
_WORKLOAD = r"((deployment|statefulset|daemonset|leaderworkerset)/[a-z0-9][a-z0-9.-]*)?"


def _unit(value: str) -> str:
    if not _UNIT.fullmatch(value.replace(PORT, "0", 1)):
        remedy = (
            "write its whole name, such as vllm@8000.service, or vllm@{port}.service for every port"
        )
        raise problem(f"{quoted(value)} is not the name of a service unit", remedy)
    return value


def _argv(value: tuple[str, ...]) -> tuple[str, ...]:
    program = value[0]
    if len(value) == 1 and len(program.split()) > 1 and shutil.which(program) is None:
        written = json.dumps(program.split())
        raise problem(
            f"{quoted(program)} is one word, not a program", f"split it into words: {written}"
        )
    return value


class HookSettings(Settings):
    """The keys that every kind of hook has."""

    name: Name
    """Name of the hook in `restart.hook`: a slug, unique among all hooks."""

    timeout_seconds: Seconds = Field(60.0, le=3600)
    """Timeout of one call. After the timeout, the call and all its processes are ended.
    Why: A supervisor answers in seconds; a shutdown that drains takes a minute."""


class CommandHook(HookSettings):
    """A command, run without a shell. Its environment contains the data of the restart (`VLLM_WATCH_*`)."""

    argv: Annotated[tuple[str, ...], AfterValidator(_argv)] = Field(min_length=1, max_length=100)
    """The program (absolute path) and its arguments."""

    environment: tuple[str, ...] = Field(("PATH", "HOME", "LANG"), max_length=100)
    """Variables of vllm-watch's own environment that are passed to the command.
    Why: Other variables may be secrets."""

    relaunches: bool = True
    """Whether the command also starts the server again.
    Why: Most commands do, such as `systemctl restart`."""


class WebhookHook(HookSettings):
    """A signed JSON POST to any service that can restart the engine."""

    url: WebhookUrl
    """The URL to call."""

    secret_file: FilePath | None = None
    """File with the key of the HMAC-SHA256 signature; unset: unsigned."""

    retries: int = Field(3, ge=0, le=10)
    """Retries of a call that certainly had no effect (connection refused, 429, 503).
    Why: All tries share one idempotency key."""


class GateHook(HookSettings):
    """Restart by the container's exec probe, which polls vllm-watch and fails on the answer
    `kill`. Kubernetes then restarts the container. vllm-watch needs no rights."""

    timeout_seconds: Seconds = Field(120.0, le=3600)
    """Until the server ends, probes get the answer `kill` for at most this long.
    Why: Kubernetes
    needs three failed probes (30 s by default) and a grace period of 30 s."""


class SystemdHook(HookSettings):
    """A systemd unit on this host."""

    unit: Annotated[str, AfterValidator(_unit)] = Field(max_length=255)
    """Name of the unit to restart with `systemctl`, such as `vllm@8000.service`. In
    `vllm@{port}.service`, `{port}` becomes the target's port."""

    user: bool = False
    """Whether it is a user unit (`systemctl --user`).
    Why: Engines usually run as system units."""


class DockerHook(HookSettings):
    """A Docker or Podman container on this host."""

    container: str = Field(min_length=1, max_length=255)
    """Name or ID of the container."""

    socket: FilePath = Path("/var/run/docker.sock")
    """The socket of the Engine API.
    Why: This is Docker's default."""

    stop_seconds: Seconds = Field(30.0, le=3600)
    """Time from Docker's SIGTERM to its SIGKILL.
    Why: A healthy vLLM ends in seconds; a hung engine never does."""

    @model_validator(mode="after")
    def _start_fits(self) -> "DockerHook":
        least = self.stop_seconds + _DOCKER_ANSWER_SECONDS
        if least > self.timeout_seconds:
            cause = f"{self.stop_seconds:g} leaves no time for the start within timeout_seconds ({self.timeout_seconds:g})"
            raise problem(cause, f"set timeout_seconds to {least:g} or more", "stop_seconds")
        return self


class KubernetesHook(HookSettings):
    """Restart of the pod through the API server. RBAC rights are needed: docs/hooks/kubernetes.md."""

    action: Literal["evict", "rollout_restart"] = "evict"
    """Evict the target's pod (within PodDisruptionBudgets), or restart the workload's rollout.
    Why: An eviction affects one pod and respects the budget."""

    namespace: str = Field("", max_length=253)
    """Namespace of the pod.
    Default: the target's namespace, else vllm-watch's"""

    workload: Annotated[str, matching(
        _WORKLOAD, "a workload", "write deployment/NAME, statefulset/NAME, daemonset/NAME or leaderworkerset/NAME",
    )] = Field("", max_length=300)  # fmt: skip
    """`deployment/NAME`, `statefulset/NAME`, `daemonset/NAME` or `leaderworkerset/NAME`, for
    `rollout_restart`."""

    state_outlives_pod: bool = False
    """Whether `state_dir` is on a volume that outlives vllm-watch's own pod. Otherwise, no restart
    may replace that pod.
    Why: Without the journal, the restart budget would be lost."""

    @model_validator(mode="after")
    def _has_workload(self) -> "KubernetesHook":
        if self.action == "rollout_restart" and not self.workload:
            remedy = "write deployment/NAME or statefulset/NAME"
            raise problem("is missing for rollout_restart", remedy, "workload")
        return self


class HooksSettings(Sections):
    """Ways to restart an engine. A hook is called only if `restart.hook` names it."""

    command: tuple[CommandHook, ...] = Field((), max_length=1000)
    webhook: tuple[WebhookHook, ...] = Field((), max_length=1000)
    gate: tuple[GateHook, ...] = Field((), max_length=1000)
    systemd: tuple[SystemdHook, ...] = Field((), max_length=1000)
    docker: tuple[DockerHook, ...] = Field((), max_length=1000)
    kubernetes: tuple[KubernetesHook, ...] = Field((), max_length=1000)

    def by_name(self) -> dict[str, tuple[str, HookSettings]]:
        found: dict[str, tuple[str, HookSettings]] = {}
        for kind in type(self).model_fields:
            for hook in getattr(self, kind):
                found.setdefault(hook.name, (kind, hook))
        return found
