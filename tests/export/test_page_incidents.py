"""Incidents on the page in a real browser: first what is wrong, with its evidence and its end."""

import re
import time
from dataclasses import replace
from importlib import resources

import pytest
from playwright.async_api import expect

from tests.export.browsing import LAPTOP, card
from tests.export.demo_board import (
    event,
    fill,
    signals,
)
from tests.export.page_states import well
from tests.export.serving import serving
from tests.told import made
from vllm_watch.board.board import Board
from vllm_watch.incidents.incident import UPDATED, IncidentEvent
from vllm_watch.incidents.relations import STATE_OF
from vllm_watch.samples.target import Target
from vllm_watch.story.kinds import STORIES

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_each_open_incident_is_a_card(opened, server):
    """What wakes people comes first: kind and cause in words, whose it is, since when, why, and whether a restart helps."""
    tab = await opened(server)
    await expect(tab.page.locator(".incident h3")).to_have_text([
        "Down: crash", "Stalled: hang", "Overloaded: more demand than it can serve", "Host memory grows: leak",
        "Stale GPU memory: an orphaned worker",
    ])  # fmt: skip
    assert await tab.page.locator(".incident .severity").all_inner_texts() == [
        "critical", "critical", "warning", "warning", "info",
    ]  # fmt: skip
    stalled, crashed = card(tab, "Stalled: hang"), card(tab, "Down: crash")
    await expect(stalled.locator(".incident-where")).to_have_text("llama-70b-bengine 0")
    await expect(crashed.locator(".incident-where")).to_have_text("llama-8b-canary")
    await expect(stalled.locator(".incident-summary")).to_have_text(
        "No step has ended for 94 s although 41 requests run and 17 wait."
    )
    pro, contra = await stalled.locator(".evidence-lists section").all_inner_texts()
    assert pro.replace("\u202f", " ").split("\n") == [
        "Evidence",
        "No step has ended for 94 s; the longest pause before was 1.3 s.", "0 steps/s", "expected 31 steps/s",
        "41 requests are running and none has received a token.",
        "The GPU is busy all the time, which a kernel that never returns is.", "100 %", "expected 93 %",
    ]  # fmt: skip
    assert contra.split("\n") == [
        "Contradicting evidence", "/health still answers; it does while an engine hangs.", "HTTP 200",
    ]  # fmt: skip
    await expect(crashed.locator(".evidence section").nth(1)).to_contain_text(
        "No contradicting evidence."
    )
    await expect(stalled.locator(".restart")).to_have_text(
        "Restart: vllm-watch will not restart it (restarts are off). A restart is advised: it usually fixes this."
    )
    await expect(crashed.locator(".restart")).to_have_text(
        "Restart: vllm-watch will not restart it (restarts are off). Nothing listens on its port: it needs a start, not a restart."
    )
    await expect(stalled.locator(".first-step")).to_have_text(
        f"Do: {STORIES['engine_stalled'].first_step_of('hang', advised=True)}"
    )
    await expect(crashed.locator(".first-step")).to_contain_text(
        "If its supervisor (systemd, Docker, Kubernetes) has not started it again within 2 minutes"
    )
    await expect(stalled.get_by_role("link", name="Runbook")).to_have_attribute(
        "href", "runbooks/engine_stalled"
    )
    top = await tab.page.locator(".incident").first.bounding_box()
    assert top is not None
    assert top["y"] < LAPTOP[1] / 2
    assert tab.complaints == []


async def test_where_the_processes_of_a_hang_stand_is_on_its_card(opened, server, board):
    """A sentence of its own, shown once it is known; and the first step names the PID that it gives."""
    tab = await opened(server)
    stalled = card(tab, "Stalled: hang")
    await expect(stalled.locator(".incident-stacks")).to_be_hidden()
    said = "API server (PID 10): waits for requests; VLLM::EngineCore (PID 20): waits in shared memory broadcast."
    (known,) = [
        each for each in board.incidents.listed() if each.open and each.kind == "engine_stalled"
    ]
    board.tell([IncidentEvent(UPDATED, time.time(), replace(known, stacks=said))])
    await expect(stalled.locator(".incident-stacks")).to_have_text(said)
    await expect(stalled.locator(".first-step")).to_contain_text("(py-spy dump --pid 20)")
    assert tab.complaints == []


async def test_what_recovers_asks_for_nobody(opened, server, board):
    """It says what it was, for how long, and when it closes; no first step, no advice, and the headline leaves it out."""
    tab = await opened(server)
    story = {"engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page", "summary": "No step for 65 s.", "restart_advised": True}  # fmt: skip
    now = time.time()
    begun = event("embeddings", story, now - 105)
    board.tell(made(begun))
    card = tab.page.locator(".incident", has_text="No step for 65 s.")
    await expect(card.locator(".first-step")).to_be_visible()
    title = await tab.page.title()
    often = "recurring: 3rd time in 41 min, 3 min in all"
    over = {
        "event": "updated", "t": now - 40, "phase": "recovering", "began": now - 105, "ended": now - 40, "restart_advised": False,
        "requests_lost": 24, "times": 3, "recurring": {"times": 3, "within_seconds": 2460.0, "ill_seconds": 180.0, "earlier": "", "text": often},
    }  # fmt: skip
    await expect(card.locator(".incident-cost")).to_have_text("Cost: No request gets a token.")
    board.tell(made(begun | over, opened_t=now - 105))
    await expect(card.locator(".incident-cost")).to_have_text("Cost: 24 requests lost.")
    await expect(card.locator(".since")).to_have_text(re.compile(f", {often}$"))
    await expect(card.locator(".severity")).to_have_text("recovering")
    await expect(card.locator(".incident-recovery")).to_have_text(
        re.compile(r"^Recovered 4\d\u202fs ago, after 1\u202fmin 5\u202fs\.$")
    )
    await expect(card.locator(".first-step")).to_be_hidden()
    await expect(card.locator(".restart")).to_be_hidden()
    await expect(tab.row("embeddings").locator(".flag")).to_have_text("recovering: Stalled: hang")
    title_of_list = tab.page.locator("#incidents-title")
    await expect(title_of_list).to_have_text("6 open incidents, 1 recovering")
    assert await tab.page.title() != title
    end = {"event": "resolved", "t": now, "resolution": "restarted"}
    board.tell(made(begun | over | end, opened_t=now - 105))
    await expect(tab.page.locator(".ended-lasted").first).to_have_text(
        "lasted 1\u202fmin 5\u202fs, 24 requests lost"
    )
    assert tab.complaints == []


