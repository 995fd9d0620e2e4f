"""Removed settings and their replacements."""

_LOCK = (
    "set restart.lock.kind to lease (in Kubernetes) or file (on one host); for several hosts without Kubernetes, "
    "let one vllm-watch watch them all"
)
_JSONL = (
    "set log.format to json, whose incident_* lines stdout gets, use GET /api/v1/events and GET /api/v1/journal, "
    "or use notifications.webhook"
)

_SIGNAL = (
    "use hooks.systemd for a unit, hooks.gate in a pod, hooks.docker for a container, else hooks.command with the "
    "supervisor's own command, such as sv restart vllm"
)

_DNS = (
    "use discovery.kubernetes for a headless Service, discovery.file_sd for addresses that a script or Consul writes, or targets "
    "for names that stay"
)

_KILL_DIR = "leave it out: the probe asks over HTTP, see deploy/gate/http.yaml"

REMEDIES = {
    "restart.lock.kind=etcd": _LOCK,
    "restart.lock.endpoints": _LOCK,
    "restart.lock.ca_file": _LOCK,
    "restart.lock.certificate_file": _LOCK,
    "restart.lock.key_file": _LOCK,
    "restart.freeze_calendar_file": "use restart.freezes, or let the program that fetched the file call vllm-watch pause",
    "notifications.jsonl": _JSONL,
    "hooks.signal": _SIGNAL,
    "hooks.gate.kill_dir": _KILL_DIR,
    "discovery.dns": _DNS,
}
"""Replacements by dotted path, without list indices. A path ends in `=VALUE` if only that value was
removed."""


def remedy(path: tuple[str | int, ...], value: object = None) -> str | None:
    """Return the replacement of a removed key or value, or None."""
    names = [key for key in path if isinstance(key, str)]
    for start in range(len(names)):
        dotted = ".".join(names[start:])
        if dotted in REMEDIES:
            return REMEDIES[dotted]
        if isinstance(value, str) and f"{dotted}={value}" in REMEDIES:
            return REMEDIES[f"{dotted}={value}"]
    return None
