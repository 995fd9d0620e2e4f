"""The page's answers beside the incidents: what witnesses say, how the watcher is, and restarts with buttons that really ask the guard."""

import re
import time
from dataclasses import replace

import pytest
from playwright.async_api import expect

from tests.export.browsing import LAPTOP, PHONE, UNKNOWN, card
from tests.export.demo_board import signals
from tests.export.page_states import STATES, ill, watcher_ill
from tests.export.serving import serving
from tests.restart.station import TOKEN, station
from vllm_watch.board.restarts import Paused, RestartCounts
from vllm_watch.state.attempt import Attempt

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def with_token(tab, button, **fields):
    dialog = tab.page.get_by_role("dialog")
    for label, text in fields.items():
        await dialog.get_by_label(label).fill(text)
    await dialog.get_by_role("button", name=button).click()
    return dialog


async def test_a_person_says_yes(opened, tmp_path):
    """The incident says that it waits for a yes; the button asks for the token once, and the restart begins."""
    async with station(tmp_path, peers="none") as one:
        one.incident()
        await one.decided()
        tab = await opened(one.server)
        stalled = card(tab, "Stalled: hang")
        await expect(stalled.locator(".plan-lines")).to_have_text(
            "A restart for this incident waits for approval."
        )
        await stalled.get_by_role("button", name="Approve the restart").click()
        dialog = await with_token(tab, "Restart it")
        await expect(dialog.locator(".ask-said")).to_have_text(
            "A token is needed: one of api.tokens in the configuration."
        )
        await with_token(tab, "Restart it", **{"Your token": "not-the-right-one-at-all"})
        await expect(dialog.locator(".ask-said")).to_be_visible()  # again: each try hides it
        await expect(dialog.locator(".ask-said")).to_contain_text("This needs a token")
        await with_token(tab, "Restart it", **{"Your token": TOKEN})
        await expect(dialog).to_be_hidden()
        await expect(stalled.locator(".plan-lines")).to_contain_text(
            "A restart has been under way since"
        )
        await expect(stalled.locator(".plan-buttons")).to_be_hidden()
        (entry,) = await one.entries("approve")
        assert entry.actor == "anna"
        assert await tab.page.evaluate("document.cookie + localStorage.length + sessionStorage.length") == "00"  # fmt: skip


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
async def test_why_not_now(opened, tmp_path, size):
    """Every gate that refuses is a sentence, the deciding one first; nothing is wider than the screen."""
    now_t = time.time()
    async with station(tmp_path, mode="auto", peers="none", cooldown_seconds=600) as one:
        await one.journal.write(Attempt(
            id="x", target="a", group="g", trigger="incident", hook="h", reason="", actor="vllm-watch",
            state="did_not_help", began_t=now_t - 60, called_t=now_t - 50, ended_t=now_t - 20,
            text="the new process has the fault again",
        ))  # fmt: skip
        one.incident()
        await one.decided()
        tab = await opened(one.server, size)
        said = card(tab, "Stalled: hang").locator(".plan-lines li")
        await expect(said).to_have_count(3)
        texts = await said.all_inner_texts()
        assert "last restarted" in texts[0]
        assert texts[1].strip().startswith("Also: 1 of 1 restarts in the last hour are spent")
        assert (
            "did not help (the new process has the fault again); a person must decide" in texts[2]
        )
        assert await tab.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
        assert tab.complaints == []


async def test_nothing_can_be_approved_while_restarts_are_paused(opened):
    """The card says so, and offers only to silence the incident."""
    board = STATES["awaiting approval"]()
    plan = board.targets["chat-1"].restart
    board.show_restart("chat-1", replace(plan, paused=Paused(actor="anna", reason="OPS-1")), RestartCounts())  # fmt: skip
    async with serving(board) as server:
        one = card(await opened(server), "Collapsed: KV cache leak")
        await expect(one.locator(".restart")).to_contain_text("(restarts are paused)")
        await expect(one.locator(".plan-buttons button")).to_have_text(["Silence"])


async def test_without_tokens_there_is_nothing_to_press(opened, server, tmp_path):
    """Where restarts are off, the page has neither sentences nor buttons of them."""
    tab = await opened(server)
    await expect(tab.page.locator(".plan:visible, .act:visible")).to_have_count(0)


