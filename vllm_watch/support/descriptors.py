"""Divide this process's file descriptors between engines, callers and the rest."""

import concurrent.futures.thread  # noqa: F401 - closing asyncio imports it, which needs a descriptor
import resource

import structlog

_log = structlog.get_logger()

WANTED = 65_536
"""This limit is enough for tens of thousands of engines. It is not higher, because some programs iterate over all possible descriptors."""

OWN = 64
"""Descriptors for state file, logs, hooks and the GPU driver, which need about 20."""

CALLERS_MAX = 512
PER_TARGET = 2
"""Connections per target. `/metrics` and `/health` are polled at the same time."""


def raise_limit() -> None:
    """Raise the soft limit to WANTED, or to the hard limit if that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """Return the soft limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if soft == resource.RLIM_INFINITY else soft


def for_callers() -> int:
    """Return how many connections to this daemon may be open."""
    return max(1, min(CALLERS_MAX, limit() // 2))


def for_engines() -> int:
    """Return how many connections to engines may be open."""
    return max(1, limit() - min(OWN, limit() // 4) - for_callers())


def warn_if_few(targets: int) -> None:
    """Log a warning if there are not enough connections for all targets."""
    if targets * PER_TARGET > for_engines():
        _log.warning(
            "few_descriptors", limit=limit(), targets=targets,
            because=f"{targets} targets need {PER_TARGET} connections each, but only {for_engines()} may be open: "
            "they wait for each other, and none is reused",
            remedy="raise the limit of open files (ulimit -n, LimitNOFILE=)",
        )  # fmt: skip
