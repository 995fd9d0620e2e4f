"""What was, on the page in a real browser: hours of charts, past incidents opened, and links to a moment."""

import re
import time

import pytest
from playwright.async_api import expect

from tests.export.browsing import PHONE
from tests.export.demo_board import fill, signals
from vllm_watch.board.board import Board
from vllm_watch.incidents.incident import RESOLVED, IncidentEvent, ended

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

STALLED = "llama-70b-b"


@pytest.fixture
def board() -> Board:
    """Every story of the demo, with its last two hours."""
    board = Board()
    fill(board, extra=0, now=time.time(), back_seconds=7200)
    return board


def first_moves(path: str) -> float:
    """Where a line begins, in seconds after the left edge of its chart."""
    found = re.match(r"M([\d.]+) ", path)
    assert found, path
    return float(found[1])


async def test_ten_minutes_an_hour_or_six_hours(opened, server):
    """One choice for all charts, which go back so far; what was measured before somebody looked is there."""
    tab = await opened(server)
    row = tab.row("llama-70b-a")
    await row.locator("summary").first.click()
    line = row.locator(".chart path.line").first
    spans = tab.page.locator("#spans button")
    await expect(spans).to_have_text([re.compile("10.min"), re.compile("1.h"), re.compile("6.h")])
    for number, (seconds, began) in enumerate([(600, 0), (3600, 0), (21600, 14400)]):
        await spans.nth(number).click()
        await expect(spans.nth(number)).to_have_attribute("aria-pressed", "true")
        await expect(row.locator(".chart svg").first).to_have_attribute(
            "viewBox", f"0 0 {seconds} 100"
        )
        await expect(line).to_have_attribute("d", re.compile(r"(L[^L]+){30}"))
        path = await line.get_attribute("d") or ""
        assert began <= first_moves(path) <= began + 0.06 * seconds
    await expect(row.locator(".times").first).to_contain_text("6\u202fh ago")
    await expect(tab.page.locator("#columns-span")).to_have_text("last 6\u202fh")
    assert tab.complaints == []


@pytest.mark.parametrize("size", [(1400, 900), PHONE])
async def test_a_past_incident_opens_with_its_own_charts_and_evidence(opened, server, board, size):
    """As they stood when it ended, however its target goes on."""
    (open_,) = [each for each in board.incidents.listed() if each.open and each.target == STALLED]
    now = time.time()
    board.tell([IncidentEvent(RESOLVED, now, ended(open_, now, "healthy"))])
    tab = await opened(server, size, place=f"#incident-{open_.id}")
    past = tab.page.locator(f'li[id="incident-{open_.id}"]')
    charts = past.locator(".chart")
    await expect(charts).to_have_count(7)
    await expect(charts.first.locator(".mark")).to_have_count(1)
    await expect(past.locator(".past")).to_contain_text(re.compile("Evidence", re.IGNORECASE))
    await expect(past.locator(".times").first).not_to_contain_text("now")
    before = await charts.first.locator("path.line").get_attribute("d")
    for look in range(3):
        board.publish(signals(STALLED, "serving", f"Serving {look}.", time.time() + look))
    await expect(tab.row(STALLED).locator(".sentence")).to_have_text("Serving 2.")
    assert await charts.first.locator("path.line").get_attribute("d") == before
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.complaints == []


async def test_of_an_incident_before_this_run_the_page_says_that_it_has_no_charts(
    opened, server, board
):
    """Instead of empty axes."""
    before = next(each for each in board.incidents.listed() if not each.open)
    tab = await opened(server, place=f"#incident-{before.id}")
    past = tab.page.locator(f'li[id="incident-{before.id}"]')
    await expect(past.locator(".past-note")).to_contain_text("No charts")
    await expect(past.locator(".chart")).to_have_count(0)
    assert tab.complaints == []


async def test_a_link_leads_to_a_moment(opened, server):
    """A click on a chart puts it into the address; whoever opens that sees the same moment, however long ago."""
    tab = await opened(server)
    row = tab.row("llama-70b-a")
    await row.locator("summary").first.click()
    await tab.page.locator("#spans button").nth(1).click()
    plot = row.locator(".plot").first
    await expect(row.locator(".chart path.line").first).to_have_attribute(
        "d", re.compile(r"(L[^L]+){30}")
    )
    box = await plot.bounding_box()
    assert box is not None
    await plot.click(position={"x": box["width"] / 4, "y": 20})
    await expect(tab.page).to_have_url(re.compile(r"#target-llama-70b-a@\d+$"))
    await tab.page.mouse.move(0, 0)  # while it is over the plot, the note follows it
    await tab.page.evaluate(FRAMES)
    said = await row.locator(".chart-note").first.inner_text()
    assert said.startswith("at ")

    place = tab.page.url.partition("#")[2]
    other = await opened(server, place=f"#{place}")
    there = other.row("llama-70b-a")
    await expect(there.locator(".chart-note").first).to_have_text(said)
    await expect(there.locator(".cross").first).to_be_visible()
    await expect(other.page.locator("#spans button").nth(1)).to_have_attribute(
        "aria-pressed", "true"
    )
    await there.locator(".plot").first.focus()
    await other.page.keyboard.press("Escape")
    await expect(there.locator(".cross").first).to_be_hidden()
    assert not other.page.url.endswith("@")
    assert tab.complaints + other.complaints == []


async def test_a_span_is_zoomed_into_and_linked_to(opened, server):
    """Dragging over a chart shows that part in all of them; its link shows others the same; a button shows all again."""
    tab = await opened(server)
    row = tab.row("llama-70b-a")
    await row.locator("summary").first.click()
    line = row.locator(".chart path.line").first
    await expect(line).to_have_attribute("d", re.compile(r"(L[^L]+){30}"))
    whole = await line.get_attribute("d")
    plot = row.locator(".plot").first
    await plot.scroll_into_view_if_needed()
    box = await plot.bounding_box()
    assert box is not None
    await tab.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    await tab.page.mouse.down()
    await tab.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 20, steps=4)
    await tab.page.mouse.up()
    await expect(tab.page).to_have_url(re.compile(r"#target-llama-70b-a@\d+-\d+$"))
    begin, end = map(int, tab.page.url.rpartition("@")[2].split("-"))
    assert 148 <= end - begin <= 155
    for chart in await row.locator(".chart svg").all():
        await expect(chart).to_have_attribute("viewBox", f"0 0 {end - begin} 100")
    assert await line.get_attribute("d") != whole
    zoom_out = tab.page.locator("#zoom-out")
    await expect(zoom_out).to_be_visible()

    other = await opened(server, place="#" + tab.page.url.partition("#")[2])
    there = other.row("llama-70b-a").locator(".chart svg").first
    await expect(there).to_have_attribute("viewBox", f"0 0 {end - begin} 100")
    await zoom_out.click()
    await expect(row.locator(".chart svg").first).to_have_attribute("viewBox", "0 0 600 100")
    await plot.focus()
    await tab.page.keyboard.press("+")
    await expect(row.locator(".chart svg").first).to_have_attribute(
        "viewBox", re.compile("0 0 30[0-2] 100")
    )
    await tab.page.keyboard.press("Escape")
    await expect(row.locator(".chart svg").first).to_have_attribute("viewBox", "0 0 600 100")
    assert tab.complaints + other.complaints == []
