"""Check the variables with which vLLM does not start."""

from collections.abc import Iterator

from vllm_watch.preflight import flag_rules as rules
from vllm_watch.preflight.facts import Facts
from vllm_watch.preflight.findings import Finding, Fix

_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
_LOG_FLAGS = {"log-level", "log-config-file", "logging-config"}
_METHODS = ("fork", "spawn")
_METHODS_CHECKED_SINCE = (0, 11, 0)


def check_environment(facts: Facts) -> Iterator[Finding]:
    """Find variables with invalid values."""
    environment = facts.command.environment
    port = environment.get("VLLM_PORT")
    if port is not None and not rules.is_integer(port):
        if "://" in port:
            fix = Fix("set enableServiceLinks: false in the pod's spec, or rename the service: for a service named vllm, Kubernetes sets it")  # fmt: skip
        else:
            fix = Fix("set a number, or unset it")
        yield from _finding(facts, f"VLLM_PORT={port} is not a port number", fix)
    method = environment.get("VLLM_WORKER_MULTIPROC_METHOD")
    if method is not None and method not in _METHODS:
        yield from _finding(facts, f"VLLM_WORKER_MULTIPROC_METHOD={method} is neither fork nor spawn", Fix("set spawn, or unset it"), _METHODS_CHECKED_SINCE)  # fmt: skip
    level = environment.get("VLLM_LOGGING_LEVEL")
    logs = environment.get("VLLM_CONFIGURE_LOGGING", "1") == "1" and "VLLM_LOGGING_CONFIG_PATH" not in environment and not _LOG_FLAGS & facts.command.flags.keys()  # fmt: skip
    if level and logs and level.upper() not in _LEVELS:
        yield from _finding(facts, f"VLLM_LOGGING_LEVEL={level} is not a level of Python's logging", Fix("set DEBUG, INFO, WARNING or ERROR"))  # fmt: skip


def _finding(facts: Facts, text: str, fix: Fix, since: rules.Numbers | None = None) -> Iterator[Finding]:  # fmt: skip
    status = rules.status(facts, since=since)
    if status is not None:
        yield Finding("environment", status, text, "wrong_variable", (fix,))
