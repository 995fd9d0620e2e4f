"""`vllm-watch journal`: what was done, as text and as JSON, from when on, and from which folder."""

import asyncio
import json
import time
from dataclasses import asdict

import pytest

from tests.export.serving import serving
from tests.export.small_board import small_board
from vllm_watch.__main__ import main
from vllm_watch.export import api
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Entry, Journal

NOW = time.time()
OLD = Entry(
    t=NOW - 86400, actor="ana as root", source="cli", action="reclaim_intent", target="process 7 (VLLM::EngineCore)",
    reason="orphaned_worker: its server is gone", before="50.0 GiB on GPU 0",
)  # fmt: skip
NEW = Entry(
    t=NOW - 60, actor="ana as root", source="cli", action="reclaim_outcome", target="process 7 (VLLM::EngineCore)",
    after="freed: GPU 0 50.5 GiB → 512 MiB used, " + "and so on, " * 30,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    async def write():
        journal = Journal(tmp_path)
        for entry in (OLD, NEW):
            await journal.note(entry)
        await journal.close()

    asyncio.run(write())
    return tmp_path


def run(capsys, *arguments):
    status = main(["journal", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_as_text(folder, capsys, monkeypatch):
    """Oldest first: when, what, to whom, by whom, why, and what came of it; nothing is too wide."""
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run(capsys, "--state-dir", folder)
    lines = out.splitlines()
    assert status == 0
    assert lines[0].endswith("reclaim intent: process 7 (VLLM::EngineCore)")
    assert lines[1:4] == [
        "    by ana as root (cli)",
        "    orphaned_worker: its server is gone",
        "    before: 50.0 GiB on GPU 0",
    ]
    assert "freed: GPU 0" in out
    assert max(map(len, lines)) < 80


SINCE = {
    "two hours": ("2h", 1),
    "two days": ("2d", 2),
    "seconds": ("3000s", 1),
    "too short": ("10s", 0),
    "Unix seconds": (f"{NOW - 3600}", 1),
    "a date": ("2020-01-01", 2),
    "a date with its zone": ("2020-01-01T10:00+02:00", 2),
}


@pytest.mark.parametrize(("since", "count"), SINCE.values(), ids=SINCE)
def test_from_when_on(folder, capsys, since, count):
    _, out, _ = run(capsys, "--state-dir", folder, "--json", "--since", since)
    assert len(out.splitlines()) == count


def test_where_nothing_was_done(folder, capsys, tmp_path):
    status, out, _ = run(capsys, "--state-dir", folder, "--since", "1s")
    assert (status, out) == (0, f"no entries of that time in {tmp_path}\n")


def test_the_folder_of_run(folder, capsys, monkeypatch):
    """Where none is named: that of the daemon's environment, else the user's own."""
    monkeypatch.setenv("VLLM_WATCH_STATE_DIR", str(folder))
    assert len(run(capsys, "--json")[1].splitlines()) == 2
    monkeypatch.delenv("VLLM_WATCH_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "xdg"))
    status, _, err = run(capsys, "--json")
    assert status == 2
    assert str(folder / "xdg" / "vllm-watch") in err


async def asked(journal, capsys, *arguments):
    async with serving(small_board(), journal=None if journal is None else journal.told) as server:
        where = f"http://127.0.0.1:{server.port}"
        return where, *await asyncio.to_thread(run, capsys, "--url", where, *arguments)


async def test_of_a_running_daemon(tmp_path, capsys):
    """The same as from its folder, attempts too; what was lost is said."""
    attempt = Attempt(
        id="5f0c", target="llama", group="g", trigger="incident", hook="h", reason="no step for 40 s", actor="ana", state="helped",
        began_t=NOW - 3600, called_t=NOW - 3500, ended_t=NOW - 3000, payoff_ratio=0.9, text="better", before={"steps": 3},
    )  # fmt: skip
    journal = Journal(tmp_path)
    for entry in (OLD, NEW):
        await journal.note(entry)
    await journal.write(attempt)
    await journal.set("history_lost", {"why": "the file was cut"})
    _, status, out, err = await asked(journal, capsys, "--json")
    entries = [json.loads(line) for line in out.splitlines()]
    assert (status, entries[0], entries[2]) == (0, asdict(OLD), asdict(NEW))
    assert (entries[1]["action"], entries[1]["attempt"]) == ("attempt", asdict(attempt))
    assert err.startswith("a part of the history is lost: the file was cut;")
    _, _, remote, _ = await asked(journal, capsys)
    _, local, _ = await asyncio.to_thread(run, capsys, "--state-dir", tmp_path)
    assert remote == local
    for words in ("attempt: llama", "by ana (incident)", "payoff +90%"):
        assert words in local
    _, _, out, _ = await asked(journal, capsys, "--since", "2h", "--json")
    assert len(out.splitlines()) == 2
    await journal.close()


async def test_of_a_running_daemon_not_all(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(api, "JOURNAL_ENTRIES_MAX", 1)
    journal = Journal(tmp_path)
    for entry in (OLD, NEW):
        await journal.note(entry)
    _, _, out, err = await asked(journal, capsys, "--json")
    assert [json.loads(line) for line in out.splitlines()] == [asdict(NEW)]
    assert err == "only the last 1 entries of that time are shown here\n"
    await journal.close()


async def test_of_a_daemon_without_one(capsys):
    """What it says, and what to do, in its own words."""
    where, status, out, err = await asked(None, capsys)
    assert (status, out) == (2, "")
    assert err == (
        f"vllm-watch: {where} answers with HTTP status 404: There is no journal here\n"
        "  → Set state_dir in the configuration\n"
    )
