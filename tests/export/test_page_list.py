"""How targets are listed, in a real browser: sorted by a column, searched, each with a strip of its last 24 hours."""

import gzip
import re
import time

import pytest
from playwright.async_api import expect

from tests.export.demo_board import fill, signals
from tests.export.page_states import many, well
from tests.export.serving import serving
from vllm_watch.board.board import Board
from vllm_watch.board.uptime import STATES
from vllm_watch.export import page_files

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WIDE = (1400, 4000)
"""So high that every row is in sight: what is out of sight is not drawn."""

PACKED_KB_MAX = 100
"""Somebody opens it over a bad line at night."""

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


async def test_all_of_it_is_small(opened):
    """Every file together, printed; and not one from elsewhere."""
    files = page_files.contents()
    plain_kb = sum(map(len, files.values())) / 1000
    packed_kb = sum(len(gzip.compress(content, 1)) for content in files.values()) / 1000
    print(f"the page: {len(files)} files, {plain_kb:.0f} kB, {packed_kb:.0f} kB as they are sent")
    assert packed_kb < PACKED_KB_MAX
    async with serving(well()) as server:
        tab = await opened(server)
        asked = await tab.page.evaluate("performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname)")  # fmt: skip
        fetched = {path.removeprefix("/page/") for path in asked if path.startswith("/page/")}
        of_runbooks = {"runbook.css"}  # fetched by their pages
        assert fetched == files.keys() - {"index.html"} - of_runbooks


async def test_the_ill_come_first_and_the_search_finds_the_rest(opened):
    """Sixty rows, the ill on top; by name, group, state or incident any other is found."""
    board = many()
    async with serving(board) as server:
        tab = await opened(server)
        rows = tab.page.locator("details.target")
        await expect(rows).to_have_count(60)
        await expect(tab.page.locator("#more")).to_have_text("Show 440 more that are healthy")
        tones = await rows.evaluate_all("(all) => all.map((e) => e.dataset.tone)")
        assert tones[:4] == ["bad", "bad", "warn", "warn"]
        assert "bad" not in tones[4:]
        board.publish(signals("fleet-480", "stalled", "No step for 20 s.", time.time()))
        await expect(tab.page.locator("summary h3").nth(2)).to_have_text("fleet-480")
        for words, name in (("fleet-377", "fleet-377"), ("HANG", "llama-70b-b")):
            await tab.page.locator("#search").fill(words)
            await expect(tab.page.locator("summary h3")).to_have_text([name])
        await tab.page.locator("#search").fill("no such")
        await expect(tab.page.locator("#empty")).to_have_text("No target matches.")
