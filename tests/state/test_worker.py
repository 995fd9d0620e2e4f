"""The state folder: real SQLite, real locks, real damage."""

import asyncio
import json
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_watch.detectors.base import Evidence
from vllm_watch.errors import JournalError
from vllm_watch.incidents.incident import OPENED, RESOLVED, Incident, IncidentEvent, ended
from vllm_watch.state import file, schema
from vllm_watch.state import incidents as incidents_module
from vllm_watch.state import worker as worker_module
from vllm_watch.state.incidents import Contents, IncidentTable, Learnt
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.state.worker import Worker

ROOT = Path(__file__).parents[2]
NOW = time.time()
PATIENCE = 20.0
ENTRY = Entry(t=NOW, actor="ana", source="cli", action="pause")


def incident(name="i", *, target="a", opened_t=NOW, t=None, resolved=False):
    t = opened_t if t is None else t
    one = Incident(
        id=name, target=target, engine=None, kind="engine_down", cause="crash", severity="page",
        summary="größer", evidence_for=(Evidence(name="up", value=0.0, unit="", expected=1.0, text="it is away"),),
        opened_t=opened_t, began_t=opened_t, updated_t=t,
    )  # fmt: skip
    over = ended(one, t, "healthy") if resolved else one
    return IncidentEvent(RESOLVED if resolved else OPENED, t, over)


def learnt(target="a", **state):
    return Learnt(target=target, group="g", saved_t=NOW, state={"x": 1, **state})


class Told:
    """A state folder that is ours, what its worker told, and what was found."""

    def __init__(self, folder):
        self.reasons = []
        self.worker = Worker(folder, self.tell)
        self.incidents = IncidentTable(self.worker)

    def tell(self, reason, cause, t):
        assert abs(t - time.time()) < 60
        assert (reason is None) == (cause is None)
        self.reasons.append(reason)

    async def __aenter__(self):
        self.found = await self.incidents.open(1000)
        return self

    async def __aexit__(self, *_):
        await self.worker.close()

    async def until(self, holds):
        """Wait for what it tells."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.01)

    async def kept(self, *events, learnt=None):
        """Put these, and wait for the first attempt to write them."""
        known = len(self.reasons)
        self.incidents.put(events, learnt)
        await self.until(lambda: len(self.reasons) > known)


async def kept_in(folder):
    async with Told(folder) as told:
        return told.found


def ids(contents):
    return [each.id for each in (*contents.open, *contents.ended)]


def rows(folder, statement, *values):
    with sqlite3.connect(folder / file.NAME) as connection:
        return connection.execute(statement, values).fetchall()


async def test_what_was_kept_is_found(tmp_path):
    """IncidentTable in the order of their last events, states by target, text as it was."""
    async with Told(tmp_path / "deep" / "state") as told:
        assert told.found == Contents()
        events = incident("one", t=NOW + 2), incident("two", t=NOW + 1)
        await told.kept(*events, learnt=learnt(y=[1]))
    found = await kept_in(tmp_path / "deep" / "state")
    assert found.open == (events[1].incident, events[0].incident)
    assert found.learnt == (learnt(y=[1]),)
    assert set(told.reasons) == {None}


async def test_it_is_for_its_owner_only(tmp_path):
    """Evidence may name models, hosts and command lines."""
    before = os.umask(0)
    try:
        async with Told(tmp_path) as told:
            await told.kept(incident())
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert len(modes) == 5  # the file, its -wal and -shm, the lock, and the marker
    assert set(modes.values()) == {0o600}


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.state.test_worker import ENTRY, Told, incident, learnt
from vllm_watch.state.journal import Journal
async def main():
    told = Told(Path(sys.argv[1]))
    journal = Journal(told.worker)
    await told.incidents.open(0)
    told.incidents.put([incident(f"i{n}") for n in range(50)], learnt(blob="x" * 100_000))
    await journal.note(ENTRY)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def test_killed_after_something_was_done(tmp_path):
    """All incidents that were put before it are on the disk, though nobody waited for them."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path],
        env={"PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    assert len(rows(tmp_path, "SELECT * FROM audit")) == 1
    assert len(ids(asyncio.run(kept_in(tmp_path)))) == 50


async def test_nothing_is_done_while_incidents_cannot_be_written(tmp_path, monkeypatch):
    """What was put first is written first, or what comes after it fails with the same cause."""
    monkeypatch.setattr(worker_module, "RETRY_SECONDS", 0.1)
    async with Told(tmp_path) as told:
        journal = Journal(told.worker)
        await journal.note(ENTRY)
        with sqlite3.connect(tmp_path / file.NAME) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE INSERT ON incident BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )
        told.incidents.put([incident("one")])
        with pytest.raises(JournalError, match="no room"):
            await journal.note(ENTRY)
        assert journal.trouble is not None
        assert len(await journal.entries()) == 1  # it is still read
        rows(tmp_path, "DROP TRIGGER full")
        await told.until(lambda: told.reasons[-1] is None)  # by itself
        await journal.note(ENTRY)
        assert (journal.trouble, len(await journal.entries())) == (None, 2)
    assert ids(await kept_in(tmp_path)) == ["one"]


