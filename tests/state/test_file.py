"""The state file among several connections: what one of them does takes nothing from the others."""

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

from vllm_watch.state import file

SECONDS_MAX = 60


def entries_seen_from_outside(path: Path) -> int:
    """Open it in another process, count, and close it again, as an operator's sqlite3 does."""
    count = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(*db.execute('SELECT count(*) FROM audit').fetchone()); db.close()"
    done = subprocess.run(
        [sys.executable, "-c", count, path], capture_output=True, text=True, timeout=SECONDS_MAX, check=True
    )  # fmt: skip
    return int(done.stdout)


def write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO audit (t, said) VALUES (1, '{}')")


def test_readers_from_outside_see_what_each_connection_writes(tmp_path: Path) -> None:
    """A second connection of ours, and a reader that comes and goes, leave the first one's writes to be read."""
    first = file.connect(tmp_path)
    write(first)
    second = file.connect(tmp_path)
    write(second)
    seen = [entries_seen_from_outside(tmp_path / file.NAME)]
    for connection in (first, second, first):
        write(connection)
        seen.append(entries_seen_from_outside(tmp_path / file.NAME))
    assert seen == [2, 3, 4, 5]
    first.close()
    second.close()


def test_readable_for_its_owner_only(tmp_path: Path) -> None:
    """With what SQLite puts beside it, whatever the umask is."""
    before = os.umask(0)
    try:
        connection = file.connect(tmp_path)
        write(connection)
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        connection.close()
    finally:
        os.umask(before)
    assert modes == {f"{file.NAME}{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}
