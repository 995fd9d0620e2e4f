"""Access to the HTTP API: host names and tokens."""

import re
from typing import Literal

from pydantic import Field, field_validator

from vllm_watch.settings.base import FilePath, Name, Problem, Sections, Settings, problems, quoted

Right = Literal["restart", "approve", "silence", "pause", "alertmanager", "reload", "notify"]
RIGHTS: tuple[Right, ...] = (
    "restart",
    "approve",
    "silence",
    "pause",
    "alertmanager",
    "reload",
    "notify",
)
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


class TokenSettings(Settings):
    """A bearer token for one person or program. The journal shows its `name`."""

    name: Name
    """The owner's name: a unique slug."""

    file: FilePath
    """File with the token (at least 16 characters), reread when it changes. It must be readable
    only by vllm-watch."""

    may: tuple[Right, ...] = RIGHTS
    """Rights of the token.
    Default: all
    Why: People need all rights; a program usually needs only one."""


class ApiSettings(Sections):
    """Access to the HTTP API. Endpoints that change something exist only if tokens are configured."""

    hosts: tuple[str, ...] = Field((), max_length=100)
    """Host names accepted in requests, besides loopback names and IP addresses. Unset: any name, if `listen` is a network address.
    Why: This prevents DNS rebinding."""

    public: bool = False
    """Serve `/public`: targets' names, state and uptime, without addresses and evidence.
    Why: The status page shows more than users may see."""

    tokens: tuple[TokenSettings, ...] = Field((), max_length=100)

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        found = [
            Problem((number,), f"{quoted(host)} is not a host name", "write it without scheme and port")
            for number, host in enumerate(hosts)
            if not _HOST.fullmatch(host)
        ]  # fmt: skip
        if found:
            raise problems(found)
        return hosts

    @field_validator("tokens")
    @classmethod
    def _unique(cls, tokens: tuple[TokenSettings, ...]) -> tuple[TokenSettings, ...]:
        names = [token.name for token in tokens]
        found = [
            Problem((number, "name"), f"{quoted(name)} is used twice", "give each its own name")
            for number, name in enumerate(names)
            if name in names[:number]
        ]
        if found:
            raise problems(found)
        return tokens
