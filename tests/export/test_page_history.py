"""What was, on the page in a real browser: hours of charts, past incidents, links to a moment, an incident and dashboards."""

import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import expect

from tests.export.browsing import PHONE, card
from tests.export.demo_board import fill, signals
from vllm_watch.board.board import Board
from vllm_watch.incidents.incident import RESOLVED, IncidentEvent, ended

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

STALLED = "llama-70b-b"
LINK = "https://grafana.example/d?var={target}&model={model}&from={from}&to={to}"


@pytest.fixture
def board() -> Board:
    board = Board()
    board.links = {"Grafana": LINK}
    fill(board, extra=0, now=time.time(), back_seconds=7200)
    return board


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
