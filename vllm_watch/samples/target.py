"""Names and addresses of a watched server."""

from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PORT_OF_SCHEME = {"http": 80, "https": 443}

WATCHER = "vllm-watch"
"""Reserved target name for problems of the watcher or of all targets."""

HOST_PREFIX = "host:"


def host_target(name: str) -> str:
    """Return the target name for GPU problems of a host. It has a colon, which a server's name cannot have."""
    return HOST_PREFIX + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One vLLM server. `name` is a unique slug. `group` is the pod's Deployment, for example."""

    name: str
    url: str  # without a trailing slash, never with credentials
    group: str = ""
    namespace: str = ""
    pod: str = ""
    node: str = ""
    gang: str = ""  # equal on ranks that step and restart together

    @property
    def address(self) -> str:
        """Return host:port, with "localhost" for loopback addresses. Empty for a pod, because another pod may get its address."""
        if self.pod:
            return ""
        host, _, port = self.host_and_port.rpartition(":")
        host = host.strip("[]").lower()
        return f"{'localhost' if host in LOOPBACK else host}:{port}"

    @property
    def place(self) -> tuple[str, ...]:
        """Return a value that is equal for targets of the same process."""
        if self.pod:
            return self.namespace, self.pod, self.host_and_port.rpartition(":")[2]
        return (self.address,)

    @property
    def host_and_port(self) -> str:
        """Return host:port, with brackets around an IPv6 address."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        port = parts.port or PORT_OF_SCHEME.get(parts.scheme, 80)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
