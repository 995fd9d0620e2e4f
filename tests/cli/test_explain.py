"""`vllm-watch explain`: of an open incident and of one that has ended, as text and as JSON."""

import asyncio
import json

import pytest

from tests.export.serving import serving
from tests.export.small_board import small_board
from tests.incidents.test_lifecycle import Story, collapse
from tests.incidents.test_reasons import FOUND, NEXT, RULE, SLOWER
from vllm_watch.__main__ import main
from vllm_watch.incidents.incident import RESOLVED, IncidentEvent, ended, stepped
from vllm_watch.incidents.lifecycle import Lifecycle


@pytest.fixture
def incident():
    story = Story()
    story.lifecycle = Lifecycle("chat")
    return story.look(collapse(**FOUND)).lifecycle.incidents[0]


async def asked(capsys, event, *arguments):
    board = small_board()
    board.tell([event])
    async with serving(board) as server:
        where = f"http://127.0.0.1:{server.port}"
        status = await asyncio.to_thread(main, ["explain", *arguments, "--url", where])
    said = capsys.readouterr()
    return status, said.out, said.err


async def test_why_it_is_no_page_and_no_restart_stands_at_the_head(capsys, incident, monkeypatch):
    """The first lines answer what a tired person asks; below stands each change with its rule."""
    monkeypatch.setenv("COLUMNS", "100")
    event = IncidentEvent("opened", incident.opened_t, incident)
    status, out, _ = await asked(capsys, event, incident.id)
    lines = out.splitlines()
    assert status == 0
    assert " on chat, engine 0: warning, active, since " in lines[0]
    assert f"  Severity: A warning, not critical: it {NEXT.text}." in lines
    assert any(line.startswith("  Restart:  No restart is advised yet: ") for line in lines)
    assert f"  rule:    {RULE.text}" in lines
    assert f"  for:     {SLOWER.text}" in lines
    assert max(map(len, lines)) < 100


async def test_one_that_has_ended_is_told_in_the_past(capsys, incident, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    t = incident.opened_t + 60.0
    event = IncidentEvent(RESOLVED, t, stepped(ended(incident, t, "healthy"), t, RESOLVED))
    _, out, _ = await asked(capsys, event, incident.id)
    first, *lines = out.splitlines()
    assert " on chat, engine 0: was warning for 60 s, ended " in first
    assert first.endswith(": it recovered")
    assert "  Severity: It is over." in lines
    assert "  Restart:  It is over: no restart is needed." in lines
    status, out, _ = await asked(capsys, event, incident.id, "--json")
    said = json.loads(out)
    assert (status, said["id"], said["resolution"]) == (0, incident.id, "healthy")
    assert [step["event"] for step in said["explanation"]["way"]] == ["opened", "resolved"]
    assert said["explanation"]["no_page"] == "It is over."


async def test_an_id_that_is_not_known_is_one_sentence(capsys, incident):
    event = IncidentEvent("opened", incident.opened_t, incident)
    status, out, err = await asked(capsys, event, "engine_down-1-x/../status")
    assert (status, out) == (2, "")
    assert "There is no incident" in err
