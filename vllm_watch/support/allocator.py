"""The C library's allocator, told to give large pieces of memory back to the system as soon as they are free.

glibc learns from each large piece that is freed to keep the next one, up to 32 MB: after the first body of 4 MB all
bodies lie among small objects, and what is free between them stays with the process.
"""

import ctypes
import time

LARGE_BYTES = 128 << 10
"""glibc's own bound until it has learnt."""

TRIM_SECONDS = 2.0
"""At most so often what small objects left free is given back: it takes milliseconds of a heap of 100 MB."""

_trimmed_monotonic_s = float("-inf")

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_ARENAS = 2  # each thread that reads a body would have one of its own, and leave it half empty


def give_back_large_pieces() -> None:
    """Set it for this process; nothing where the C library is another."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_small_pieces() -> None:
    """What is free between small objects, after many of them went; soon after the last time, and elsewhere, nothing."""
    global _trimmed_monotonic_s  # noqa: PLW0603 - there is one heap
    now_s = time.monotonic()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and now_s - _trimmed_monotonic_s >= TRIM_SECONDS:
        _trimmed_monotonic_s = now_s
        trim(0)
