"""How this process shares out its file descriptors, so that whoever wants many leaves the others some.

A shell gives 1,024. Connections to engines wait for their share; the page, Prometheus and health checks have theirs; the
rest is for the state file, logs, hooks and the GPU driver.
"""

import concurrent.futures.thread  # noqa: F401 - asyncio loads it when it ends, which needs a descriptor
import resource

import structlog

_log = structlog.get_logger()

WANTED = 65_536
"""Enough for tens of thousands of engines; some programs that hooks start walk through all that they could have."""

OWN = 64
"""State file, logs, sockets of the service manager, pipes of a hook, the driver: some 20, more for a moment."""

CALLERS_MAX = 512
"""Connections that are served."""

PER_TARGET = 2
"""`/metrics` and `/health` are asked at the same time."""


def raise_limit() -> None:
    """Raise the soft limit as far as the hard one lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """Return how many this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if soft == resource.RLIM_INFINITY else soft


def for_callers() -> int:
    """Return how many connections are served at the same time."""
    return max(1, min(CALLERS_MAX, limit() // 2))


def for_engines() -> int:
    """Return how many connections to engines are open at the same time."""
    return max(1, limit() - min(OWN, limit() // 4) - for_callers())


def say_if_few(targets: int) -> None:
    """Log a warning if targets must wait for each other's connections."""
    if targets * PER_TARGET > for_engines():
        _log.warning(
            "few_descriptors", limit=limit(), targets=targets,
            because=f"{for_engines()} connections to engines may be open, and {targets} targets want {PER_TARGET} each: "
            "they wait for each other, and none is kept open",
            remedy="raise the limit of open files (ulimit -n, LimitNOFILE=)",
        )  # fmt: skip
