"""Nothing overlaps on the page and no word is broken: every text is measured, in every state, on a phone, laptops and a
wide screen, light and dark."""

import pytest
from playwright.async_api import expect

from tests.export.page_states import STATES, each_cause
from tests.export.serving import serving
from vllm_watch.export import page_files

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

SIZES = [(390, 844), (1024, 768), (1400, 900), (2560, 1440)]

UNFOLD = """() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
}"""

COLLISIONS = """() => {
  const CARDS = ".incident, .target, .gpu, .chart, .history-list, .watcher-card, .restarts-card, .bar, footer, main";
  const hides = (element) => getComputedStyle(element).overflowX !== "visible" || getComputedStyle(element).clipPath !== "none";
  const boxes = [];
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const owner = node.parentElement;
    if (!node.data.trim() || owner.closest("script, style, noscript, option, .sr, .skip") || !owner.checkVisibility({ visibilityProperty: true })) continue;
    const range = document.createRange();
    for (const { 0: word, index } of node.data.matchAll(/(?<=^|\\s)\\p{L}{2,20}(?=[\\s,.;:)]|$)/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = [...range.getClientRects()];
      if (lines.length > 1 && lines.at(-1).top > lines[0].top + 3) found.add(`"${word}" is broken`);
    }
    range.selectNodeContents(node);
    for (const shown of range.getClientRects()) {
      let box = { left: shown.left, right: shown.right, top: shown.top + scrollY, bottom: shown.bottom + scrollY };
      let clipped = false;
      for (let each = owner; each !== document.body; each = each.parentElement) {
        if (!hides(each)) continue;
        const outer = each.getBoundingClientRect();
        clipped ||= box.right > outer.right + 1 || box.left < outer.left - 1;
        box = { left: Math.max(box.left, outer.left), right: Math.min(box.right, outer.right), top: Math.max(box.top, outer.top + scrollY), bottom: Math.min(box.bottom, outer.bottom + scrollY) };
      }
      if (box.right - box.left < 2 || box.bottom - box.top < 2) continue;
      boxes.push({ ...box, owner, text: node.data.trim().slice(0, 40), clipped });
    }
  }
  for (const each of boxes) {
    const card = (each.owner.closest(CARDS) ?? document.body).getBoundingClientRect();
    if (each.left < card.left - 1 || each.right > card.right + 1) found.add(`"${each.text}" leaves its card`);
  }
  for (const tick of document.querySelectorAll(".tick")) {
    if (tick.textContent && tick.checkVisibility() && tick.getBoundingClientRect().left < tick.closest(".chart").getBoundingClientRect().left + 3) found.add(`"${tick.textContent}" touches its chart's edge`);
  }
  for (const row of document.querySelectorAll(".target > summary")) {
    const tops = [...row.querySelectorAll(".cell-value")].filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect().top);
    if (Math.max(...tops) - Math.min(...tops) > 1) found.add(`the numbers of "${row.querySelector("h3").textContent}" are not in line`);
  }
  boxes.sort((a, b) => a.top - b.top);
  boxes.forEach((a, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom - 3; j += 1) {
      const b = boxes[j];
      if (a.owner === b.owner || a.owner.closest(".bar") || b.owner.closest(".bar")) continue;
      const [wide, high] = [Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
      if (wide > 1 && high > 3) found.add(`"${a.text}" and "${b.text}" overlap by ${Math.round(wide)} x ${Math.round(high)} px`);
    }
  });
  return [...found];
}"""


async def measured(page, state) -> None:
    """Nothing overlaps at any width, in either theme."""
    for width, height in SIZES:
        await page.set_viewport_size({"width": width, "height": height})
        await page.wait_for_timeout(150)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await page.evaluate(COLLISIONS) == [], f"{state}, {scheme}, at {width} px"


@pytest.mark.parametrize("state", [state for state in STATES if state != "500 targets"])
async def test_no_text_overlaps_another_or_leaves_its_card(opened, state):
    async with serving(STATES[state]()) as server:
        tab = await opened(server, SIZES[0])
        await tab.page.evaluate(UNFOLD)
        await expect(tab.page.locator("details:not([open])")).to_have_count(0)
        await measured(tab.page, state)
        await tab.page.close()


async def test_nothing_overlaps_in_a_card_of_any_kind_and_cause(opened):
    async with serving(each_cause()) as server:
        tab = await opened(server, SIZES[0])
        await tab.page.locator("#incidents-more").click()
        await expect(tab.page.locator("#incidents-more")).to_be_hidden()
        await tab.page.evaluate("document.getElementById('targets').hidden = true")
        await measured(tab.page, "each cause")
        await tab.page.close()


@pytest.mark.parametrize("button", ["Approve the restart", "Silence", "Pause restarts"])
async def test_nothing_overlaps_in_a_dialog(opened, button):
    """A dialog lies over the page on purpose: what is in it is measured alone."""
    async with serving(STATES["refused"]()) as server:
        tab = await opened(server, SIZES[0])
        await tab.page.get_by_role("button", name=button).first.click()
        await expect(tab.page.get_by_role("dialog")).to_be_visible()
        await tab.page.evaluate(
            "document.body.replaceChildren(document.querySelector('dialog[open]'))"
        )
        await measured(tab.page, button)


async def test_nothing_overlaps_when_the_watcher_is_gone(opened):
    async with serving(STATES["stalled"]()) as server:
        tab = await opened(server, SIZES[0])
        await server.stop()
        await expect(tab.page.locator("#live")).to_have_attribute("data-state", "lost")
        await measured(tab.page, "disconnected")
        await tab.page.set_viewport_size({"width": 390, "height": 844})
        lines = await tab.page.locator("#live-text").evaluate(
            "(e) => { const all = document.createRange(); all.selectNodeContents(e);"
            " return [...all.getClientRects()].map(({ width }) => width); }"
        )
        assert min(lines) > max(lines) / 2, "a word stands alone in the bar"


PAGES = [
    "public",
    *(f"runbooks/{name.removesuffix('.html')}" for name in page_files.contents("runbooks")),
]


async def test_nothing_overlaps_on_the_other_pages(browser):
    """The public view, with names as long as they get, and the runbooks."""
    async with (
        serving(STATES["long names"](), public=True) as server,
        await browser.new_context() as context,
    ):
        page = await context.new_page()
        for path in PAGES:
            await page.goto(f"http://127.0.0.1:{server.port}/{path}")
            await measured(page, path)
