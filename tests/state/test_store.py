"""The state folder: real SQLite, real locks, real damage."""

import asyncio
import json
import os
import resource
import sqlite3
import stat
import time

import pytest

from vllm_watch.state import file, schema, tables
from vllm_watch.state.rows import IncidentRow, WatchRow
from vllm_watch.state.store import Store

NOW = time.time()


def incident(name="i", *, target="a", opened_t=NOW, t=None, resolved=False):
    t = opened_t if t is None else t
    return IncidentRow(
        id=name, target=target, kind="engine_down", opened_t=opened_t, updated_t=t,
        resolved_t=t if resolved else None, event={"id": name, "t": t, "summary": "größer"},
    )  # fmt: skip


def watch(target="a", **state):
    return WatchRow(target=target, group="g", saved_t=NOW, state={"x": 1, **state})


class Told:
    """A store, what it told, and what it had found."""

    def __init__(self, folder):
        self.reasons = []
        self.store = Store(folder, self.tell)

    def tell(self, trouble, t):
        assert abs(t - time.time()) < 60
        self.reasons.append(trouble and trouble.reason)

    async def __aenter__(self):
        self.found = await self.store.open()
        return self

    async def __aexit__(self, *_):
        await self.store.close()

    async def kept(self, *incidents, watch=None):
        """Put these; wait until they were written, or could not be, and not at all while it fails."""
        before = len(self.reasons)
        self.store.put(incidents, watch)
        async with asyncio.timeout(60):
            while len(self.reasons) == before and self.reasons[-1] is None:
                await asyncio.sleep(0.005)


async def kept_in(folder):
    async with Told(folder) as told:
        return told.found


def rows(folder, statement, *values):
    with sqlite3.connect(folder / file.NAME) as connection:
        return connection.execute(statement, values).fetchall()


async def test_what_was_kept_is_found(tmp_path):
    """Incidents in the order of their last events, states by target, text as it was."""
    async with Told(tmp_path / "deep" / "state") as told:
        assert told.found == tables.Contents()
        await told.kept(incident("one", t=NOW + 2), incident("two", t=NOW + 1), watch=watch(y=[1]))
    found = await kept_in(tmp_path / "deep" / "state")
    assert [each.id for each in found.incidents] == ["two", "one"]
    assert found.incidents[0].event["summary"] == "größer"
    assert found.watches == (watch(y=[1]),)
    assert set(told.reasons) == {None}


async def test_an_incident_keeps_its_beginning(tmp_path):
    """Its last event takes the place of those before; when it opened stays, written or not yet written."""
    async with Told(tmp_path) as told:
        told.store.put([incident("i", opened_t=NOW)])
        await told.kept(incident("i", opened_t=None, t=NOW + 5))
        await told.kept(incident("i", opened_t=None, t=NOW + 9, resolved=True))
    (found,) = (await kept_in(tmp_path)).incidents
    assert (found.opened_t, found.updated_t, found.resolved_t) == (NOW, NOW + 9, NOW + 9)


async def test_it_is_for_its_owner_only(tmp_path):
    """Evidence may name models, hosts and command lines."""
    before = os.umask(0)
    try:
        async with Told(tmp_path) as told:
            await told.kept(incident())
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert len(modes) == 4  # the file, its -wal and -shm, and the lock
    assert set(modes.values()) == {0o600}


async def test_who_is_killed_has_lost_nothing_that_was_written(tmp_path):
    """Without an orderly end the file is read as it stood (here: copied while it is open)."""
    copy = tmp_path / "copy"
    copy.mkdir()
    async with Told(tmp_path) as told:
        await told.kept(incident("one"), watch=watch())
        for each in tmp_path.glob(file.NAME + "*"):
            (copy / each.name).write_bytes(each.read_bytes())
    assert [each.id for each in (await kept_in(copy)).incidents] == ["one"]


async def test_two_with_one_folder(tmp_path, monkeypatch):
    """The second says so, changes nothing, and goes on; when the first ends it keeps its own."""
    monkeypatch.setattr("vllm_watch.state.store.HELD_SECONDS", 0.3)
    monkeypatch.setattr("vllm_watch.state.store.RETRY_SECONDS", 0.2)
    async with Told(tmp_path) as first:
        await first.kept(incident("theirs"))
        second = Told(tmp_path)
        await second.__aenter__()
        assert second.reasons == ["refused"]
        await second.kept(incident("ours", t=NOW + 1))
        assert second.found == tables.Contents()
        await first.kept(incident("theirs too"))
    deadline = time.monotonic() + 20
    while second.reasons[-1] is not None and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    await second.__aexit__()
    found = {each.id: each for each in (await kept_in(tmp_path)).incidents}
    assert found["ours"].resolved_t is None
    assert found["theirs"].event["resolution"] == "superseded"  # nobody follows them any more


