"""Runs the tests of each row of the matrix without that row's handling: at least one of them must fail.

A test that passes with the handling and without it shows nothing. So the project is copied, the piece is taken out
of the copy (removals.py says which), and the row's own tests run there. Before that all of them run on a copy that
nothing was taken from: what fails there already would show nothing either.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.matrix import PARTS, ROOT, Row
from tests.faults.removals import REMOVALS, Cut

PACKAGE = "vllm_watch"
LEFT_OUT = (".*", "__pycache__", "build", "dist")

PATIENCE_SECONDS = 150.0
"""How long these tests wait for what will never come: the five minutes that they have beside other tests would be
spent in full. An engine that sends too much is asked so rarely that one test of the memory's limit takes 95 s. The
tests run with the same patience before anything is taken out."""

RUN_SECONDS = 1800.0  # all tests of all rows on the untouched copy take some minutes
IMPORT_SECONDS = 300.0  # of a machine that does much else; alone half a second
AT_ONCE = 2  # rows, or tests of the untouched copy; they wait more than they compute
WORDS_MAX = 160  # of why a test failed: a line to see that it failed for what was removed


class StaleRemovalError(Exception):
    """What is to be taken out is not there, or not once."""


def without(cuts: Sequence[Cut], package: Path) -> dict[Path, str]:
    """The files of a package without these pieces, none of them written. Raises StaleRemovalError."""
    changed: dict[Path, str] = {}
    for cut in cuts:
        path = package / cut.file
        text = changed[path] if path in changed else path.read_text()
        found = text.count(cut.was)
        if found != 1:
            raise StaleRemovalError(f"{cut.file} has {found} times, not once:\n{cut.was}")
        changed[path] = text.replace(cut.was, cut.now)
    return changed


def copied(project: Path, to: Path, cuts: Sequence[Cut] = ()) -> Path:
    """The project without these pieces, in a folder of its own, seen to import from there."""
    shutil.copytree(project, to, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for path, text in without(cuts, to / PACKAGE).items():
        path.write_text(text)
    modules = sorted({_dotted(f"{PACKAGE}/{cut.file}") for cut in cuts} | {PACKAGE})
    program = f"import {', '.join(modules)}; print({PACKAGE}.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=to, env=_environ(to), capture_output=True, text=True, check=False, timeout=IMPORT_SECONDS,
    )  # fmt: skip
    if done.returncode != 0 or not Path(done.stdout.strip()).is_relative_to(to):
        raise StaleRemovalError(f"what is left does not import: {done.stdout}{done.stderr}")
    return to


def failing(project: Path, tests: Sequence[str], at_once: int = 1) -> dict[str, str]:
    """Those of the tests that fail there, with their cases, and each one's first words."""
    report = project / "report.xml"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
        + ["-n", f"{at_once}" if at_once > 1 else "0"] + [f"tests/{each}" for each in tests],
        cwd=project, env=_environ(project), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        said = process.communicate(timeout=RUN_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    (project / "said").write_text(said)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {process.returncode}:\n{said[-4000:]}")
    return dict(_failed(report))


def _failed(report: Path) -> Iterator[tuple[str, str]]:
    for case in ET.parse(report).iter("testcase"):
        for ended in (*case.iterfind("failure"), *case.iterfind("error")):
            folders = case.attrib["classname"].removeprefix("tests.").replace(".", "/")
            words = " ".join(ended.attrib.get("message", "").split())
            yield f"{folders}.py::{case.attrib['name']}", words[:WORDS_MAX]


def _environ(project: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(project),
        "FAULTS_PATIENCE_SECONDS": str(PATIENCE_SECONDS),
    }


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def chosen(words: Sequence[str]) -> list[Row]:
    """The rows whose fault has one of these words; all without any."""
    rows = [row for rows in PARTS.values() for row in rows]
    return [row for row in rows if not words or any(word.lower() in row.fault.lower() for word in words)]  # fmt: skip


class Trial:
    """A snapshot of the project, and what its tests say of pieces that are taken out of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._project = copied(ROOT, folder / "project")  # so that it may be edited meanwhile

    def whole(self, rows: Sequence[Row]) -> dict[str, str]:
        """What fails of all these rows' tests with nothing taken out."""
        tests = sorted({test for row in rows for test in row.tests})
        print(f"{len(tests)} tests of {len(rows)} rows, with nothing removed ...", flush=True)
        return failing(copied(self._project, self._folder / "whole"), tests, AT_ONCE)

    def without_handling(self, row: Row) -> dict[str, str] | None:
        """What fails of a row's tests without its handling; None where that could not be tried, which is said."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            try:
                project = copied(self._project, Path(folder) / "copy", REMOVALS[row.fault].cuts)
                failed = failing(project, row.tests)
            except (StaleRemovalError, RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"  {row.fault}: not tried, {error}", flush=True)
                return None
        print(f"  {row.fault}: {len(failed)} failed", flush=True)
        return failed


def main(words: Sequence[str]) -> int:
    """Print what failed for each row; 0 when something did for every one."""
    rows = chosen(words)
    if not rows:
        print(f"no row of the matrix has {' or '.join(words)} in its fault", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="removals-") as folder:
        trial = Trial(Path(folder))
        if broken := trial.whole(rows):
            print(
                "they fail before anything is removed, and so show nothing:",
                *_lines(broken),
                sep="\n  ",
            )
            return 1
        with ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(trial.without_handling, rows))
    for row, failed in zip(rows, results, strict=True):
        print(
            f"\n{row.fault}\n  without: {REMOVALS[row.fault].piece}", *_said(failed), sep="\n    "
        )
    seen = sum(map(bool, results))
    print(f"\n{seen} of {len(rows)} rows have a test that fails without their handling")
    return 0 if seen == len(rows) else 1


def _said(failed: Mapping[str, str] | None) -> list[str]:
    if failed is None:
        return ["NOT TRIED: see above"]
    return _lines(failed) or ["NONE OF ITS TESTS FAILED: they do not show what they are there for"]


def _lines(failed: Mapping[str, str]) -> list[str]:
    return [f"{test}: {words}" for test, words in sorted(failed.items())]
