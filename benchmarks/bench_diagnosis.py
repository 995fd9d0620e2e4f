"""How much CPU a large log takes to diagnose, and how much memory, against a plain loop over its lines.

Three logs: a server that runs and logs requests; one that warns with every line; and, the worst there
is and without a bound, one of which no two lines are alike. The aim for 200 MB is 5 s and 100 MB;
on a machine that others use too the ratio to the plain loop is what is held.

Run: python benchmarks/bench_diagnosis.py [--mb 200]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

RATIO_MAX, PEAK_MB_MAX = 6.0, 100.0  # a plain loop over 200 MB takes 0.5 to 0.7 s
RUNS = 3  # the quietest of each counts: what else runs only adds

_INFO = "(APIServer pid=1) INFO 11-21 03:{m:02}:{s:02} [loggers.py:127] Engine 000: Avg prompt throughput: {p}.3 tokens/s, Avg generation throughput: {g}.7 tokens/s, Running: {r} reqs, Waiting: 0 reqs, GPU KV cache usage: {k}.1%, Prefix cache hit rate: 9.5%\n"
_ACCESS = '(APIServer pid=1) INFO:     10.0.{a}.{b}:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
_WARNING = "(Worker pid=2) WARNING 11-21 03:{m:02}:{s:02} [scheduler.py:{n}] Request cmpl-{n:032x} is preempted, {n} tokens are computed again\n"
_END = "(EngineCore pid=3) ERROR 11-21 04:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.27 GiB. GPU 0 has a total capacity of 79.33 GiB of which 109.81 MiB is free.\n"


def _running() -> Iterator[str]:
    n = 0
    while True:
        n += 1
        yield _ACCESS.format(a=n % 256, b=n // 7 % 256, port=1024 + n % 60000)
        if n % 50 == 0:
            yield _INFO.format(m=n % 60, s=n // 60 % 60, p=n % 999, g=n % 777, r=n % 99, k=n % 100)


def _warning() -> Iterator[str]:
    n = 0
    while True:
        n += 1
        yield _WARNING.format(m=n % 60, s=n // 60 % 60, n=n)


def _diverse() -> Iterator[str]:
    words = [
        "token",
        "not",
        "error",
        "free",
        "world",
        "list",
        "river",
        "stone",
        "ghost",
        "hotel",
        "yellow",
        "kitchen",
        "motor",
    ]
    n = 0
    while True:
        n += 1
        picked = " ".join(words[n // 13**k % 13] for k in range(6))
        yield f"INFO 11-21 03:{n % 60:02}:00 [plugin.py:7] {picked} {words[n * 7 % 13]} {'xyzw'[n % 4] * (n % 9)} said something new again\n"


def _write(path: Path, lines: Iterator[str], size: int) -> None:
    with path.open("w", buffering=1 << 20) as file:
        written = 0
        while written < size:
            written += file.write(next(lines))
        file.write(_END)


def _measured(command: list[str]) -> tuple[float, float, str]:
    """CPU seconds, peak memory in MB and output of a child."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *command], capture_output=True, text=True, check=False
    )
    output, _, used = done.stdout.rpartition("\n#")
    seconds, peak = map(float, used.split())
    return seconds, peak / 1024, output


_CHILD = """
import resource, sys
from vllm_watch.__main__ import main
main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print("#%f %d" % (used.ru_utime + used.ru_stime, used.ru_maxrss))
"""


def _plain_loop(path: Path) -> float:
    begin, count = time.process_time(), 0
    with path.open("rb") as file:
        for line in file:
            count += b"ERROR" in line
    return time.process_time() - begin


def main() -> int:
    """Print the table; exit 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=200)
    size = parser.parse_args().mb << 20
    broken = False
    print(f"{'log':12}{'seconds':>9}{'MB/s':>8}{'peak MB':>9}{'plain loop':>12}{'ratio':>7}  class")
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (
            ("running", _running()),
            ("warning", _warning()),
            ("diverse", _diverse()),
        ):
            path = Path(folder) / f"{name}.log"
            _write(path, lines, size)
            runs = [(_plain_loop(path), _measured(["diagnose", str(path), "--json"])) for _ in range(RUNS)]  # fmt: skip
            plain = min(each for each, _ in runs)
            seconds, peak, output = min(each for _, each in runs)
            said = json.loads(output)["class"]
            print(
                f"{name:12}{seconds:9.2f}{size / 2**20 / seconds:8.0f}{peak:9.1f}{plain:11.2f}s{seconds / plain:7.1f}  {said}"
            )
            broken |= peak > PEAK_MB_MAX or (name != "diverse" and seconds > RATIO_MAX * plain)
            path.unlink()
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
