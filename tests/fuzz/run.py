"""`python -m tests.fuzz.run [TARGET...]` for FUZZ_SECONDS each (60), with Atheris where it is installed.

What breaks is kept as a file of the corpus, from where a test plays it ever after. `--ours` takes the small
mutator of this folder, which follows no coverage, also where Atheris is installed. Exits 1 for a finding.
"""

import argparse
import hashlib
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import NamedTuple

from tests.fuzz.seeds import CORPUS, seeds
from tests.fuzz.targets import TARGETS, FaultError, Target

INPUT_SECONDS_MAX = 30
"""For one input of 64 KB at most, which takes milliseconds; a machine may be busy."""

MEMORY_BYTES_MAX = 4 << 30
KEPT_MAX = 400
"""Inputs that are changed further, beside the seeds."""

CHANGES_MAX = 6
BYTES_MAX = 1 << 16

_WORDS = (
    b"", b"\n", b"\r\n", b"\0", b"NaN", b"+Inf", b"-Inf", b"-1", b"0", b"1e308", b"-1e308", b"1e999", b"9" * 30,
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b" ", b"\t", b"null", b"true", b"false", b"{}", b"[]",
    b'""', b"# EOF\n", b"# TYPE a counter\n", b'le="+Inf"', b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9",
    b"\xe2\x80\xa8", b"\x1b[31m", b"&a", b"*a", b"<<: ", b"!!python/object:os.system ", b"0x1f", b"1_000",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"%00", b"../", b"%2e%2e/",
)  # fmt: skip


class Run(NamedTuple):
    """What came of fuzzing one target."""

    inputs: int
    seconds: float
    found: bytes | None = None
    fault: BaseException | None = None


@contextmanager
def bounded() -> Iterator[None]:
    """Nothing may take longer than INPUT_SECONDS_MAX. In the main thread only."""

    def too_long(_: int, frame: FrameType | None) -> None:
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?"
        raise FaultError(f"longer than {INPUT_SECONDS_MAX} s, at {where}")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(INPUT_SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def changed(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return `data` with some changes; pieces of `others` may come into it."""
    for _ in range(rng.randint(1, CHANGES_MAX)):
        data = rng.choice(_CHANGES)(rng, data, others)
    return data[:BYTES_MAX]


def _flip(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _insert(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(_WORDS) + data[at:]


def _replace(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at, count = rng.randint(0, len(data)), rng.randint(1, 12)
    return data[:at] + rng.choice(_WORDS) + data[at + count :]


def _number(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A number becomes another one."""
    digits = [at for at, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
    if not digits:
        return data
    at = end = rng.choice(digits)
    while end < len(data) and data[end : end + 1] in b"0123456789.eE+-":
        end += 1
    return data[:at] + rng.choice(_WORDS[4:13]) + data[end:]


def _cut(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return data[:begin] + data[end:] if rng.random() < 0.5 else data[: max(1, end)]


def _line(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A line is left out, said twice, or moved."""
    lines = data.split(b"\n")
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.randint(0, 2)):
        lines.insert(rng.randint(0, len(lines)), line)
    return b"\n".join(lines)


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    at, begin = rng.randint(0, len(data)), rng.randint(0, len(other))
    return data[:at] + other[begin : begin + rng.randint(1, 4000)] + data[at:]


def _often(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A piece comes many times: what is quadratic shows."""
    at = rng.randint(0, len(data))
    return data[:at] + data[at : at + rng.randint(1, 20)] * rng.choice((2, 50, 2000)) + data[at:]


_CHANGES = (_flip, _insert, _replace, _number, _cut, _line, _splice, _often)


def fuzz(take: Target, begun_with: list[bytes], seconds: float, seed: int = 1) -> Run:
    """Change what there is, again and again, with our mutator; the same seed tries the same inputs."""
    rng, kept, inputs = Random(seed), list(begun_with), 0
    began_s = time.monotonic()
    while time.monotonic() - began_s < seconds:
        data = changed(rng, rng.choice(kept), begun_with)
        inputs += 1
        try:
            with bounded():
                take(data)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is the finding
            return Run(inputs, time.monotonic() - began_s, data, fault)
        if rng.random() < 0.1:  # further from the seeds than one step
            if len(kept) >= len(begun_with) + KEPT_MAX:
                kept.pop(rng.randrange(len(begun_with), len(kept)))
            kept.append(data)
    return Run(inputs, time.monotonic() - began_s)


def keep(name: str, data: bytes) -> Path:
    """Write what broke a target into its corpus."""
    path = CORPUS / name / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def _ours(name: str, seconds: float) -> int:
    seed = int.from_bytes(os.urandom(4))
    with TARGETS[name]() as take:
        run = fuzz(take, seeds(name), seconds, seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {run.inputs:,} inputs in {run.seconds:.0f} s (seed {seed}), peak {peak:.0f} MiB",
        flush=True,
    )
    if run.found is None:
        return 0
    print(f"{name}: {type(run.fault).__name__}: {run.fault}\nkept as {keep(name, run.found)}")
    return 1


_ATHERIS = """
import faulthandler, sys, atheris
with atheris.instrument_imports(include=["vllm_watch"]):
    from tests.fuzz.run import INPUT_SECONDS_MAX, keep
    from tests.fuzz.targets import TARGETS
name = sys.argv.pop(1)
errors = sys.stderr
with TARGETS[name]() as take:
    def watched(data):
        faulthandler.dump_traceback_later(INPUT_SECONDS_MAX - 2, file=errors)  # of all threads
        try:
            take(data)
        except Exception:
            keep(name, data)
            raise
        faulthandler.cancel_dump_traceback_later()
    atheris.Setup(sys.argv, watched)
    atheris.Fuzz()
"""


def _atheris(name: str, seconds: float) -> int:
    """libFuzzer under Atheris, in a process of its own; its working corpus is build/fuzz/NAME."""
    work = CORPUS.parents[2] / "build/fuzz" / name
    work.mkdir(parents=True, exist_ok=True)
    for data in seeds(name):
        (work / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    return subprocess.run(
        [
            sys.executable, "-c", _ATHERIS, name, f"-max_total_time={seconds:.0f}",
            f"-max_len={BYTES_MAX}", f"-timeout={INPUT_SECONDS_MAX}", f"-rss_limit_mb={MEMORY_BYTES_MAX >> 20}",
            f"-artifact_prefix={CORPUS / name}/found-", "-print_final_stats=1", "-verbosity=0", str(work),
        ],
        check=False,
    ).returncode  # fmt: skip


def main() -> int:
    """Fuzz what is named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--ours", action="store_true", help="without Atheris")
    said = parser.parse_args()
    seconds = float(os.environ.get("FUZZ_SECONDS", "60"))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, resource.RLIM_INFINITY))
    follow = importlib.util.find_spec("atheris") is not None and not said.ours
    how = _atheris if follow else _ours
    return max(int(how(name, seconds) != 0) for name in said.targets or TARGETS)


if __name__ == "__main__":
    sys.exit(main())
