"""Large pieces that were freed are not kept, whatever small ones were made between them."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from vllm_watch.support import allocator

def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

if sys.argv[1] == "set":
    allocator.fix_threshold()
piece = bytearray(16 << 20)
del piece  # from now on glibc keeps what is as large
before, large, small, zeros = rss(), [], [], open("/dev/zero", "rb", buffering=0)
for _ in range(16):
    large.append(zeros.read(4 << 20))
    small.append(bytearray(100_000))
del large
print(rss() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has it")
def test_large_pieces_are_given_back() -> None:
    """Sixteen of 4 MB, with small ones between that stay; as glibc is by itself, most of it stays, too."""

    def left_mb(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)  # fmt: skip
        return int(done.stdout)

    assert left_mb("set") < 16 < left_mb("not")


SMALL = """
import sys
from vllm_watch.support import allocator

def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

pieces = [bytearray(2_000) for _ in range(20_000)]
pieces[:-1] = []  # the last one holds the heap's end
before = rss()
allocator.trim_heap()
if sys.argv[1] == "twice":
    pieces[:0] = [bytearray(2_000) for _ in range(20_000)]
    pieces[:-1] = []
    before = rss()
    allocator.TRIM_SECONDS = 1e9
    allocator.trim_heap()
print(before - rss())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has it")
def test_what_is_free_between_small_pieces_is_given_back_and_not_too_often() -> None:
    def given_back_mb(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", SMALL, how], capture_output=True, text=True, check=True)  # fmt: skip
        return int(done.stdout)

    assert given_back_mb("twice") == 0
    assert given_back_mb("once") > 20
