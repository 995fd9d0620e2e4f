"""Identify a watched server in labels, paths and hooks."""

from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")

WATCHER = "vllm-watch"
"""Reserved target name, for the watcher's own problems and for problems shared by all targets."""

HOST_PREFIX = "host:"


def host_target(name: str) -> str:
    """Return the target name of a host's GPU problems. Its colon cannot occur in a real target's name."""
    return HOST_PREFIX + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One vLLM server. `name` is a unique slug; `group` outlives a pod (Deployment, …)."""

    name: str
    url: str  # without a trailing slash, never with credentials
    group: str = ""
    namespace: str = ""
    pod: str = ""
    node: str = ""
    gang: str = ""  # shared by ranks that step together; a restart restarts them all

    @property
    def address(self) -> str:
        """Return host:port, in which every loopback address is "localhost", or "" for a pod, because its address gets reused."""
        if self.pod:
            return ""
        host, _, port = self.host_and_port.rpartition(":")
        host = host.strip("[]").lower()
        return f"{'localhost' if host in LOOPBACK else host}:{port}"

    @property
    def place(self) -> tuple[str, ...]:
        """Two targets with the same place are one process."""
        if self.pod:
            return self.namespace, self.pod, self.host_and_port.rpartition(":")[2]
        return (self.address,)

    @property
    def host_and_port(self) -> str:
        """An IPv6 address has brackets, as in a scrape configuration."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
