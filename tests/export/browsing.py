"""A page in a browser, as tests of the page handle it."""

import time

from playwright.async_api import Page

from tests.export.demo_board import incident_events
from tests.told import made
from vllm_watch.board.board import Board

UNKNOWN = "\u2013"  # how the page writes what it does not know
EVIL = "<img src=x onerror=alert(1)>"
LONGEST = "window.longest = 0; new PerformanceObserver((list) => { for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({type: 'longtask'})"
PHONE, LAPTOP, WALL = (390, 844), (1280, 800), (3840, 2160)


class Tab:
    """A page that keeps what must not happen: errors, and requests to anyone else."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", self._requested)

    def _said(self, said) -> None:
        if said.type in {"error", "warning"}:
            self.complaints.append(said.text)

    def _requested(self, request) -> None:
        if not request.url.startswith(self.url):
            self.complaints.append(f"asked elsewhere: {request.url}")

    def row(self, name: str):
        return self.page.locator(f'details.target[id="target-{name}"]')


def resolve(board: Board, *targets: str) -> None:
    """End what is open of these targets."""
    for name in targets:
        end = {"event": "resolved", "t": time.time(), "resolution": "healthy"}
        opened = incident_events(name, time.time())[-1]
        for incident_id in list(board.targets[name].incidents.open):
            board.tell(made(opened | end | {"id": incident_id}))


def card(tab: "Tab", title: str):
    return tab.page.locator(".incident", has=tab.page.locator("h3", has_text=title))


async def paint_ms(page: Page) -> tuple[float, float]:
    """Milliseconds from the navigation to the first paint, and to the first verdict on the screen."""
    first, drawn = await page.evaluate(
        "[performance.getEntriesByName('first-contentful-paint')[0].startTime,"
        " performance.getEntriesByName('vllm-watch-drawn')[0].startTime]"
    )
    return float(first), float(drawn)