async def said(witnesses):
    rows = await witnesses.locator("> div").evaluate_all(
        "(all) => all.map((e) => [e.querySelector('dt').textContent, e.dataset.tone, e.querySelector('dd').textContent])"
    )
    return {name: (tone, words.replace("\u202f", " ")) for name, tone, words in rows}


async def test_witnesses_stand_side_by_side(opened):
    """Where a hang is, the API answers and the engine does not move: both are told, in the card and in the row."""
    board = ill("stalled")
    board.call("canary", "chat-1", "read_timeout", 10.0, time.time())
    board.call("metrics", "chat-1", "ok", 0.004, time.time())
    async with serving(board) as server:
        tab = await opened(server)
        stalled = card(tab, "Stalled: hang")
        await expect(stalled.locator(".witnesses > div")).to_have_count(5)
        told = await said(stalled.locator(".witnesses"))
        assert told["/metrics"] == ("good", "answers in 4 ms")
        assert told["/health"] == ("good", "HTTP 200")
        assert told["canary"] == ("bad", "no answer in time; no success since the watcher started")
        assert told["engine"][0] == "bad"
        assert re.match(r"last progress \d min ", told["engine"][1])
        assert told["engine"][1].endswith("with 41 running, 17 waiting")
        assert told["process"] == ("good", "up 3 d 4 h")
        await tab.row("chat-1").locator("summary").first.click()
        # Times go on between two readings.
        shown = await said(tab.row("chat-1").locator(".target-body > .witnesses"))
        assert shown | {"engine": told["engine"]} == told
        assert shown["engine"][0] == "bad"
        assert re.match(r"last progress \d min ", shown["engine"][1])


async def test_a_dead_engine_behind_a_live_server_does_not_look_at_work(opened):
    """Its server still answers, with gauges that stand and rates of the last minute: none of it is told as well."""
    board, now = ill("down"), time.time()
    alive = signals("chat-1", "serving", "The engine core is dead.", now)
    rates = [each.generation_tokens_per_second for each in alive.engines.values()]
    dead = {
        name: replace(each, current_generation_tokens_per_second=0.0)
        for name, each in alive.engines.items()
    }
    board.publish(replace(alive, state="down", health_status=503, engines=dead))
    async with serving(board) as server:
        tab = await opened(server)
        down = card(tab, "Down: crash")
        await expect(down.locator(".witnesses")).to_contain_text("HTTP 503")
        assert (await said(down.locator(".witnesses")))["engine"][0] == "bad"
        await expect(down.locator(".chart-value").first).to_have_text("0\u202ftok/s")
        cells = tab.row("chat-1").locator("summary .cell-value")
        await expect(cells.first).to_have_text("0\u202ftok/s")
        assert await cells.all_inner_texts() == [
            "0\u202ftok/s",
            *[UNKNOWN] * 4,
        ]  # running, waiting, KV cache, TTFT
        await tab.row("chat-1").locator("summary").click()
        for charts, count in ((down, 3), (tab.row("chat-1"), 7)):
            told = charts.locator(".chart-value")
            await expect(told).to_have_text(["0\u202ftok/s", *[UNKNOWN] * (count - 1)])
        waiting = tab.row("chat-1").locator(".facts > div", has_text="Waiting, by reason")
        await expect(waiting.locator("dd")).to_have_text(re.compile(r"^(none|capacity \d+)$"))
    assert min(rates) > 0


async def test_a_watcher_that_is_not_well_says_so_on_top(opened):
    """Its own incident and what it cannot write come before all targets, without advice to restart any."""
    async with serving(watcher_ill()) as server:
        tab = await opened(server)
        await expect(tab.page.locator("h1")).to_have_text(
            "3 of 3 targets fell silent within 10 s: most likely the network of this watcher"
        )
        await expect(tab.page.locator("#verdict-more")).to_contain_text(
            "The watcher needs attention."
        )
        await expect(tab.page.locator(".watcher-troubles li")).to_have_text([
            "3 of 3 targets fell silent within 10 s: most likely the network of this watcher.",
            "The watcher cannot use its state folder: No space left on device",
            "Nothing is restarted: the disk is full",
        ])  # fmt: skip
        own = card(tab, "Many targets at once: unreachable")
        await expect(own.locator(".incident-where")).to_have_text("the watcher itself")
        await expect(own.locator(".incident-where a")).to_have_count(0)
