"""The public view: what is up, for how long, and nothing of how it is reached or why it fails."""

import time

import aiohttp
import pytest
from playwright.async_api import expect

from tests.export.demo_board import event, reading
from tests.export.page_states import ill, well
from tests.export.serving import serving
from tests.told import made
from vllm_watch.export import public
from vllm_watch.samples.target import Target

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def get(url):
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_it_is_off_by_default():
    """Nobody publishes by accident."""
    async with serving(ill("stalled")) as server:
        assert (await get(f"http://127.0.0.1:{server.port}/public"))[0] == 404


async def test_it_says_what_is_up_and_nothing_else():
    """No address, no evidence, no summary, no process; a name that was made of an address is a number."""
    board = ill("stalled")
    board.publish_gpus(reading(time.time()))
    for name, url in (
        ("10.1.2.3-8000", "http://10.1.2.3:8000"),
        ("gpu-7-8000", "http://gpu-7:8000"),
    ):
        board.add_target(Target(name=name, url=url, group="secret-group", node="secret-node"), 5.0)
    (incident,) = board.targets["chat-1"].incidents.open.values()
    async with serving(board, public=True) as server:
        status, html = await get(f"http://127.0.0.1:{server.port}/public")
    assert status == 200
    assert "<h1>1 of 5 services disturbed, 2 unknown</h1>" in html
    assert "critical: Stalled: hang, since" in html
    for kept in (
        "10.1.2.3",
        "gpu-7",
        "8000",
        "http",
        "secret",
        "meta-llama",
        incident.summary,
        "No step",
        "41210",
        incident.id,
    ):
        assert kept not in html, kept


async def test_what_a_target_is_called_cannot_change_the_page():
    board = ill("stalled")
    board.add_target(Target(name="<script>alert(1)</script>", url="http://h:1"), 5.0)
    assert "<script>" not in public.page(board, time.time())


async def test_it_renews_itself_and_stops_claiming_when_the_watcher_is_gone(browser):
    """A new incident shows without a reload; without an answer nothing is said to be up."""
    board = well()
    async with serving(board, public=True) as server, await browser.new_context() as context:
        page = await context.new_page()
        await page.clock.install()
        await page.goto(f"http://127.0.0.1:{server.port}/public")
        await expect(page.locator("h1")).to_have_text("All services are up")
        story = {"engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page", "summary": ""}  # fmt: skip
        board.tell(made(event("chat-1", story, time.time())))
        await page.clock.run_for(10_000)
        await expect(page.locator("h1")).to_have_text("1 of 3 services disturbed")
        await server.stop()
        await page.clock.run_for(10_000)
        await expect(page.locator("h1")).to_contain_text("Unknown: no answer since ")
        assert await page.locator("td:not([data-title])").all_inner_texts() == ["unknown"] * 3
