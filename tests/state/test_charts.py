"""The file of what charts showed: its damage costs it alone."""

import sqlite3
from contextlib import closing

import pytest

from tests.state.test_worker import NOW, ids, incident
from vllm_watch.state import charts, file
from vllm_watch.state.charts import FOLDER, ChartTable, Part
from vllm_watch.state.folder import StateFolder
from vllm_watch.state.worker import Worker

PARTS = tuple(Part("a", f"engine {n}", "1", bytes((n,)) * 100) for n in range(3))


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """With a disk, and a machine, that others use."""
    monkeypatch.setattr(charts, "OPEN_SECONDS", 60.0)


class Opened:
    """A state folder, what was found in it, and what was told of the charts."""

    def __init__(self, folder):
        self.reasons = []
        self.folder = StateFolder(
            folder, lambda *_: None, lambda reason, *_: self.reasons.append(reason)
        )

    async def __aenter__(self):
        self.incidents = await self.folder.incidents.open(100)
        self.parts = await self.folder.charts.open()
        return self

    async def __aexit__(self, *_):
        await self.folder.close()


async def kept(folder):
    """Keep an incident and some parts."""
    async with Opened(folder) as opened:
        opened.folder.incidents.put([incident("one", t=NOW)])
        for part in PARTS:
            opened.folder.charts.put(part)


def change(folder, statement, *values):
    with closing(sqlite3.connect(folder / FOLDER / file.NAME)) as db, db:
        db.execute(statement, values)


async def test_what_was_put_is_found_and_the_newest_takes_the_place(tmp_path):
    """By target and name; the state folder's own file has no such table."""
    await kept(tmp_path)
    newer = Part("a", "engine 1", "2", b"new")
    async with Opened(tmp_path) as opened:
        assert set(opened.parts) == set(PARTS)
        opened.folder.charts.put(newer)
    async with Opened(tmp_path) as opened:
        assert set(opened.parts) == {PARTS[0], newer, PARTS[2]}
        assert set(opened.reasons) <= {None}
    with closing(sqlite3.connect(tmp_path / file.NAME)) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'chart'").fetchone() == (
            0,
        )


async def test_a_damaged_file_costs_the_charts_alone(tmp_path):
    """It is told, moved aside, and a new one is written; incidents are where they were."""
    await kept(tmp_path)
    (tmp_path / FOLDER / file.NAME).write_bytes(b"no database " * 500)
    async with Opened(tmp_path) as opened:
        assert opened.parts == ()
        assert ids(opened.incidents) == ["one"]
        opened.folder.charts.put(PARTS[0])
    assert "damaged" in opened.reasons
    assert len(list((tmp_path / FOLDER).glob(f"{file.NAME}.damaged-*"))) == 1
    async with Opened(tmp_path) as opened:
        assert opened.parts == PARTS[:1]


async def test_a_damaged_part_costs_itself_alone(tmp_path):
    await kept(tmp_path)
    change(
        tmp_path, "UPDATE chart SET data = ? WHERE name = 'engine 1'", bytes((1,)) * 99 + b"\x00"
    )
    async with Opened(tmp_path) as opened:
        assert set(opened.parts) == {PARTS[0], PARTS[2]}
    assert opened.reasons.count("entry") == 1


async def test_what_is_old_or_too_much_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "ROWS_MAX", 2)
    await kept(tmp_path)
    for n in range(3):
        change(tmp_path, "UPDATE chart SET saved_t = ? WHERE name = ?", NOW - 10 + n, f"engine {n}")
    worker = Worker(tmp_path / FOLDER, lambda *_: None)
    table = ChartTable(worker)
    await worker.do(lambda db: table.prune(db, NOW), seconds=60)
    assert {each.name for each in await table.open()} == {"engine 1", "engine 2"}
    await worker.do(lambda db: table.prune(db, NOW - 9 + charts.KEPT_SECONDS + 0.5), seconds=60)
    assert {each.name for each in await table.open()} == {"engine 2"}
    await worker.close()


@pytest.mark.parametrize("breaks", ["a file", "a folder"])
async def test_where_it_cannot_be_written_the_rest_goes_on(tmp_path, breaks):
    """What stands in its place is not ours."""
    if breaks == "a file":
        (tmp_path / FOLDER).write_text("")
    else:
        (tmp_path / FOLDER / file.NAME).mkdir(parents=True)
    await kept(tmp_path)
    async with Opened(tmp_path) as opened:
        assert ids(opened.incidents) == ["one"]
        assert opened.parts == ()
    assert opened.reasons
    assert None not in opened.reasons


async def test_an_uptime_is_kept_for_a_month(tmp_path):
    async with Opened(tmp_path) as opened:
        charts = opened.folder.charts
    with closing(sqlite3.connect(":memory:")) as db:
        charts.begin(db)
        for name in ("day", "uptime"):
            for age_days in (0.5, 3, 40):
                row = (f"{age_days}", name, -age_days * 86400, "1", 0, b"")
                db.execute("INSERT INTO chart VALUES (?, ?, ?, ?, ?, ?)", row)
        charts.prune(db, 0.0)
        found = db.execute("SELECT name, target FROM chart").fetchall()
    assert set(found) == {("day", "0.5"), ("uptime", "0.5"), ("uptime", "3")}
