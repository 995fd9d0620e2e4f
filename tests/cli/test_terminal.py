"""What commands ask of the terminal; and that all of them ask here."""

import os
import re
from pathlib import Path

from vllm_watch.cli.helpers import terminal

PACKAGE = Path(terminal.__file__).parents[2]


def test_colours_go_to_a_terminal_unless_it_is_told_not_to(monkeypatch, tmp_path):
    """NO_COLOR counts whatever it holds; a file gets none."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    ends = os.openpty()
    with os.fdopen(ends[0], "r"), os.fdopen(ends[1], "w") as terminal_end:
        assert terminal.takes_colours(terminal_end)
        monkeypatch.setenv("NO_COLOR", "")
        assert not terminal.takes_colours(terminal_end)
    monkeypatch.delenv("NO_COLOR")
    with (tmp_path / "file").open("w") as file:
        assert not terminal.takes_colours(file)


def test_the_width_is_kept_within_bounds(monkeypatch):
    """What is asked for is what can be read."""
    monkeypatch.setenv("COLUMNS", "90")
    assert [terminal.columns(), terminal.columns(100, 120), terminal.columns(20, 80)] == [90, 100, 80]  # fmt: skip


def test_nobody_asks_elsewhere():
    """`gpus` and `journal` once forgot NO_COLOR."""
    pattern = re.compile(r"get_terminal_size|NO_COLOR\" |stdout\.isatty\(\) else")
    found = {
        str(f.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py") if pattern.search(f.read_text())
    }
    assert found == {"cli/helpers/terminal.py"}
