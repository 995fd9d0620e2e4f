"""Nothing overlaps on the page: every text is measured, in every state, on a phone, laptops and a wide screen."""

import pytest
from playwright.async_api import expect

from tests.export.page_states import STATES
from tests.export.serving import serving

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

SIZES = [(390, 844), (1024, 768), (1400, 900), (2560, 1440)]

UNFOLD = """() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
}"""

COLLISIONS = """() => {
  const CARDS = ".incident, .target, .gpu, .chart, .history-list, .watcher-card, .restarts-card, .bar, footer, main";
  const hides = (element) => getComputedStyle(element).overflowX !== "visible" || getComputedStyle(element).clipPath !== "none";
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const owner = node.parentElement;
    if (!node.data.trim() || owner.closest("script, style, noscript, option, .sr, .skip") || !owner.checkVisibility({ visibilityProperty: true })) continue;
    const range = document.createRange();
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
  const found = new Set();
  for (const each of boxes) {
    const card = (each.owner.closest(CARDS) ?? document.body).getBoundingClientRect();
    if (each.left < card.left - 1 || each.right > card.right + 1) found.add(`"${each.text}" leaves its card`);
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


@pytest.mark.parametrize("state", [state for state in STATES if state != "500 targets"])
async def test_no_text_overlaps_another_or_leaves_its_card(opened, state):
    """Everything unfolded, at each width."""
    async with serving(STATES[state]()) as server:
        tab = await opened(server, SIZES[0])
        await tab.page.evaluate(UNFOLD)
        await expect(tab.page.locator("details:not([open])")).to_have_count(0)
        for width, height in SIZES:
            await tab.page.set_viewport_size({"width": width, "height": height})
            await tab.page.wait_for_timeout(150)
            found = await tab.page.evaluate(COLLISIONS)
            assert found == [], f"{state} at {width} px"
        await tab.page.close()
