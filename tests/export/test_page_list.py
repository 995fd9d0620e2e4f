"""How targets are listed, in a real browser: sorted by a column, each with a strip of its last 24 hours."""

import re
import time

import pytest
from playwright.async_api import expect

from tests.export.demo_board import fill
from vllm_watch.board.board import Board
from vllm_watch.board.uptime import STATES

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WIDE = (1400, 4000)
"""So high that every row is in sight: what is out of sight is not drawn."""

NAMES = "[...document.querySelectorAll('#list > details.target')].map((e) => e.id.slice('target-'.length))"
RUNNING = (
    "[...document.querySelectorAll('#list .cell-running .cell-value')].map((e) => e.textContent)"
)


@pytest.fixture
def board() -> Board:
    """Some targets, none of them stale while a busy machine draws it; of all but two of the last 20 hours they were seen."""
    board, now = Board(), time.time()
    fill(board, extra=12, now=now, back_seconds=60, interval_seconds=3600.0)
    for entry in board.targets.values():
        for t in range(int(now) - 72_000, int(now) - 60, 60):
            if not 36_000 < now - t < 43_200:
                entry.day.push(t, STATES.index("healthy"), 60.0)
    return board


async def test_rows_are_sorted_by_a_column(opened, server):
    """By its head or by the choice above; the largest first, what is unknown last, and back to what is urgent."""
    tab = await opened(server, WIDE)
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


async def test_a_row_shows_its_day(opened, server):
    """By height and not by colour alone, without opening it."""
    tab = await opened(server, WIDE)
    # Its past incident was 17,300 to 21,000 s ago.
    for name, state, path in (
        ("qwen3-moe", "critical", r"^(M\d+ 10V0h0.82V10z){4,6}$"),
        ("qwen3-moe", "healthy", r"^(M\d+ 10V7h0.82V10z){50,}$"),
        ("qwen3-moe", "unknown", r"^(M[\d.]+ 10v-1h0.4v1z){20,}$"),
        ("llama-8b-canary", "down", r"M95 4V0h0.82V4zM95 10V6h0.82V10z$"),
    ):
        strip = tab.row(name).locator("summary .day-cells")
        await expect(strip.locator(f"path.day-{state}")).to_have_attribute("d", re.compile(path))
    assert tab.complaints == []
