"""Five hundred targets on one page, and one page on a wall: quick to appear, bounded, and nothing built twice."""

import gzip
import time

import pytest
from playwright.async_api import expect

from tests.export.browsing import LONGEST
from tests.export.demo_board import event, signals
from tests.export.page_states import many, renew, well
from tests.export.serving import serving
from tests.told import made
from vllm_watch.export import page_files

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

BUILT = """() => {
  window.built = 0;
  new MutationObserver((all) => { for (const m of all) window.built += [...m.addedNodes].filter((n) => n.nodeType === 1).length; })
    .observe(document.querySelector("main"), { childList: true, subtree: true });
}"""
NARROW = (320, 640)
PACKED_KB_MAX = 100
"""Somebody opens it over a bad line at night."""


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


async def one_more_look(board, line):
    """A look at all of them, and the line of one when it is drawn."""
    before = await line.get_attribute("d")
    renew(board)
    await expect(line).not_to_have_attribute("d", before)


async def test_news_change_texts_and_build_nothing(opened):
    """A look at everything moves numbers and lines; no element is made anew."""
    board = many()
    async with serving(board) as server:
        tab = await opened(server)
        await tab.row("fleet-000").locator("summary").click()
        await expect(tab.row("fleet-000").locator(".chart")).to_have_count(7)
        line = tab.row("fleet-000").locator(".chart path.line").first
        for _ in range(2):  # of the first, what one look could not show may be drawn a moment later
            await one_more_look(board, line)
        await tab.page.evaluate(BUILT)
        await tab.page.evaluate(LONGEST)
        value = tab.row("fleet-000").locator(".chart-value").first
        built = []
        while (
            0 not in built and len(built) < 5
        ):  # on a machine that stood still something has become old, once
            await tab.page.evaluate("window.built = 0")
            before = await value.inner_text()
            for _ in range(3):
                await one_more_look(board, line)
            await expect(value).not_to_have_text(before)
            built.append(await tab.page.evaluate("window.built"))
        longest_ms = await tab.page.evaluate("window.longest")
        print(f"500 targets with news: the page does not answer for {longest_ms:.0f} ms at most")
        assert built[-1] == 0, built


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


async def test_no_screen_scrolls_sideways(opened):
    """With rows opened, evidence unfolded and a storm on top; what a finger touches is large enough."""
    board = many()
    down = {"engine": None, "kind": "engine_down", "cause": "unreachable", "severity": "page", "summary": "No answer for 15 s."}  # fmt: skip
    for n in range(40):
        board.tell(made(event(f"fleet-{n:03d}", down, time.time())))
    async with serving(board) as server:
        tab = await opened(server, NARROW)
        await tab.page.evaluate("for (const e of [...document.querySelectorAll('details')].slice(0, 12)) e.open = true")  # fmt: skip
        await expect(tab.page.locator(".target-body").first).to_be_attached()
        assert await tab.page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
        low = await tab.page.evaluate("[...document.querySelectorAll('button, summary, .recording a, nav a')].filter((e) => e.checkVisibility() && e.getBoundingClientRect().height > 0 && e.getBoundingClientRect().height < 24).map((e) => [e.textContent.slice(0, 30), e.getBoundingClientRect().height])")  # fmt: skip
        assert low == []
        assert tab.complaints == []
