"""Which server is watched: the identity that labels, paths and hooks carry."""

from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")

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
    gang: str = ""  # what ranks that step together share; a restart is of all of them

    @property
    def address(self) -> str:
        """Host and port, the same for every way to write this host; "" for a pod, whose address another takes over."""
        if self.pod:
            return ""
        host, _, port = self.host_and_port.rpartition(":")
        host = host.strip("[]").lower()
        return f"{'localhost' if host in LOOPBACK else host}:{port}"

    @property
    def place(self) -> tuple[str, ...]:
        """Where its process listens: of two targets that have the same, both are of one process."""
        if self.pod:
            return self.namespace, self.pod, self.host_and_port.rpartition(":")[2]
        return (self.address,)

    @property
    def host_and_port(self) -> str:
        """Where it is reached, as a scrape configuration writes it: an IPv6 address in brackets."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
