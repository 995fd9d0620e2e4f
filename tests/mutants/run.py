"""Plants changes of behaviour (mutate.py) in a copy of the project, one at a time: a test must fail for each.

`make mutants` takes a sample by a seed, from all modules of modules.py; each runs the tests of its module alone, and ends with
the first that fails. cosmic-ray has one test command for all modules, and mutmut chooses tests by what they
run in its own process, where ours start daemons.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from tests.faults.removing import PACKAGE, copied
from tests.mutants.modules import EQUIVALENT, TESTS
from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).parents[2]
TESTS_SECONDS = 300.0  # of one module, with nothing changed
HANGS_FACTOR, HANGS_SECONDS_MIN = (
    5.0,
    30.0,
)  # slower than that, and a change made them hang: it is noticed, too
AT_ONCE = 2
SAMPLE = 300
WORDS_MAX = 90


@dataclass(frozen=True, slots=True)
class Planted:
    """One change in one module."""

    module: str
    mutant: Mutant

    def __str__(self) -> str:
        was, now = self.mutant.was, self.mutant.now
        return f"{self.module}:{self.mutant.line}: {was[:WORDS_MAX]} -> {now[:WORDS_MAX]}"


def all_of(project: Path, modules: Sequence[str]) -> Iterator[Planted]:
    """Every change of these modules that is not known to be equivalent."""
    equivalent = {(each.module, each.was, each.now) for each in EQUIVALENT}
    for module in modules:
        for mutant in mutants((project / PACKAGE / module).read_bytes()):
            if (module, mutant.was, mutant.now) not in equivalent:
                yield Planted(module, mutant)


class Copies:
    """Copies of the project, each of which runs one thing at a time."""

    def __init__(self, folder: Path) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(AT_ONCE):
            self._free.put(copied(ROOT, folder / str(number)))
        self._mtimes_s = count(int(time.time()), 2)
        self._hang_seconds: dict[str, float] = {}  # of each module's tests

    def passes(self, module: str) -> bool:
        """Do its tests pass with nothing changed?"""
        project, began_s = self._free.get(), time.monotonic()
        try:
            return _passes(project, TESTS[module], TESTS_SECONDS)
        finally:
            self._free.put(project)
            took_s = time.monotonic() - began_s
            self._hang_seconds[module] = max(HANGS_SECONDS_MIN, HANGS_FACTOR * took_s)

    def notices(self, planted: Planted) -> bool:
        """Does a test of its module fail with the change?"""
        project, began_s = self._free.get(), time.monotonic()
        path = project / PACKAGE / planted.module
        source = path.read_bytes()
        try:
            self._write(path, planted.mutant.planted(source))
            limit_s = self._hang_seconds[planted.module]
            noticed = not _passes(project, TESTS[planted.module], limit_s)
        finally:
            self._write(path, source)
            self._free.put(project)
        word = "noticed" if noticed else "SURVIVED"
        print(f"{word:8} {time.monotonic() - began_s:4.0f} s  {planted}", flush=True)
        return noticed

    def _write(self, path: Path, source: bytes) -> None:
        """With a time of its own: Python tells by the second and the size whether it is compiled already."""
        path.write_bytes(source)
        mtime_s = next(self._mtimes_s)
        os.utime(path, (mtime_s, mtime_s))


def _passes(project: Path, tests: Sequence[str], seconds: float) -> bool:
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no"]
        + [f"tests/{each}" for each in tests],
        cwd=project, start_new_session=True, env=os.environ | {"PYTHONPATH": str(project)},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):  # its tests' processes, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(argv: Sequence[str]) -> int:
    """Try a sample; 0 when enough of it was noticed."""
    said = _said(argv)
    seed = random.randrange(10**6) if said.seed is None else said.seed
    modules = [
        each for each in TESTS if not said.modules or any(word in each for word in said.modules)
    ]
    known = list(all_of(ROOT, modules))
    chosen = random.Random(seed).sample(known, min(said.sample or len(known), len(known)))
    print(
        f"{len(chosen)} of {len(known)} changes in {len(modules)} modules, seed {seed}", flush=True
    )
    if said.list:
        print(*chosen, sep="\n")
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        copies = Copies(Path(folder))
        used = list(dict.fromkeys(each.module for each in chosen))
        passing = dict(zip(used, pool.map(copies.passes, used), strict=True))
        red = [module for module in used if not passing[module]]
        tried = [each for each in chosen if passing[each.module]]
        left = [
            each
            for each, seen in zip(tried, pool.map(copies.notices, tried), strict=True)
            if not seen
        ]
    share = 1 - len(left) / max(1, len(tried))
    print(
        f"\n{len(tried) - len(left)} of {len(tried)} noticed ({share:.0%}), seed {seed}; not noticed:"
    )
    print(*(left or ["none"]), sep="\n")
    if red:
        print("their tests fail with nothing changed, and were not tried:", *red, sep="\n")
    return 0 if share >= said.least and not red else 1


def _said(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="words of their paths; all without any")
    parser.add_argument("--seed", type=int, help="of the sample; another one each time without")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="so many; 0: all")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed")
    parser.add_argument("--list", action="store_true", help="print them, and try none")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
