"""The page for everybody: axe finds nothing in any state, the keyboard reaches all, a screen reader hears news once."""

import re
import time

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from tests.export.browsing import PHONE
from tests.export.demo_board import event
from tests.export.page_states import STATES, awaiting_approval, renew, well
from tests.export.serving import serving
from tests.told import made
from vllm_watch.export import page_files

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
CONTRAST = {
    "runOnly": ["color-contrast"],
    "resultTypes": ["violations"],
}  # all that depends on the colours
UNFOLD = "for (const e of document.querySelectorAll('.evidence')) e.open = true"
OPEN = "for (const e of [...document.querySelectorAll('details')].slice(0, 40)) e.open = true"
NO_VALUE = re.compile(r"\b(undefined|NaN|null|Infinity|\[object)\b")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def violations(page, options=WCAG):
    found = await Axe().run(page, options=options)
    return [
        f"{rule['id']}: {node['target']} {node['html'][:120]} {node.get('failureSummary', '')[:300]}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("state", STATES)
async def test_no_state_violates_wcag(opened, state):
    """A and AA with contrast, everything unfolded, a target opened; nothing on the console, nobody else asked, no hole."""
    async with serving(STATES[state]()) as server:
        tab = await opened(server)
        row = tab.page.locator("details.target").first
        if await row.count() and await row.get_attribute("open") is None:
            await row.locator("summary").first.click()
            await expect(row.locator(".target-body")).to_be_visible()
        await tab.page.evaluate(UNFOLD)
        await tab.page.wait_for_timeout(300)
        assert await violations(tab.page) == []
        assert tab.complaints == []
        await tab.page.emulate_media(color_scheme="dark")
        assert await violations(tab.page, CONTRAST) == []
        await tab.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        assert await tab.page.evaluate(SIDEWAYS) <= 0
        assert await violations(tab.page) == []
        await tab.page.evaluate(OPEN)
        await tab.page.wait_for_timeout(300)
        assert NO_VALUE.search(await tab.page.evaluate("document.body.textContent")) is None
        assert tab.complaints == []
        await tab.page.close()


CUT = "[...document.querySelectorAll('pre span')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.textContent)"


async def test_a_runbook_on_a_phone_shows_its_commands_whole(opened):
    """In every one: it does not scroll sideways, and each line of a command ends on the screen."""
    async with serving(well(1)) as server:
        tab = await opened(server, PHONE)
        for name in page_files.contents("runbooks"):
            await tab.page.goto(f"{tab.url}runbooks/{name.removesuffix('.html')}")
            assert await tab.page.evaluate(SIDEWAYS) <= 0, name
            assert await tab.page.evaluate(CUT) == [], name


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_dialog_and_a_lost_connection_violate_nothing(opened, scheme):
    """With its complaint on show, and over a page that is cut off."""
    async with serving(awaiting_approval()) as server:
        tab = await opened(server, scheme=scheme)
        await tab.page.get_by_role("button", name="Approve the restart").click()
        dialog = tab.page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Restart it").click()
        await expect(dialog.locator(".ask-said")).to_be_visible()
        assert await violations(tab.page) == []
        await tab.page.keyboard.press("Escape")
        await server.stop()
        await expect(tab.page.locator("#live")).to_have_attribute("data-state", "lost")
        assert await violations(tab.page) == []
        await tab.page.close()


FOCUSED = """() => {
  const e = document.activeElement;
  const box = e.getBoundingClientRect();
  const style = getComputedStyle(e);
  return [e.tagName, e.textContent.trim().slice(0, 30), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
          box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.left >= 0 && box.right <= innerWidth + 1];
}"""


async def test_the_keyboard_alone_reaches_everything(opened):
    """From the skip link to the footer by Tab, each stop in sight and outlined, in the order in which one reads; and back."""
    async with serving(awaiting_approval()) as server:
        tab = await opened(server)
        stops = []
        for _ in range(80):
            await tab.page.keyboard.press("Tab")
            tag, text, outlined, in_sight = await tab.page.evaluate(FOCUSED)
            if tag == "BODY":
                break
            assert outlined, (tag, text)
            assert in_sight, (tag, text)
            stops.append(text)
        walk = [
            "Skip to incidents", "vllm-watch", "Incidents", "Targets", "GPUs", "Restarts", "Watcher", "chat-1",
            "Approve the restart", "Silence", "Evidence as of", "Download recording", "all 3", "collapsed 1", "serving 2", "Pause restarts",
            "collapsedchat-1", "chat-1", "chat-2", "/metrics", "/api/v1/status",
        ]  # fmt: skip
        at = -1
        for name in walk:
            at = next((i for i in range(at + 1, len(stops)) if stops[i].startswith(name)), None)
            assert at is not None, (name, stops)
        for expected in reversed(stops[-3:]):
            await tab.page.keyboard.press("Shift+Tab")
            assert (await tab.page.evaluate(FOCUSED))[1] == expected


async def test_a_dialog_keeps_the_focus_and_gives_it_back(opened):
    """Tab goes round in it, Escape closes it, and the button that opened it has the focus again."""
    async with serving(awaiting_approval()) as server:
        tab = await opened(server)
        button = tab.page.get_by_role("button", name="Silence")
        await button.focus()
        await tab.page.keyboard.press("Enter")
        dialog = tab.page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        await expect(dialog.get_by_label("Reason")).to_be_focused()
        for _ in range(12):
            await tab.page.keyboard.press("Tab")
            inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
            assert await tab.page.evaluate(inside)
        await tab.page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(button).to_be_focused()


HEARD = """() => {
  window.heard = [];
  const region = document.getElementById("announce");
  new MutationObserver(() => { if (region.textContent) window.heard.push(region.textContent); }).observe(region, { childList: true, characterData: true, subtree: true });
}"""


async def heard(tab, count):
    """Wait until so many sentences were said: what would have been said before is among them then."""
    await tab.page.wait_for_function("count => window.heard.length >= count", arg=count)


async def test_news_are_said_once(opened):
    """An incident when it opens, when its cause is found and when it ends; not at every look; no other region is live."""
    board = well()
    async with serving(board) as server:
        tab = await opened(server)
        await expect(tab.page.locator("#announce")).to_have_text(
            "All 3 targets are healthy. 3 serving."
        )
        await tab.page.evaluate(HEARD)
        story = {"engine": "0", "kind": "throughput_collapse", "cause": "unknown", "severity": "page", "summary": "Slow."}  # fmt: skip
        begun = event("chat-1", story, time.time())
        board.tell(made(begun))
        await heard(tab, 1)
        for look in range(4):
            renew(board)
            board.tell(made(begun | {"event": "updated", "t": time.time(), "summary": f"Slow at look {look}."}))  # fmt: skip
            await expect(tab.page.locator(".incident")).to_contain_text(f"Slow at look {look}.")
        board.tell(made(begun | {"event": "updated", "t": time.time(), "cause": "kv_leak"}))
        await heard(tab, 2)
        board.tell(made(begun | {"event": "resolved", "t": time.time(), "cause": "kv_leak", "resolution": "healthy"}))  # fmt: skip
        await heard(tab, 3)
        assert await tab.page.evaluate("window.heard") == [
            "critical: chat-1 has collapsed: cause unknown.",
            "critical: chat-1 has collapsed: KV cache leak.",
            "chat-1: ended, recovered.",
        ]
        live = await tab.page.evaluate(
            "[...document.querySelectorAll('[aria-live], [role=status], [role=log], output')].map((e) => e.id)"
        )
        assert live == ["announce"]