async def test_two_with_one_folder(tmp_path, monkeypatch):
    """The second says so, changes nothing, and goes on; when the first ends it keeps its own."""
    monkeypatch.setattr(file, "HELD_SECONDS", 0.3)
    monkeypatch.setattr(worker_module, "RETRY_SECONDS", 0.2)
    async with Told(tmp_path) as first:
        await first.kept(incident("theirs"))
        second = Told(tmp_path)
        journal = Journal(second.worker)
        await second.__aenter__()
        assert second.reasons == ["refused"]
        await second.kept(incident("ours", t=NOW + 1))
        assert second.found == Contents()
        with pytest.raises(JournalError, match="another vllm-watch uses the state folder"):
            await journal.note(ENTRY)
        await first.kept(incident("theirs too"))
    await second.until(lambda: second.reasons[-1] is None)
    await second.__aexit__()
    found = await kept_in(tmp_path)
    assert [each.id for each in found.open] == ["ours"]
    # nobody follows them any more
    assert {(each.id, each.resolution) for each in found.ended} == {
        ("theirs", "superseded"), ("theirs too", "superseded"),
    }  # fmt: skip


async def test_a_follower_waits_for_its_predecessor(tmp_path):
    """As in an update of the watcher: the old one has some seconds to let go."""
    first = Told(tmp_path)
    await first.__aenter__()
    await first.kept(incident("one"))
    second = asyncio.create_task(kept_in(tmp_path))
    await asyncio.sleep(0.5)
    await first.__aexit__()
    assert ids(await second) == ["one"]


DAMAGES = {
    "no SQLite file": lambda path: path.write_bytes(b"hello " * 1000),
    "its middle is gone": lambda path: path.write_bytes(
        path.read_bytes()[:4096] + b"\0" * 4096 + path.read_bytes()[8192:]
    ),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:5000]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_file_is_moved_aside(tmp_path, damage):
    """A new one is begun, and the old one stays for who wants to look into it."""
    async with Told(tmp_path) as told:
        await told.kept(*(incident(f"i{n}") for n in range(200)), learnt=learnt())
    damage(tmp_path / file.NAME)
    async with Told(tmp_path) as told:
        assert told.found == Contents()
        await told.kept(incident("new"))
        assert told.reasons[0] == "damaged"
        await told.until(lambda: told.reasons[-1] is None)
    assert len(list(tmp_path.glob(file.NAME + ".damaged-*"))) == 1
    assert ids(await kept_in(tmp_path)) == ["new"]


