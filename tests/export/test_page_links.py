"""Links of the page in a real browser: to a target, to an incident, to dashboards, and an incident as Markdown."""

import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import expect

from tests.export.browsing import card
from tests.export.demo_board import event, fill
from tests.export.page_states import ill
from tests.export.serving import serving
from tests.told import made
from vllm_watch.board.board import Board

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

LINK = "https://grafana.example/d?var={target}&model={model}&from={from}&to={to}"


@pytest.fixture
def board() -> Board:
    """Every story of the demo among a hundred other targets."""
    board = Board()
    board.links = {"Grafana": LINK}
    fill(board, extra=100, now=time.time())
    return board


async def test_a_link_to_a_target_opens_it_in_view(opened, server):
    tab = await opened(server, place="#target-llama-8b-canary")
    row = tab.row("llama-8b-canary")
    await expect(row).to_have_attribute("open", "")
    await expect(row).to_be_in_viewport()


async def test_a_link_to_an_incident_scrolls_there_and_opens_it(opened, server, board):
    """To its card, whatever stands before it; and to one that ended, in the list of past ones."""
    incidents = list(board.incidents.listed())
    ticket = next(each for each in incidents if each.open and each.kind == "host_memory_growth")
    tab = await opened(server, place=f"#incident-{ticket.id}")
    mine = tab.page.locator(f'article[id="incident-{ticket.id}"]')
    await expect(mine).to_be_in_viewport()
    await expect(mine).to_be_focused()
    await expect(mine.locator("details.evidence")).to_have_attribute("open", "")
    ended = [each for each in incidents if not each.open][-1]
    await tab.page.evaluate("id => { location.hash = `#incident-${id}`; }", ended.id)
    await expect(tab.page.locator(f'li[id="incident-{ended.id}"]')).to_be_in_viewport()
    await tab.page.evaluate("location.hash = '#incident-%zz'")
    assert tab.complaints == []


async def test_links_of_the_configuration_are_filled_in(opened, server, board):
    """On the card with the incident's time, on the row with the last hour's."""
    tab = await opened(server, place="#target-llama-70b-b")
    incident = next(each for each in board.incidents.listed() if each.target == "llama-70b-b")
    href = (
        await card(tab, "Stalled: hang").first.locator(".links a").first.get_attribute("href") or ""
    )
    asked = parse_qs(urlsplit(href).query)
    assert asked["var"] == ["llama-70b-b"]
    assert asked["from"] == [str(round(incident.opened_t * 1000) - 900_000)]
    assert int(asked["to"][0]) > int(asked["from"][0])
    await expect(tab.row("llama-70b-b").locator(".links a")).to_have_text("Grafana")
    assert tab.complaints == []


async def copied(tab) -> str:
    """What the button of the first stall gives."""
    await tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = card(tab, "Stalled: hang").first.locator(".copy")
    await button.click()
    await expect(button).to_have_text("Copied")
    return await tab.page.evaluate("navigator.clipboard.readText()")


async def test_an_incident_is_copied_as_markdown(opened, server, board):
    """What, where, since when, what to do, why, and links that lead back."""
    tab = await opened(server)
    text = await copied(tab)
    assert "Stalled: hang** · llama-70b-b engine 0\n" in text
    assert "\n- Where: http://127.0.0.1:8000 · meta-llama/llama-70b-b · gpu-host-1\n" in text
    assert re.search(r"\n- Since: \S+ \S+ UTC \(as of \S+ UTC\)\n", text)
    assert "\n- Do: Take it out of the load balancer" in text
    assert (
        "\n- Restart: vllm-watch will not restart it (restarts are off). A restart is advised: it usually fixes this."
        in text
    )
    assert f"[Runbook]({tab.url}runbooks/engine_stalled)" in text
    assert (
        "\nEvidence:\n- No step has ended for 94 s; the longest pause before was 1.3 s (0\u202fsteps/s, expected 31\u202fsteps/s)\n"
        in text
    )


async def test_what_came_before_on_its_target_is_told(opened):
    """Each with a link to where it stands, also what this one took the place of; not what another target had, nor
    what is over for more than an hour."""
    board = ill("stalled")
    now = time.time()
    for target, kind, cause, ago in (
        ("chat-1", "throughput_collapse", "kv_leak", 1000.0), ("chat-1", "engine_down", "crash", 5000.0), ("chat-1", "throughput_collapse", "slow_engine", 120.0), ("chat-2", "overload", "demand", 1000.0),
    ):  # fmt: skip
        past = event(target, {"engine": "0", "kind": kind, "cause": cause, "severity": "page", "summary": ""}, now - ago)  # fmt: skip
        board.tell(made(past, past | {"event": "resolved", "t": now - ago + 60, "resolution": "healthy"}))  # fmt: skip
    async with serving(board) as server:
        tab = await opened(server)
        stalled = card(tab, "Stalled: hang")
        before = stalled.locator(".related").first
        await expect(before).to_have_text(
            re.compile(
                r"^Earlier on this target: Collapsed: slow steps \(\S+, lasted 1\smin\)Collapsed: KV cache leak \(\S+, lasted 1\smin\)$"
            )
        )
        text = await copied(tab)
        assert re.search(r"\n- Earlier on this target: .*; Collapsed: KV cache leak \(.* UTC, lasted 1\smin\)\n", text)  # fmt: skip
        await before.locator("a").last.click()
        await expect(tab.page.locator(".ended:focus", has_text="KV cache leak")).to_have_count(1)
        assert tab.complaints == []


async def test_what_is_copied_leads_where_people_reach_the_page(opened, server, board):
    """Not to the address by which one person reached it: that may be a tunnel of their own."""
    board.external_url = "https://watch.example/gpu-7"
    text = await copied(await opened(server))
    assert "[Incident](https://watch.example/gpu-7/#incident-engine_stalled" in text
    assert "[Runbook](https://watch.example/gpu-7/runbooks/engine_stalled)" in text
