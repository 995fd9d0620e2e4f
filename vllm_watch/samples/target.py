"""A watched server: the identity used in labels, paths and hooks."""

from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")

WATCHER = "vllm-watch"
"""Target name of the watcher's own problems and of those shared by all targets; no target may have it."""

HOST_PREFIX = "host:"


def host_target(name: str) -> str:
    """Return the target name of a host's GPU problems; target names have no colon."""
    return HOST_PREFIX + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`name` is a unique slug; `group` outlives a pod (Deployment, …)."""

    name: str
    url: str  # without a trailing slash, never with credentials
    group: str = ""
    namespace: str = ""
    pod: str = ""
    node: str = ""
    gang: str = ""  # shared by ranks that step together; a restart restarts them all

    @property
    def address(self) -> str:
        """Host and port, the same for all spellings of this host; "" for a pod, whose address gets reused."""
        if self.pod:
            return ""
        host, _, port = self.host_and_port.rpartition(":")
        host = host.strip("[]").lower()
        return f"{'localhost' if host in LOOPBACK else host}:{port}"

    @property
    def place(self) -> tuple[str, ...]:
        """Its listening address: two targets with the same one are one process."""
        if self.pod:
            return self.namespace, self.pod, self.host_and_port.rpartition(":")[2]
        return (self.address,)

    @property
    def host_and_port(self) -> str:
        """Host and port as in a scrape configuration: an IPv6 address in brackets."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
