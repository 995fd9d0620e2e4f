"""A browser, a board with every story of the demo, and a server for it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.export.browsing import LAPTOP, Tab
from tests.export.demo_board import fill
from tests.export.serving import serving
from vllm_watch.board.board import Board
from vllm_watch.export.server import Server

expect.set_options(
    timeout=15_000
)  # on a machine busy with other tests; nothing waits so long otherwise


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield browser
        await browser.close()


@pytest.fixture
def board() -> Board:
    """Every story of the demo, with its last ten minutes."""
    board = Board()
    fill(board, extra=0, now=time.time())
    return board


@pytest_asyncio.fixture(loop_scope="module")
async def server(board) -> AsyncIterator[Server]:
    async with serving(board) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def opened(browser) -> AsyncIterator[Callable[..., Awaitable["Tab"]]]:
    """Opens the page of a server and waits until it is live; closes all at the end."""
    contexts = []

    async def open_page(
        server: Server, size: tuple[int, int] = LAPTOP, scheme: str = "light", place: str = ""
    ) -> Tab:
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
        )
        contexts.append(context)
        tab = Tab(await context.new_page(), f"http://127.0.0.1:{server.port}/")
        await tab.page.goto(tab.url + place)
        await expect(tab.page.locator("#live")).to_have_attribute("data-state", "live")
        return tab

    yield open_page
    for context in contexts:
        await context.close()
