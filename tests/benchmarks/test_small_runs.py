"""Benchmarks in a small form: what they find is what happened. Whether a machine is quick is not asked here."""

import subprocess
import sys
from pathlib import Path

from benchmarks.bench_worlds import tell
from benchmarks.detection import worlds
from benchmarks.golden import OWN

ROOT = Path(__file__).parents[2]
HOURS, ENGINES, EVERY_SECONDS = 3, 2, 15


def ran(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)  # fmt: skip


def test_a_changed_judgement_is_in_the_table(tmp_path: Path) -> None:
    """`make golden` tells every change of a judgement, and none where nothing changed."""
    golden = ("benchmarks/golden.py", OWN / "kv_pinning_crash.jsonl.gz", "--stored", tmp_path)
    assert ran(*golden).returncode == 0
    again = ran(*golden)
    assert again.returncode == 0, again.stdout
    (stored,) = tmp_path.iterdir()
    stored.write_text(stored.read_text().replace("opened page", "opened ticket", 1))
    changed = ran(*golden)
    assert changed.returncode == 1
    assert "events 2" in changed.stdout
    assert "opened page" in changed.stdout


def test_a_few_stored_hours_are_judged() -> None:
    """Three hours with a hang and a crash in them: every scrape is judged."""
    done = ran("-m", "benchmarks.history_week", "--days", HOURS / 24, "--engines", ENGINES)
    assert done.returncode == 0, done.stderr
    summary, cost = done.stdout.splitlines()
    assert f"{ENGINES} servers: " in summary
    assert f"{ENGINES} × Stalled" in summary
    assert f"{ENGINES} × Down" in summary
    assert cost.startswith(f"{ENGINES * HOURS * 3600 // EVERY_SECONDS} scrapes judged in ")


def test_an_engine_that_works_through_its_queue_wakes_nobody(monkeypatch):
    """A bunch of long prompts had taken the pages; it is computed, and hundreds of requests are being served."""
    bunches = worlds.World("bunches", "", worlds._long_prompts(100.0), run={"load": 0.2})
    monkeypatch.setitem(worlds.WORLDS, bunches.slug, bunches)
    told = tell(bunches.slug, 14)
    assert any("again, with" in line for line in told.lines)
    assert (told.pages, told.advised) == (0, 0)
