"""The last 24 hours of a target on the page: a strip in its row, and each span readable and a link to its incident."""

import re
import time

import pytest
from playwright.async_api import expect

from tests.export.demo_board import fill
from vllm_watch.board.board import Board
from vllm_watch.board.uptime import CELL_SECONDS, CELLS, STATES

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WIDE, NARROW = (1400, 4000), (390, 9000)
"""So high that every row is in sight: what comes in above a row moves it, and what is out of sight is not drawn."""

HELPED = "qwen3-moe"  # of a past incident, 17,300 to 21,000 s ago
CELL_OF = "(e) => Math.round(CELLS * parseFloat(e.style.left) / 100)".replace("CELLS", str(CELLS))


@pytest.fixture
def board() -> Board:
    """Every story of the demo, of which the last 20 hours were seen but for two."""
    board = Board()
    now = time.time()
    fill(board, extra=0, now=now, back_seconds=60, interval_seconds=600.0)
    for entry in board.targets.values():
        for t in range(int(now) - 72_000, int(now) - 60, 60):
            if not 36_000 < now - t < 43_200:
                entry.day.push(t, STATES.index("healthy"), 60.0)
    return board


def path(scope, state: str):
    return scope.locator(f"path.day-{state}")


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
async def test_a_row_shows_its_day(opened, server, size, scheme):
    """By height and not by colour alone; without opening it, and nothing is wider than the screen."""
    tab = await opened(server, size, scheme)
    strip = tab.row(HELPED).locator("summary .day-cells")
    await expect(path(strip, "critical")).to_have_attribute(
        "d", re.compile(r"^(M\d+ 10V0h0.82V10z){4,6}$")
    )
    await expect(path(strip, "healthy")).to_have_attribute(
        "d", re.compile(r"^(M\d+ 10V7h0.82V10z){50,}$")
    )
    await expect(path(strip, "unknown")).to_have_attribute(
        "d", re.compile(r"^(M[\d.]+ 10v-1h0.4v1z){20,}$")
    )
    down = tab.row("llama-8b-canary").locator("summary .day-cells")
    await expect(path(down, "down")).to_have_attribute(
        "d", re.compile(r"M95 4V0h0.82V4zM95 10V6h0.82V10z$")
    )
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.complaints == []


async def test_a_busy_watcher_is_asked_again(opened, server):
    """Its first answer failed: the row has its day a few seconds later, without being touched."""
    tab = await opened(server, WIDE)
    asked = []

    async def answer(route):
        asked.append(route.request.url)
        await (route.fulfill(status=503) if len(asked) == 1 else route.continue_())

    await tab.page.route(re.compile(rf"/api/v1/history\?.*{HELPED}"), answer)
    await tab.page.reload()
    strip = tab.row(HELPED).locator("summary .day-cells")
    await expect(path(strip, "critical")).to_have_attribute("d", re.compile(r"^M\d"))
    assert len(asked) == 2


async def test_a_span_is_read_by_keyboard_and_pointer_and_leads_to_its_incident(opened, server):
    """Its time, its state, and what was wrong for how long."""
    tab = await opened(server)
    row = tab.row(HELPED)
    await row.locator("summary").first.click()
    plot, said = row.locator(".day-plot"), row.locator(".day-said")
    await expect(said).to_contain_text(
        re.compile(r"Spans of 15.min: .*\d critical.*\d+ healthy.*\d+ unknown")
    )
    await plot.focus()
    await tab.page.keyboard.press("Home")
    await expect(said).to_have_text(re.compile(r"^\d\d:\d\d–\d\d:\d\d: unknown"))
    await tab.page.keyboard.press("End")
    spans_back = int(19_000 // CELL_SECONDS)
    for _ in range(spans_back):
        await tab.page.keyboard.press("ArrowLeft")
    words = re.compile(r"^\d\d:\d\d–\d\d:\d\d: critical, Collapsed: .* \(engine 1\) 15.min")
    await expect(said).to_have_text(words)
    await expect(plot).to_have_attribute("aria-valuetext", words)
    read = await said.inner_text()
    cell = await row.locator(".day-cursor").evaluate(CELL_OF)

    await tab.page.keyboard.press("Escape")
    await expect(said).to_contain_text("Spans of")
    box = await plot.bounding_box()
    assert box is not None
    await plot.hover(position={"x": box["width"] * (cell + 0.5) / CELLS, "y": 5})
    await expect(said).to_have_text(read)
    await said.locator("a").first.click()
    await expect(tab.page).to_have_url(re.compile("#incident-throughput_collapse-"))
    await expect(tab.page.locator("li.ended:focus:has(details[open])")).to_have_count(1)
    assert tab.complaints == []


async def test_what_opens_now_is_in_the_newest_span(opened, server, board):
    tab = await opened(server, WIDE)
    row = tab.row("llama-70b-b")
    strip = row.locator("summary .day-cells")
    await expect(path(strip, "critical")).to_have_attribute("d", re.compile(r"M95 10V0"))
