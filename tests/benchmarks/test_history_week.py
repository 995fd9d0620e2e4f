"""The benchmark of judging a stored week runs, in a small form: every scrape is judged, and what happened is found."""

import subprocess
import sys

HOURS, ENGINES, EVERY_SECONDS = 3, 2, 15


def test_a_few_stored_hours_are_judged() -> None:
    """Three hours with a hang and a crash in them; whether a machine is quick is not asked here."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.history_week", "--days", str(HOURS / 24), "--engines", str(ENGINES)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary, cost = done.stdout.splitlines()
    assert f"{ENGINES} servers: " in summary
    assert f"{ENGINES} × Stalled" in summary
    assert f"{ENGINES} × Down" in summary
    assert cost.startswith(f"{ENGINES * HOURS * 3600 // EVERY_SECONDS} scrapes judged in ")
