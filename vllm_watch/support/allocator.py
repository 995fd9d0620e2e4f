"""Make the C library's allocator return freed large blocks to the system. glibc raises its threshold up to 32 MB with each, and then small objects keep the
heap of large bodies."""

import ctypes
import time

LARGE_BYTES = 128 << 10
"""glibc's initial threshold."""

TRIM_SECONDS = 2.0
"""One takes milliseconds for a heap of 100 MB."""

_trimmed_monotonic_s = float("-inf")

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_ARENAS = 2  # else each parsing thread leaves its own half empty


def fix_threshold() -> None:
    """Fix the threshold for this process, with glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def trim_heap() -> None:
    """Return free memory, with glibc, and unless done within TRIM_SECONDS."""
    global _trimmed_monotonic_s  # noqa: PLW0603 - there is one heap
    now_s = time.monotonic()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and now_s - _trimmed_monotonic_s >= TRIM_SECONDS:
        _trimmed_monotonic_s = now_s
        trim(0)
