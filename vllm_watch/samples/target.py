"""Which server is watched: the identity that labels, paths and hooks carry."""

from dataclasses import dataclass

WATCHER = "vllm-watch"
"""The name under which the watcher reports what is wrong with itself or with what all targets share; no
target may have it."""

HOST_PREFIX = "host:"


def host_target(name: str) -> str:
    """The name under which what is wrong with a host's GPUs is reported; a colon is in no target's name."""
    return HOST_PREFIX + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One vLLM server. `name` is a slug and unique; `group` is what outlives a pod (Deployment, …)."""

    name: str
    url: str  # base URL without a trailing slash, never with credentials
    group: str = ""
    namespace: str = ""
    pod: str = ""
    node: str = ""
