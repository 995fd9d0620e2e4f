"""Plants changes of behaviour (mutate.py) in a copy of the project, one at a time: a test must fail for each.

`make mutants` takes a sample by a seed, from all modules of modules.py; each runs the tests that reach its line (reach.py), the
nearest first, and ends with the first that fails. cosmic-ray has one test command for all changes, and mutmut chooses
tests by what they run in its own process, where ours start daemons.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from tests.faults.removing import copied
from tests.mutants.modules import EQUIVALENT, MODULES
from tests.mutants.mutate import Mutant, mutants
from tests.mutants.reach import FOLDER, PACKAGE, Reach

ROOT = Path(__file__).parents[2]
REACH_SECONDS = 1800.0  # of all that make test runs: some ten minutes
BUDGET_SECONDS = 45.0  # of tests for one change
HANGS_FACTOR, HANGS_SECONDS_MIN = 4.0, 30.0
"""Slower than that, and a change made them hang: it is noticed, too."""

ELSEWHERE = "real_vllm or podman or supply or site or browser"
"""Marks of tests that reach no module in their own process."""

IMPORTS_NOT = "it does not import"
AT_ONCE = 2
SAMPLE = 300
WORDS_MAX = 90


@dataclass(frozen=True, slots=True)
class Planted:
    """One change in one module."""

    module: str
    mutant: Mutant

    def lines(self, source: bytes) -> range:
        """Those of the file that the changed piece stands on."""
        piece = source[self.mutant.begin : self.mutant.end]
        return range(self.mutant.line, self.mutant.line + piece.count(b"\n") + 1)

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
        self._folder = folder
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(AT_ONCE):
            self._free.put(copied(ROOT, folder / str(number)))
        self._mtimes_s = count(int(time.time()), 2)

    def reach(self, marked: str, kept: Path | None) -> Reach:
        """Which of these tests run which lines, with nothing changed. Those that fail so are in none."""
        folder, project = kept or self._folder / "reach", self._free.get()
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            asked = ["-p", "tests.mutants.reach", "-m", marked, "-n", str(AT_ONCE * 2), "--dist", "loadfile", "tests"]  # fmt: skip
            _pytest(project, asked, REACH_SECONDS, {FOLDER: str(folder.absolute())})
        self._free.put(project)
        reach = Reach.read(folder)
        if not reach:
            raise RuntimeError(
                f"no test reaches any module; see what pytest says with -m '{marked}'"
            )
        return reach

    def notices(self, planted: Planted, reach: Reach, also: Sequence[str]) -> str | None:
        """Return what notices the change: a test, or a word; None if nothing does."""
        project, began_s = self._free.get(), time.monotonic()
        path = project / PACKAGE / planted.module
        source = path.read_bytes()
        tests = [*also, *reach.of(planted.module, planted.lines(source), BUDGET_SECONDS)]
        limit_s = max(HANGS_SECONDS_MIN, HANGS_FACTOR * reach.seconds(tests))
        by = None
        try:
            self._write(path, planted.mutant.planted(source))
            by = first_to_fail(project, tests, limit_s) if tests else None
        finally:
            self._write(path, source)
            imports = _imports(project) if by == IMPORTS_NOT else True
            self._free.put(project)
        if not imports:
            raise RuntimeError("the project does not import with nothing changed")
        word = "noticed" if by else "SURVIVED"
        said = f"{word:8} {time.monotonic() - began_s:4.0f} s  {planted}"
        print(f"{said}  {by or f'{len(tests)} tests'}", flush=True)
        return by

    def failing(self, tests: Sequence[str]) -> set[str]:
        """Which of these fail with nothing changed, each alone."""
        project = self._free.get()
        failing = {each for each in tests if first_to_fail(project, [each], HANGS_SECONDS_MIN * 4)}
        self._free.put(project)
        return failing

    def _write(self, path: Path, source: bytes) -> None:
        """With a time of its own: Python tells by the second and the size whether it is compiled already."""
        path.write_bytes(source)
        mtime_s = next(self._mtimes_s)
        os.utime(path, (mtime_s, mtime_s))


def first_to_fail(project: Path, tests: Sequence[str], limit_s: float) -> str | None:
    """Return the first of these to fail: a test, by itself or its fixture, or a file, as it is collected; or a word. None: all pass."""
    names = project / "tests.txt"
    names.write_text("\n".join(tests))
    status, told = _pytest(project, ["-x", f"@{names}"], limit_s)
    if status == 0:
        return None
    lines = [line for line in told.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    places = {*tests, *(each.partition("::")[0] for each in tests)}
    failed = max((each for each in places for line in lines if each in line), key=len, default=None)
    if failed is None and status is not None and _imports(project):
        raise RuntimeError(f"pytest ends with {status}:\n{told[-2000:]}")
    return failed or ("hangs" if status is None else IMPORTS_NOT)


def _pytest(
    project: Path,
    arguments: Sequence[str],
    seconds: float,
    environ: Mapping[str, str] | None = None,
) -> tuple[int | None, str]:
    """Return its exit status, None of one that hung, and its output."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *arguments],
            cwd=project, start_new_session=True, env=os.environ | {"PYTHONPATH": str(project)} | (environ or {}),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):  # its tests' processes, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return status, output.read()


