"""How targets are listed, in a real browser: sorted by a column, grouped by model, in one line each."""

import time

import pytest
from playwright.async_api import expect

from tests.export.demo_board import fill
from vllm_watch.board.board import Board

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

SIXTY = 51  # beside the demo's own
LAPTOP = (1400, 900)
NAMES = "[...document.querySelectorAll('#list > details.target')].map((e) => e.id.slice('target-'.length))"
RUNNING = (
    "[...document.querySelectorAll('#list .cell-running .cell-value')].map((e) => e.textContent)"
)


@pytest.fixture
def board() -> Board:
    """Sixty targets, none of them stale while a busy machine draws it."""
    board = Board()
    fill(board, extra=SIXTY, now=time.time(), back_seconds=60, interval_seconds=3600.0)
    return board


async def test_rows_are_sorted_by_a_column(opened, server):
    """By its head or by the choice above; the largest first, what is unknown last, and back to what is urgent."""
    tab = await opened(server, LAPTOP)
    urgent = await tab.page.evaluate(NAMES)
    await tab.page.locator("#columns-head [data-sort=running]").click()
    await expect(tab.page.locator("#sort")).to_have_value("running")
    values = await tab.page.evaluate(RUNNING)
    known = [int(value) for value in values if value.isdigit()]
    assert known == sorted(known, reverse=True)
    assert values[: len(known)] == [str(value) for value in known]
    await tab.page.locator("#sort").select_option("name")
    names = await tab.page.evaluate(NAMES)
    assert names.index("fleet-002") < names.index("fleet-010") < names.index("llama-70b-a")
    await tab.page.locator("#sort").select_option("urgency")
    assert await tab.page.evaluate(NAMES) == urgent
    assert tab.complaints == []


async def test_rows_are_grouped_by_model(opened, server, board):
    """A heading with the count of each, the group of the most urgent first; and as before when it is switched off."""
    tab = await opened(server, LAPTOP)
    before = await tab.page.evaluate(NAMES)
    group = tab.page.locator("#group")
    await group.click()
    await expect(group).to_have_attribute("aria-pressed", "true")
    heads = tab.page.locator("#list > .group-head")
    models = {e.model_name for entry in board.targets.values() if entry.signals for e in entry.signals.engines.values()}  # fmt: skip
    said = await heads.all_inner_texts()
    assert {each.rpartition(" · ")[0] for each in said} >= models
    assert sum(int(each.rpartition(" · ")[2]) for each in said) == len(before)
    first = tab.page.locator("#list > *").nth(1)
    await expect(first).to_have_id(f"target-{before[0]}")
    await group.click()
    await expect(heads).to_have_count(0)
    assert await tab.page.evaluate(NAMES) == before
    assert tab.complaints == []


async def test_sixty_compact_rows_are_two_screens(opened, server):
    """One line each; what is wrong with one is still said, and an opened one has all."""
    tab = await opened(server, LAPTOP)
    await tab.page.locator("#compact").click()
    rows = tab.page.locator("#list > details.target")
    await expect(rows).to_have_count(60)
    assert (await tab.page.locator("#list").bounding_box() or {})["height"] <= 2 * LAPTOP[1]
    await expect(tab.row("mistral-batch").locator(".flag")).to_be_visible()
    row = tab.row("fleet-003")
    await expect(row.locator(".sentence")).to_be_hidden()
    await row.locator("summary").first.click()
    await expect(row.locator(".sentence")).to_be_visible()
    assert tab.complaints == []