async def test_an_incident_of_the_hosts_gpus_is_in_the_headline(opened):
    """All targets are healthy, and somebody has to come all the same: the headline does not say that all is well."""
    board = Board()
    board.add_target(Target(name="calm", url="http://h:1"), 600.0)
    board.publish(signals("calm", "serving", "It serves.", time.time()))
    notebook = {"engine": None, "kind": "stale_vram", "cause": "idle_notebook", "severity": "ticket", "summary": "an idle notebook holds 2.2 GiB of GPU 3"}  # fmt: skip
    fault = {"engine": None, "kind": "gpu_fault", "cause": "gpu_lost", "severity": "page", "summary": "GPU 3: it is lost"}  # fmt: skip
    async with serving(board) as server:
        tab = await opened(server)
        headline, more = tab.page.locator("#verdict"), tab.page.locator("#verdict-more")
        board.tell(made(event(board.host.target.name, notebook, time.time())))
        headline_text = tab.page.locator("#verdict-text")
        await expect(headline_text).to_have_text("An idle notebook holds 2.2 GiB of GPU 3")
        await expect(headline).to_have_attribute("data-tone", "warn")
        board.tell(made(event(board.host.target.name, fault, time.time())))
        await expect(headline).to_have_attribute("data-tone", "bad")
        await expect(headline_text).to_have_text(fault["summary"])
        await expect(more).to_have_text(f"Also: {notebook['summary']}.")
        assert (await tab.page.title()).startswith("(2) ")


async def test_a_warning_is_no_red_row(opened):
    """The state's colour, and the headline's, are no worse than what its incidents say of it."""
    board, now = well(), time.time()
    board.publish(signals("chat-1", "collapsed", "3 times slower", now))
    story = {"engine": "0", "kind": "throughput_collapse", "cause": "slow_engine", "severity": "ticket", "summary": "3 times slower"}  # fmt: skip
    slow = event("chat-1", story, now - 30)
    async with serving(board) as server:
        tab = await opened(server)
        badge = tab.row("chat-1").locator("summary .badge")
        leak = {**story, "kind": "host_memory_growth", "cause": "leak"}
        board.tell(made(event("chat-1", leak, now - 3600)))
        await expect(tab.row("chat-1").locator(".flag")).to_have_count(1)
        await expect(badge).to_have_attribute(
            "data-tone", "bad"
        )  # a ticket of something else says nothing of it
        board.tell(made(slow))
        await expect(badge).to_have_attribute("data-tone", "warn")
        await expect(tab.page.locator("#verdict")).to_have_attribute("data-tone", "warn")
        await expect(tab.row("chat-1")).to_have_attribute("data-tone", "warn")
        board.tell(
            made(slow | {"event": "updated", "t": now, "severity": "page"}, opened_t=now - 30)
        )
        await expect(badge).to_have_attribute("data-tone", "bad")
        await expect(tab.page.locator("#verdict")).to_have_attribute("data-tone", "bad")


async def test_the_page_knows_which_incident_tells_of_which_state():
    """As judgement does; what is not named tells of none."""
    words = (resources.files("vllm_watch.export") / "page" / "words.js").read_text()
    told = re.search(r"STATE_OF = table\(\{(.+)\}\)", words)
    assert told
    assert dict(re.findall(r'(\w+): "(\w+)"', told[1])) == STATE_OF


async def test_a_storm_of_incidents_is_one_card(opened):
    """Five hundred of one kind and cause are counted, with the worst by name; the others are a click away; it stays quick."""
    board = Board()
    fill(board, extra=491, now=time.time(), back_seconds=10, interval_seconds=600.0)
    async with serving(board) as server:
        tab = await opened(server)
        down = {"engine": None, "kind": "engine_down", "cause": "unreachable", "severity": "page", "summary": "No answer for 15 s."}  # fmt: skip
        for i in range(491):
            name = f"fleet-{i:03d}"
            board.tell(made(event(name, down, time.time())))
        await expect(tab.page.locator("#incidents-title")).to_have_text("496 open incidents")
        await expect(tab.page.locator("h1")).to_have_text("491 targets down: unreachable")
        await expect(tab.page.locator("#verdict-more")).to_have_text(
            "Also: llama-8b-canary is down: crash · llama-70b-b is stalled: hang · GPU 3 fell off the bus · 2 more."
            " 495 of 500 targets and a GPU need attention."
        )
        await expect(tab.page.locator(".incident")).to_have_count(6)
        storm = tab.page.locator(".incident").first
        await expect(storm.locator("h3")).to_have_text("Down: unreachable")
        await expect(storm.locator(".incident-cost")).to_have_text("Cost: Unknown: users may reach it by another route.")  # fmt: skip
        await expect(storm.locator(".incident-where")).to_have_text("491 targets of chat at once")
        await expect(storm.locator(".storm-names li")).to_have_count(5)
        await expect(storm.locator(".storm-names")).to_have_attribute("data-more", "and 486 more")
        assert tab.complaints == []
