"""Make glibc return large freed blocks to the system.

glibc returns a freed block only if the block exceeds a threshold. After that, glibc raises the
threshold to the block's size, up to 32 MB. Smaller blocks share the heap with small objects that
keep the heap from shrinking.
"""

import ctypes
import time

LARGE_BYTES = 128 << 10
"""glibc's initial threshold."""

TRIM_SECONDS = 2.0

_trimmed_monotonic_s = float("-inf")

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_ARENAS = 2  # with one per thread, each would be half empty


def fix_threshold() -> None:
    """Keep the threshold constant in this process."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def trim_heap() -> None:
    """Return free memory to the system, at most once per TRIM_SECONDS."""
    global _trimmed_monotonic_s  # noqa: PLW0603 - there is one heap
    now_s = time.monotonic()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and now_s - _trimmed_monotonic_s >= TRIM_SECONDS:
        _trimmed_monotonic_s = now_s
        trim(0)