async def test_a_follower_waits_for_its_predecessor(tmp_path):
    """As in an update of the watcher: the old one has some seconds to let go."""
    first = Told(tmp_path)
    await first.__aenter__()
    await first.kept(incident("one"))
    second = asyncio.create_task(kept_in(tmp_path))
    await asyncio.sleep(0.5)
    await first.__aexit__()
    assert [each.id for each in (await second).incidents] == ["one"]


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
        await told.kept(*(incident(f"i{n}") for n in range(200)), watch=watch())
    damage(tmp_path / file.NAME)
    async with Told(tmp_path) as told:
        assert told.found == tables.Contents()
        await told.kept(incident("new"))
        assert told.reasons[0] == "damaged"
        assert told.reasons[-1] is None
    assert len(list(tmp_path.glob(file.NAME + ".damaged-*"))) == 1
    assert [each.id for each in (await kept_in(tmp_path)).incidents] == ["new"]


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


async def test_a_newer_schema_is_refused(tmp_path):
    """What a newer version wrote is neither read nor changed nor moved."""
    async with Told(tmp_path) as told:
        await told.kept(incident("one"))
    rows(tmp_path, "PRAGMA user_version = 99")
    async with Told(tmp_path) as told:
        await told.kept(incident("two"))
        assert set(told.reasons) == {"refused"}
    assert rows(tmp_path, "PRAGMA user_version") == [(99,)]
    assert rows(tmp_path, "SELECT id FROM incident") == [("one",)]


async def test_another_programs_file_is_refused(tmp_path):
    """It happens to have our file's name; it is not touched."""
    rows(tmp_path, "CREATE TABLE theirs (x)")
    async with Told(tmp_path) as told:
        await told.kept(incident())
        assert set(told.reasons) == {"refused"}
    assert rows(tmp_path, "SELECT name FROM sqlite_master") == [("theirs",)]


async def test_a_folder_that_cannot_be_made(tmp_path):
    """A file stands where the folder should."""
    (tmp_path / "state").write_text("")
    async with Told(tmp_path / "state" / "deeper") as told:
        await told.kept(incident())
        assert set(told.reasons) == {"not_writable"}


async def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    """What could not be written waits, nobody waits for it, and it is written when there is room again."""
    monkeypatch.setattr("vllm_watch.state.store.RETRY_SECONDS", 0.2)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with Told(tmp_path) as told:
        await told.kept(incident("before"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            for n in range(20):
                await told.kept(incident(f"i{n}"), watch=watch(blob="x" * 50_000))
            assert told.reasons[-1] in ("full", "io")
            began = time.monotonic()
            await told.kept(incident("last"))
            assert time.monotonic() - began < 0.5
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    found = await kept_in(tmp_path)
    assert {each.id for each in found.incidents} == {
        "before",
        "last",
        *(f"i{n}" for n in range(20)),
    }


async def test_a_damaged_entry_is_left_out(tmp_path):
    """One broken row does not cost the others."""
    async with Told(tmp_path) as told:
        await told.kept(incident("good"), incident("bad"), watch=watch())
    rows(tmp_path, "UPDATE incident SET event = '{\"id\":' WHERE id = 'bad'")
    rows(tmp_path, "UPDATE watch SET state = '[1]'")
    async with Told(tmp_path) as told:
        assert [each.id for each in told.found.incidents] == ["good"]
        assert told.found.watches == ()
        assert told.reasons.count("entry") == 2


async def test_it_stays_small(tmp_path, monkeypatch):
    """A month, so many per target, so many in all; what is open is never removed."""
    monkeypatch.setattr(tables, "ENDED_PER_TARGET_MAX", 3)
    monkeypatch.setattr(tables, "ENDED_MAX", 5)
    month = tables.ENDED_SECONDS_MAX
    async with Told(tmp_path) as told:
        await told.kept(
            *(incident(f"a{n}", t=NOW + n, resolved=True) for n in range(5)),
            *(incident(f"b{n}", target="b", t=NOW - n, resolved=True) for n in range(5)),
            incident("old", target="c", t=NOW - month - 60, resolved=True),
            incident("open", target="c", t=NOW - month - 60),
            watch=WatchRow(target="z", group="z", saved_t=NOW - month - 60, state={}),
        )
    found = await kept_in(tmp_path)
    assert sorted(each.id for each in found.incidents) == ["a2", "a3", "a4", "b0", "b1", "open"]
    assert found.watches == ()


def test_a_new_file_takes_every_step(tmp_path):
    """The version of the file is the number of steps, and a second start takes none."""
    for _ in range(2):
        file.connect(tmp_path).close()
        assert rows(tmp_path, "PRAGMA user_version") == [(len(schema.MIGRATIONS),)]
    assert rows(tmp_path, "PRAGMA application_id") == [(schema.APPLICATION_ID,)]


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