async def test_damage_is_found_before_it_is_read(tmp_path):
    """Wherever it is: the history of restarts is not read before it is needed."""
    async with Told(tmp_path) as told:
        journal = Journal(told.worker)
        for n in range(20):
            await journal.note(replace(ENTRY, reason=f"number {n} " * 200))
    path = tmp_path / file.NAME
    data = path.read_bytes()
    page = data.index(b"number 10 ") // 4096 * 4096
    path.write_bytes(data[:page] + bytes(4096) + data[page + 4096 :])
    async with Told(tmp_path) as told:
        await told.until(lambda: told.reasons == ["damaged", None])
    assert len(list(tmp_path.glob(file.NAME + ".damaged-*"))) == 1


async def test_an_index_that_misses_rows_is_damage(tmp_path):
    """No read would stumble over it: each finds less than there is."""
    async with Told(tmp_path) as told:
        await told.kept(incident("one"))
    path = tmp_path / file.NAME
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT pageno FROM dbstat WHERE name = 'incident_of_target'").fetchone()  # fmt: skip
    data = bytearray(path.read_bytes())
    cells = (page - 1) * 4096 + 3  # how many the page has
    data[cells : cells + 2] = bytes(2)
    path.write_bytes(data)
    async with Told(tmp_path) as told:
        await told.until(lambda: told.reasons == ["damaged", None])


async def test_a_file_that_is_moved_away_while_it_is_used(tmp_path):
    """What is open is written to the one that takes its place: else it would be opened twice, and paged twice."""
    async with Told(tmp_path) as told:
        await told.kept(incident("before"))
    async with Told(tmp_path) as told:
        await told.kept(incident("open"), incident("over", resolved=True))
        file.move_aside(tmp_path, NOW)
        await told.kept(incident("new"))
    assert sorted(ids(await kept_in(tmp_path))) == ["before", "new", "open"]


@pytest.mark.parametrize("key", ["user_version", "application_id"])
async def test_what_is_not_ours_is_refused(tmp_path, monkeypatch, key):
    """What a newer version or another program wrote is neither read nor changed nor moved."""
    monkeypatch.setattr(worker_module, "RETRY_SECONDS", 0.05)
    async with Told(tmp_path) as told:
        await told.kept(incident("one"))
    rows(tmp_path, f"PRAGMA {key} = 99")
    async with Told(tmp_path) as told:
        await told.kept(incident("two"))
        assert set(told.reasons) == {"refused"}
    assert rows(tmp_path, f"PRAGMA {key}") == [(99,)]
    assert rows(tmp_path, "SELECT id FROM incident") == [("one",)]


