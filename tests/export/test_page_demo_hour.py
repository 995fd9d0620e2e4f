"""The demo, watched for half an hour of virtual time in a real browser."""

from collections.abc import Iterable

import pytest
from playwright.async_api import expect

from tests.export.browsing import LAPTOP, Tab
from tests.export.contradictions import Seen, contradictions
from tests.export.demo_hour import DemoHour
from tests.export.serving import serving
from vllm_watch.board import board
from vllm_watch.incidents.followed import Followed

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

LOOKS = range(55, 1801, 55)
"""Seconds of the demo. Its troubles come round every 585 s: each is looked at at other moments the next time."""


async def watched(browser, monkeypatch, looks: Iterable[float]) -> list[str]:
    """Everything that contradicts itself at these looks, with when."""
    found = []
    # No stream: the page polls, so it is the test that says when.
    monkeypatch.setattr(board, "LISTENERS_MAX", 0)
    async with (
        DemoHour(monkeypatch) as play,
        serving(play.board) as server,
        await browser.new_context(viewport={"width": LAPTOP[0], "height": LAPTOP[1]}) as context,
    ):
        tab = Tab(await context.new_page(), f"http://127.0.0.1:{server.port}/")
        await tab.page.goto(tab.url)
        await expect(tab.page.locator("#live")).to_have_attribute("data-state", "polled")
        for look_s in looks:
            await play.advance(look_s)
            seen = await Seen.of(tab.page)
            found += [f"{look_s} s: {each}" for each in contradictions(seen, play)]
    return found


async def test_half_an_hour_of_the_demo_in_a_browser_never_contradicts_itself(browser, monkeypatch):
    """Headline, cards, rows, API and truth agree at every look."""
    assert await watched(browser, monkeypatch, LOOKS) == []


async def test_a_lifecycle_that_knows_no_recovery_contradicts_itself(browser, monkeypatch):
    """What is over and still told as active is seen: the comparison is worth something."""

    def never(followed: Followed, _t: float, _at_s: float) -> bool:
        followed.unseen()
        return False

    monkeypatch.setattr(Followed, "recover", never)
    found = await watched(browser, monkeypatch, [90])  # the hang is over since 65 s
    assert any("all is well, and active are" in each for each in found)
