"""`make golden` tells every change of a judgement, and none where nothing changed."""

import subprocess
import sys
from pathlib import Path

from benchmarks.golden import OWN

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "golden.py"


def _run(stored: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(OWN / "kv_pinning_crash.jsonl.gz"), "--stored", str(stored)]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=600.0, check=False)


def test_a_changed_judgement_is_in_the_table(tmp_path: Path) -> None:
    assert _run(tmp_path).returncode == 0
    again = _run(tmp_path)
    assert again.returncode == 0, again.stdout
    (stored,) = tmp_path.iterdir()
    stored.write_text(stored.read_text().replace("opened page", "opened ticket", 1))
    changed = _run(tmp_path)
    assert changed.returncode == 1
    assert "events 2" in changed.stdout
    assert "opened page" in changed.stdout