async def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    """What could not be written waits, nobody waits for it, and it is written when there is room again."""
    monkeypatch.setattr(worker_module, "RETRY_SECONDS", 0.2)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with Told(tmp_path) as told:
        await told.kept(incident("before"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            told.incidents.put([], learnt(blob="x" * 200_000))
            told.incidents.put(incident(f"i{n}") for n in range(20))
            await told.until(lambda: told.reasons[-1] in ("full", "io"))
            told.incidents.put([incident("last")])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    found = await kept_in(tmp_path)
    assert set(ids(found)) == {"before", "last", *(f"i{n}" for n in range(20))}
    assert found.learnt == (learnt(blob="x" * 200_000),)


async def test_what_waits_for_a_disk_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_module, "ROWS_MAX", 3)
    monkeypatch.setattr(worker_module, "RETRY_SECONDS", 0.05)
    (tmp_path / "state").write_text("")
    async with Told(tmp_path / "state") as told:
        for n in range(5):
            await told.kept(incident(f"i{n}"))
        (tmp_path / "state").unlink()
    assert ids(await kept_in(tmp_path / "state")) == ["i2", "i3", "i4"]


async def test_a_damaged_entry_is_left_out(tmp_path):
    async with Told(tmp_path) as told:
        await told.kept(incident("good"), incident("bad"), learnt=learnt())
    rows(tmp_path, "UPDATE incident SET event = '{\"id\":' WHERE id = 'bad'")
    rows(tmp_path, "UPDATE watch SET state = '[1]'")
    async with Told(tmp_path) as told:
        assert ids(told.found) == ["good"]
        assert told.found.learnt == ()
        assert told.reasons.count("entry") == 2


async def test_it_stays_small(tmp_path, monkeypatch):
    """A month, so many per target, so many in all; what is open is never removed."""
    monkeypatch.setattr(incidents_module, "ENDED_PER_TARGET_MAX", 3)
    monkeypatch.setattr(incidents_module, "ENDED_MAX", 5)
    month = incidents_module.ENDED_SECONDS_MAX
    old = NOW - month - 60
    async with Told(tmp_path) as told:
        told.incidents.put(
            [
                *(incident(f"a{n}", opened_t=NOW + n, resolved=True) for n in range(5)),
                *(incident(f"b{n}", target="b", opened_t=NOW - n, resolved=True) for n in range(5)),
                incident("old", target="c", opened_t=old, resolved=True),
                incident("open", target="c", opened_t=old),
            ],
            Learnt(target="z", group="z", saved_t=old, state={}),
        )
        await told.worker.do(lambda db: told.incidents.prune(db, NOW), seconds=PATIENCE)
    assert sorted(ids(await kept_in(tmp_path))) == ["a2", "a3", "a4", "b0", "b1", "open"]
    async with Told(tmp_path) as told:
        await told.worker.do(lambda db: told.incidents.prune(db, NOW), seconds=PATIENCE)
    assert (await kept_in(tmp_path)).learnt == ()


def test_an_old_file_takes_the_steps_it_lacks(tmp_path, monkeypatch):
    """What it held stays; a step that fails leaves the file as it was."""
    file.connect(tmp_path).close()
    rows(tmp_path, "INSERT INTO watch VALUES ('a', 'g', 1.0, ?)", json.dumps({"x": 1}))
    steps = len(schema.MIGRATIONS)
    added = "CREATE TABLE made_up (id TEXT PRIMARY KEY);"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, added, "nonsense;"))
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        file.connect(tmp_path)
    assert rows(tmp_path, "PRAGMA user_version") == [(steps + 1,)]
    assert rows(tmp_path, "SELECT target FROM watch") == [("a",)]
    assert rows(tmp_path, "SELECT * FROM made_up") == []


async def test_an_incident_is_never_on_disk_without_the_state_that_explains_it(tmp_path):
    """The watcher may be killed right after the restart's journal entry. Newer state replaces state that is not written yet."""
    async with Told(tmp_path) as told:
        told.incidents.put([], learnt(blob="old"))
        told.incidents.put([incident("one")], learnt(blob="new"))
        counted = await told.worker.do(
            lambda db: db.execute("SELECT count(*) FROM watch").fetchone()[0], seconds=PATIENCE
        )
    found = await kept_in(tmp_path)
    assert counted == 1
    assert (ids(found), found.learnt) == (["one"], (learnt(blob="new"),))


OUTSIDE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(*db.execute("SELECT count(*) FROM audit").fetchone())
db.close()
"""


def test_readers_from_outside_see_what_each_connection_writes(tmp_path):
    """A second connection of ours, and a reader that comes and goes, leave the first one's writes to be read."""
    first, second = file.connect(tmp_path), file.connect(tmp_path)
    for number, connection in enumerate((first, second, first, second), 1):
        connection.execute("INSERT INTO audit (t, said) VALUES (1, '{}')")
        looking = [sys.executable, "-c", OUTSIDE, tmp_path / file.NAME]
        done = subprocess.run(looking, capture_output=True, text=True, timeout=60, check=True)
        assert int(done.stdout) == number
    first.close()
    second.close()


def test_of_damaged_files_the_last_two_are_kept(tmp_path):
    """A disk that breaks every day does not fill itself with what it broke."""
    for t in range(5):
        for suffix in ("", "-wal"):
            (tmp_path / (file.NAME + suffix)).write_text("x")
        file.move_aside(tmp_path, 1000.0 + t)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        f"{file.NAME}.damaged-1003", f"{file.NAME}.damaged-1003-wal",
        f"{file.NAME}.damaged-1004", f"{file.NAME}.damaged-1004-wal",
    ]  # fmt: skip
