"""Which server is watched: the identity that labels, paths and hooks carry."""

from dataclasses import dataclass

WATCHER = "vllm-watch"
"""The name under which the watcher reports what is wrong with itself or with what all targets share; no
target may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One vLLM server. `name` is a slug and unique; `group` is what outlives a pod (Deployment, …)."""

    name: str
    url: str  # base URL without a trailing slash, never with credentials
    group: str = ""
    namespace: str = ""
    pod: str = ""
    node: str = ""
