"""Restarts on the page in a real browser: why not now in sentences, and buttons that really ask the guard."""

import time
from dataclasses import replace

import pytest
from playwright.async_api import expect

from tests.export.browsing import LAPTOP, PHONE, card
from tests.export.page_states import STATES
from tests.export.serving import serving
from tests.restart.station import TOKEN, station
from vllm_watch.board.restarts import Paused, RestartCounts
from vllm_watch.state.attempt import Attempt

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def with_token(tab, button, **fields):
    """Press the dialog's button after filling it in."""
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


async def test_pause_and_resume(opened, tmp_path):
    """A pause is told on top of the page, with who, until when and why; and ends by a button."""
    async with station(tmp_path) as one:
        tab = await opened(one.server)
        await tab.page.get_by_role("button", name="Pause restarts").click()
        dialog = await with_token(tab, "Pause", **{"Your token": TOKEN})
        await expect(dialog.locator(".ask-said")).to_have_text(
            "Give a reason: it is written to the journal."
        )
        await with_token(tab, "Pause", Reason="we move the rack", Minutes="90")
        await expect(tab.page.locator("#restarts-text")).to_contain_text(
            "Restarts are paused by anna until"
        )
        await expect(tab.page.locator("#restarts-text")).to_contain_text("we move the rack")
        await tab.page.locator("#restarts-resume").click()
        await with_token(tab, "Resume")  # the token is known by now
        await expect(tab.page.locator("#restarts")).to_be_hidden()
        assert [entry.reason for entry in await one.entries("pause")] == ["we move the rack"]


async def test_without_tokens_there_is_nothing_to_press(opened, server, tmp_path):
    """Where restarts are off, the page has neither sentences nor buttons of them."""
    tab = await opened(server)
    await expect(tab.page.locator(".plan:visible, .act:visible")).to_have_count(0)
