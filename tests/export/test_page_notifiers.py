"""Who is told, on the page: how each notifier does, and a test message for who holds a token."""

import time

import pytest
from playwright.async_api import expect

from tests.export.page_states import well
from tests.export.serving import serving
from vllm_watch.board.health import NotifierHealth
from vllm_watch.settings.stages import TokenSettings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

TOKEN = "ana-0123456789abcdef"


async def test_a_test_message_is_sent_with_a_token_and_its_outcome_said(opened, tmp_path):
    """The state of the notifier stands beside the button; without tokens there is no button."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    asked = []

    async def send(name):
        asked.append(name)
        return 200, {"text": f"The test message of {name} was sent"}

    board = well(1)
    board.notifiers = {"oncall": NotifierHealth("webhook")}
    board.notifiers["oncall"].count("failed", 2, 1, "HTTP status 503", time.time())
    tokens = (TokenSettings(name="ana", file=file),)
    async with serving(board, tokens=tokens, test_notifier=send) as server:
        tab = await opened(server)
        sink = tab.page.locator(".sinks li")
        await expect(sink).to_contain_text(
            "Notifier oncall (webhook): fails: HTTP status 503, nothing sent since the watcher started, 1 waiting, failed 2×"
        )
        await sink.get_by_role("button").click()
        dialog = tab.page.get_by_role("dialog")
        await dialog.get_by_label("Your token").fill(TOKEN)
        await dialog.get_by_role("button", name="Send it").click()
        await expect(dialog).to_be_hidden()
        await expect(tab.page.locator("#announce")).to_have_text(
            "The test message of oncall was sent"
        )
        assert asked == ["oncall"]
        assert tab.complaints == []
        await tab.page.close()
    async with serving(board) as server:
        tab = await opened(server)
        await expect(tab.page.locator(".sinks li")).to_have_count(1)
        await expect(tab.page.locator(".sinks li").get_by_role("button")).to_have_count(0)