def _imports(project: Path) -> bool:
    names = ", ".join(
        f"{PACKAGE}.{module.removesuffix('.py').replace('/', '.')}" for module in MODULES
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import {names}"], cwd=project, env=os.environ | {"PYTHONPATH": str(project)},
        capture_output=True, check=False, timeout=HANGS_SECONDS_MIN * 4,
    )  # fmt: skip
    return done.returncode == 0


def main(argv: Sequence[str]) -> int:
    """Try a sample; 0 when enough of it was noticed."""
    said = _said(argv)
    seed = random.randrange(10**6) if said.seed is None else said.seed
    modules = [
        each for each in MODULES if not said.modules or any(word in each for word in said.modules)
    ]
    known = [each for each in all_of(ROOT, modules) if said.only in str(each)]
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
        copies, began_s = Copies(Path(folder)), time.monotonic()
        reach = copies.reach(
            f"not ({ELSEWHERE} or {'long' if said.quick else 'longest'})", said.reach
        )
        print(f"{reach} in {time.monotonic() - began_s:.0f} s", flush=True)
        noticed_by = list(pool.map(partial(copies.notices, reach=reach, also=said.also), chosen))
        tests = sorted({each for each in noticed_by if each and each.startswith("tests/")})
        # What fails by itself notices nothing.
        shares = [tests[number::AT_ONCE] for number in range(AT_ONCE)]
        doubtful = set[str]().union(*pool.map(copies.failing, shares))
    left = [each for each, by in zip(chosen, noticed_by, strict=True) if not by or by in doubtful]
    share = 1 - len(left) / max(1, len(chosen))
    print(f"\n{len(chosen) - len(left)} of {len(chosen)} noticed ({share:.0%}), seed {seed}; not noticed:")  # fmt: skip
    print(*(left or ["none"]), sep="\n")
    if doubtful:
        print("fail by themselves, so what they noticed does not count:", *sorted(doubtful), sep="\n")  # fmt: skip
    return 0 if share >= said.least else 1


def _said(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="words of their paths; all without any")
    parser.add_argument("--seed", type=int, help="of the sample; another one each time without")
    parser.add_argument("--quick", action="store_true", help="ask the tests of make check alone")
    parser.add_argument(
        "--reach",
        type=Path,
        help="keep in this folder which tests reach which lines, or use what is there",
    )
    parser.add_argument("--only", default="", help="changes whose line of output has this in it")
    parser.add_argument(
        "--also", nargs="*", default=[], help="tests to ask first, of each change: new ones"
    )
    parser.add_argument("--sample", type=int, default=SAMPLE, help="so many; 0: all")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed")
    parser.add_argument("--list", action="store_true", help="print them, and try none")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
