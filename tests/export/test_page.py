"""The status page in a real browser: what a person sees, on a phone and on a wall, live and cut off."""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.export.demo_board import (
    STORIES,
    event,
    fill,
    incident_events,
    reading,
    signals,
    step,
)
from vllm_watch.export.board import Board
from vllm_watch.export.server import Server
from vllm_watch.samples.target import Target

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
UNKNOWN = "\u2013"  # how the page writes what it does not know
EVIL = "<img src=x onerror=alert(1)>"
PHONE, LAPTOP, WALL = (375, 812), (1280, 800), (2560, 1440)


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
    server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def opened(browser) -> AsyncIterator[Callable[..., Awaitable["Tab"]]]:
    """Opens the page of a server and waits until it is live; closes all at the end."""
    contexts = []

    async def open_page(
        server: Server, size: tuple[int, int] = LAPTOP, scheme: str = "light"
    ) -> Tab:
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
        )
        contexts.append(context)
        tab = Tab(await context.new_page(), f"http://127.0.0.1:{server.port}/")
        await tab.page.goto(tab.url)
        await expect(tab.page.locator("#live")).to_have_attribute("data-state", "live")
        return tab

    yield open_page
    for context in contexts:
        await context.close()


class Tab:
    """A page that keeps what must not happen: errors, and requests to anyone else."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.on(
            "console",
            lambda said: (
                self.complaints.append(said.text) if said.type in {"error", "warning"} else None
            ),
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", self._requested)

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
            board.incident_events(name, [opened | end | {"id": incident_id}])


def card(tab: "Tab", title: str):
    return tab.page.locator(".incident", has=tab.page.locator("h3", has_text=title))


async def test_says_first_what_is_wrong(opened, server):
    """The sentence on top counts and names those that need someone, the worst first; nothing is fetched elsewhere."""
    tab = await opened(server)
    await expect(tab.page.locator("h1")).to_have_text("4 of 9 targets need attention")
    await expect(tab.page.locator("#verdict-more")).to_have_text(
        "GPU 3 fell off the bus · llama-8b-canary is down: crash · llama-70b-b is stalled: hang"
        " · mistral-batch is overloaded: more demand than it can serve · 1 more."
    )
    names = await tab.page.locator("details.target h3").all_inner_texts()
    assert names[:4] == ["llama-8b-canary", "llama-70b-b", "mistral-batch", EVIL]
    assert names[4:] == sorted(names[4:], key=str.lower)
    assert await tab.page.title() == "(5) 4 of 9 targets need attention · vllm-watch"
    assert tab.complaints == []


async def test_states_alone_are_said_too(opened, server, board):
    """What is shown of a target that has no incident (yet) is its state."""
    resolve(board, "llama-70b-b", "llama-8b-canary", EVIL)
    tab = await opened(server)
    await expect(tab.page.locator("#verdict-more")).to_have_text(
        "GPU 3 fell off the bus · llama-8b-canary is down · llama-70b-b is stalled"
        " · mistral-batch is overloaded: more demand than it can serve."
    )
    assert tab.complaints == []


async def test_shows_each_target_in_words_and_numbers(opened, server):
    """State, sentence and the numbers of a row; unknown is a dash, never 0."""
    tab = await opened(server)
    stalled = tab.row("llama-70b-b")
    await expect(stalled.locator(".badge").first).to_have_text("stalled")
    await expect(stalled.locator(".sentence")).to_have_text(STORIES["llama-70b-b"][1])
    assert await stalled.locator("summary .cell-value").all_inner_texts() == [
        "0\u202ftok/s",
        "41",
        "17",
        "83\u202f%",
        UNKNOWN,
    ]
    assert (
        await tab.row("llama-8b-canary").locator("summary .cell-value").all_inner_texts()
        == [UNKNOWN] * 5
    )


async def test_names_from_outside_are_text(opened, server):
    """A model named like markup is shown as it is spelled, and nothing of it runs."""
    tab = await opened(server)
    row = tab.page.locator("details.target", has_text="prefilling")
    await expect(row.locator("h3")).to_have_text(EVIL)
    await expect(row.locator(".model")).to_have_text(EVIL)
    await expect(row.locator(".sentence")).to_have_text(
        "<b>Prefilling</b> a prompt of 120k tokens."
    )
    await row.locator("summary").click()
    await expect(row.locator(".chart").first).to_be_visible()
    assert await tab.page.locator("main img, main b").count() == 0
    assert tab.complaints == []


async def test_each_open_incident_is_a_card(opened, server):
    """What wakes people comes first: kind and cause in words, whose it is, since when, why, and whether a restart helps."""
    tab = await opened(server)
    await expect(tab.page.locator(".incident h3")).to_have_text([
        "Stalled: hang", "Down: crash", "Overloaded: more demand than it can serve", "Host memory grows: leak",
        "Stale GPU memory: an orphaned worker",
    ])  # fmt: skip
    assert await tab.page.locator(".incident .severity").all_inner_texts() == [
        "page", "page", "ticket", "ticket", "info",
    ]  # fmt: skip
    stalled, crashed = card(tab, "Stalled: hang"), card(tab, "Down: crash")
    await expect(stalled.locator(".incident-where")).to_have_text("llama-70b-bengine 0")
    await expect(crashed.locator(".incident-where")).to_have_text("llama-8b-canary")
    await expect(stalled.locator(".incident-summary")).to_have_text(
        "No step has ended for 94 s although 41 requests run and 17 wait."
    )
    pro, contra = await stalled.locator(".evidence section").all_inner_texts()
    assert pro.replace("\u202f", " ").split("\n") == [
        "What speaks for it",
        "No step has ended for 94 s; the longest pause before was 1.3 s.", "0 steps/s", "expected 31 steps/s",
        "41 requests are running and none has received a token.", "41 requests",
        "The GPU is busy all the time, which a kernel that never returns is.", "100 %", "expected 93 %",
    ]  # fmt: skip
    assert contra.split("\n") == [
        "What speaks against it", "/health still answers; it does while an engine hangs.", "HTTP 200",
    ]  # fmt: skip
    await expect(crashed.locator(".evidence section").nth(1)).to_contain_text(
        "Nothing was found that does."
    )
    await expect(stalled.locator(".restart")).to_have_text("A restart is known to cure this.")
    await expect(crashed.locator(".restart")).to_have_text("A restart does not help here.")
    await expect(stalled.locator(".runbook")).to_have_text(
        "Runbook docs/detectors/engine_stalled.md"
    )
    top = await tab.page.locator(".incident").first.bounding_box()
    assert top is not None
    assert top["y"] < LAPTOP[1] / 2
    assert tab.complaints == []


async def test_age_of_an_incident_ticks(opened, server, board):
    """It grows by itself, with nothing new from the watcher, and moves nothing."""
    tab = await opened(server)
    age, title = (card(tab, "Stalled: hang").locator(part) for part in (".age", "h3"))
    before, place = await age.inner_text(), await title.bounding_box()
    await expect(age).not_to_have_text(before)
    assert re.fullmatch("1\u202fmin (3[4-9]|[45][0-9])\u202fs", await age.inner_text())
    assert await title.bounding_box() == place


async def test_incidents_are_live(opened, server, board):
    """A new one appears and is announced, a sharper cause changes it in place, an end takes it to the past ones."""
    tab = await opened(server)
    story = {"engine": "0", "kind": "throughput_collapse", "cause": "unknown", "severity": "page", "summary": "It generates 310 tokens per second where 1,420 are usual."}  # fmt: skip
    now = time.time()
    begun = event("embeddings", story, now - 30)
    board.incident_events("embeddings", [begun])
    first = tab.page.locator(".incident").first
    await expect(first.locator("h3")).to_have_text("Collapsed: cause unknown")
    await expect(first.locator(".restart")).to_have_text("Whether a restart helps is not known.")
    await expect(tab.page.locator("#announce")).to_contain_text(
        "embeddings has collapsed: cause unknown"
    )
    await expect(tab.row("embeddings").locator(".flag")).to_have_text("Collapsed: cause unknown")
    sharper = begun | {"event": "updated", "t": now, "cause": "kv_leak", "restart_advised": True}
    board.incident_events("embeddings", [sharper])
    await expect(first.locator("h3")).to_have_text("Collapsed: the KV cache leaks")
    await expect(first.locator(".restart")).to_have_text("A restart is known to cure this.")
    await expect(tab.page.locator(".incident")).to_have_count(6)
    board.incident_events(
        "embeddings", [sharper | {"event": "resolved", "t": now, "resolution": "restarted"}]
    )
    await expect(tab.page.locator(".incident")).to_have_count(5)
    await expect(tab.row("embeddings").locator(".flag")).to_have_count(0)
    newest = tab.page.locator(".ended").first
    await expect(newest.locator(".ended-title")).to_have_text(
        "Collapsed: the KV cache leaksembeddings, engine 0"
    )
    await expect(newest.locator(".ended-resolution")).to_have_text("after a restart")
    await expect(newest.locator(".ended-lasted")).to_have_text("lasted 30\u202fs")
    assert tab.complaints == []


async def test_past_incidents_are_a_short_list(opened, server):
    """The last that ended first, and the older ones when asked for."""
    tab = await opened(server)
    await expect(tab.page.locator(".ended")).to_have_count(6)
    await expect(tab.page.locator(".ended .ended-resolution")).to_have_text([
        "became another incident", "after a restart", "healthy again", "healthy again", "healthy again", "the target is gone",
    ])  # fmt: skip
    await tab.page.locator("#history-more").click()
    await expect(tab.page.locator(".ended")).to_have_count(7)
    await expect(tab.page.locator("#history-more")).to_be_hidden()


async def test_without_incidents_there_is_nothing_to_see_of_them(opened):
    """No empty headings."""
    board = Board()
    board.add_target(Target(name="calm", url="http://h:1"), 5.0)
    server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
    await server.start()
    tab = await opened(server)
    for part in ("#incidents", "#incidents-link", "#history"):
        await expect(tab.page.locator(part)).to_be_hidden()
    await tab.page.close()
    await server.stop()


async def test_incidents_lead_to_their_target_and_mark_it(opened, server):
    """The row says what is open, the way there is a link, and the charts show since when."""
    tab = await opened(server)
    row = tab.row("llama-70b-b")
    await expect(row.locator(".flag")).to_have_text("Stalled: hang")
    await expect(row).to_have_attribute("data-tone", "bad")
    await expect(tab.row(EVIL)).to_have_attribute("data-tone", "warn")
    await expect(tab.row("qwen3-moe")).to_have_attribute("data-tone", "good")
    await expect(tab.row("qwen3-moe").locator(".flag")).to_have_text("Stale GPU memory: an orphaned worker, engine 1")  # fmt: skip
    await card(tab, "Stalled: hang").locator(".incident-target").focus()
    await tab.page.keyboard.press("Enter")
    await expect(row).to_have_attribute("open", "")
    await expect(row).to_be_in_viewport()
    mark = row.locator(".chart .mark").first
    left, width = await mark.evaluate("e => [parseFloat(e.style.left), parseFloat(e.style.width)]")
    assert left == pytest.approx(100 * (1 - 94 / 600), abs=2)
    assert left + width == pytest.approx(100)
    assert (await mark.get_attribute("title")).startswith("Stalled: hang since ")
    assert "Stalled: hang since" in await row.locator(".plot").first.get_attribute("aria-label")
    await expect(row.locator(".spark rect")).to_have_count(1)


async def test_marks_are_of_their_engine_and_of_the_span_that_is_charted(opened, server):
    """Another engine's incident is not marked; one that began before the chart marks all of it; one that ended, its part."""
    tab = await opened(server)
    two = tab.row("qwen3-moe")
    await two.locator("summary").first.click()
    await expect(two.locator(".engine").nth(1).locator(".mark")).to_have_count(7)
    await expect(two.locator(".engine").first.locator(".mark")).to_have_count(0)
    whole = await two.locator(".mark").first.evaluate("e => [e.style.left, e.style.width]")
    assert whole == ["0%", "100%"]
    past = tab.row("llama-70b-a")
    await past.locator("summary").first.click()
    mark = past.locator(".chart .mark-quiet").first
    left, width = await mark.evaluate("e => [parseFloat(e.style.left), parseFloat(e.style.width)]")
    assert left == pytest.approx(100 * (1 - 420 / 600), abs=2)
    assert width == pytest.approx(100 * 190 / 600, abs=2)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"restart_advised": True}, "A restart is known to cure this."),
        ({"kind": "overload", "cause": "demand"}, "A restart does not help here."),
        ({"cause": "unknown"}, "Whether a restart helps is not known."),
        ({}, "No restart is advised yet: it may recover by itself."),
    ],
    ids=["advised", "useless", "unknown", "too early"],
)
async def test_says_of_a_restart_no_more_than_is_known(opened, server, told, words):
    """A hang may end by itself, and of an unknown cause the cure is unknown."""
    tab = await opened(server)
    incident = {"kind": "engine_stalled", "cause": "hang", "restart_advised": False} | told
    script = "async (incident) => (await import('./page/words.js')).restartWords(incident).text"
    assert await tab.page.evaluate(script, incident) == words


async def test_incident_words_that_are_not_ours_are_shown_as_text(opened, server, board):
    """Kinds and causes may grow, and a value may be missing."""
    tab = await opened(server)
    story = {"engine": None, "kind": "new_kind", "cause": "<b>odd_cause</b>", "severity": "alarm", "summary": EVIL,
             "for": [("some_number", None, "", None, "")]}  # fmt: skip
    board.incident_events("embeddings", [event("embeddings", story, time.time())])
    odd = card(tab, "New kind: <b>odd cause</b>")
    await expect(odd.locator(".severity")).to_have_text("alarm")
    await expect(odd.locator(".incident-summary")).to_have_text(EVIL)
    await odd.locator(".evidence > summary").click()
    await expect(odd.locator("li")).to_have_text(f"Some number {UNKNOWN}")
    assert await tab.page.locator("main img, main b").count() == 0
    assert tab.complaints == []


async def test_a_storm_of_incidents_stays_quick(opened):
    """Of five hundred at once the first are cards, the others a button; drawing them is a matter of a moment."""
    board = Board()
    fill(board, extra=491, now=time.time(), back_seconds=10)
    server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
    await server.start()
    tab = await opened(server)
    await tab.page.evaluate(LONGEST)
    down = {"engine": None, "kind": "engine_down", "cause": "unreachable", "severity": "page", "summary": "No answer for 15 s."}  # fmt: skip
    for i in range(491):
        name = f"fleet-{i:03d}"
        board.incident_events(name, [event(name, down, time.time())])
    await expect(tab.page.locator("#incidents-title")).to_have_text("496 open incidents")
    await expect(tab.page.locator("h1")).to_have_text("495 of 500 targets need attention")
    await expect(tab.page.locator(".incident")).to_have_count(8)
    assert await tab.page.locator(".evidence[open]").count() <= 3
    assert await tab.page.evaluate("window.longest") < 1500  # on a busy two-core machine
    await tab.page.locator("#incidents-more").click()
    await expect(tab.page.locator(".incident")).to_have_count(496)
    assert tab.complaints == []
    await tab.page.close()
    await server.stop()


async def test_is_live(opened, server, board):
    """A change, a new target and a removed one arrive without a reload, within seconds."""
    tab = await opened(server)
    now = time.time()
    resolve(board, "llama-70b-b")
    board.publish(signals("llama-70b-b", "serving", "Serving again.", now))
    await expect(tab.row("llama-70b-b").locator(".sentence")).to_have_text("Serving again.")
    await expect(tab.page.locator("h1")).to_have_text("3 of 9 targets need attention")
    board.add_target(Target(name="fresh", url="http://h:1"), 5.0)
    await expect(tab.row("fresh").locator(".sentence")).to_have_text("Not looked at yet.")
    board.remove_target("llama-8b-canary")
    await expect(tab.row("llama-8b-canary")).to_have_count(0)
    gpus = reading(now)
    assert gpus.gpus is not None
    board.publish_gpus(replace(gpus, gpus=gpus.gpus[:2]))
    await expect(tab.page.locator(".gpu")).to_have_count(2)
    assert tab.complaints == []


async def test_charts_show_the_last_ten_minutes_and_the_value_under_the_pointer(
    opened, server, board
):
    """The watcher's history is there at once; the pointer reads all charts of the engine at one moment."""
    tab = await opened(server)
    row = tab.row("llama-70b-a")
    await row.locator("summary").click()
    charts = row.locator(".chart")
    await expect(charts).to_have_count(7)
    line = charts.first.locator("path.line")
    await expect(line).to_have_attribute("d", points(100))
    plot = charts.first.locator(".plot")
    await plot.scroll_into_view_if_needed()
    box = await plot.bounding_box()
    assert box is not None
    await tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    await expect(charts.first.locator(".chart-note")).to_contain_text("at ")
    at = await charts.first.locator(".chart-note").inner_text()
    times, series = board.targets["llama-70b-a"].history["0"].series(time.time())
    (pointed,) = [
        i for i, t in enumerate(times) if time.strftime("at %H:%M:%S", time.localtime(t)) == at
    ]
    assert abs(pointed - len(times) / 2) <= 2
    value = series["generation_tokens_per_second"][pointed]
    await expect(charts.first.locator(".chart-value")).to_have_text(f"{value:,.0f}\u202ftok/s")
    for i in (0, 3, 6):
        await expect(charts.nth(i).locator(".chart-note")).to_contain_text("at ")
    await tab.page.mouse.move(0, 0)
    await expect(charts.first.locator(".chart-note")).to_have_text("tokens per second")
    assert tab.complaints == []


def points(least: int):
    """A path of at least so many points."""
    return re.compile(rf"^M[^L]+(L[^L]+){{{least},}}$")


async def test_keyboard_reaches_everything(opened, server):
    """Rows open with Enter, charts step with the arrows and say the value, / goes to the search."""
    tab = await opened(server)
    await tab.row("llama-70b-a").locator("summary").focus()
    await tab.page.keyboard.press("Enter")
    await expect(tab.row("llama-70b-a").locator(".plot")).to_have_count(7)
    await tab.page.keyboard.press("Tab")
    label = await tab.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("Generation: now ")
    await tab.page.keyboard.press("ArrowLeft")
    await expect(tab.page.locator("#announce")).to_contain_text("tok/s")
    await tab.page.keyboard.press("Escape")
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("QWEN")
    await expect(tab.page.locator("details.target")).to_have_count(1)
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.locator("details.target")).to_have_count(9)
    await tab.page.get_by_role("button", name="stalled 1").click()
    await expect(tab.page.locator("details.target h3")).to_have_text(["llama-70b-b"])


async def test_target_that_is_down_still_shows_what_it_did_before(opened, server, board):
    """The charts end where it fell, and their last value is not passed off as now."""
    now = time.time()
    board.publish(signals("llama-70b-a", "down", "Connection refused.", now))
    tab = await opened(server)
    row = tab.row("llama-70b-a")
    await row.locator("summary").click()
    await expect(row.locator(".chart").first.locator("path.line")).to_have_attribute(
        "d", points(50)
    )
    board.publish(signals("llama-70b-a", "down", "Connection refused.", now + 20))
    await expect(row.locator(".chart-value").first).to_have_text(UNKNOWN)
    await expect(row.locator(".callout")).to_contain_text("connection refused")


async def test_gpus_show_who_holds_their_memory(opened, server):
    """Bytes, process, user, age and state of each holder; a zombie stands out; secrets are not shown."""
    tab = await opened(server)
    shared = tab.page.locator(".gpu").nth(1)
    await expect(shared.locator(".memory-text")).to_contain_text(
        "96.0\u202fGiB of 139.0\u202fGiB in use · 69\u202f%"
    )
    rows = shared.locator("tbody tr")
    await expect(rows).to_have_count(3)
    zombie = rows.nth(2)
    assert (await zombie.locator("th, td").all_inner_texts())[1:6] == [
        "38101",
        "uid 1001",
        "9.3\u202fGiB",
        "14\u202fh 26\u202fmin",
        "zombie",
    ]
    hidden = tab.page.locator(".gpu").nth(2)
    await expect(hidden.locator(".holds")).to_have_text("unknown")
    await expect(hidden.locator(".memory-text")).to_contain_text("not told apart by process")
    await expect(tab.page.locator(".gpu").nth(3).locator(".memory-text")).to_have_text(
        "memory unknown"
    )
    assert "sk-secret" not in await tab.page.content()


async def test_says_when_it_is_cut_off_and_comes_back(opened, board):
    """Old numbers are marked as such; when the watcher is back the page is live again by itself."""
    first = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
    await first.start()
    tab = await opened(first)
    await first.stop()
    await expect(tab.page.locator("#live-text")).to_contain_text("disconnected · updated ")
    await expect(tab.page.locator("h1")).to_have_text("Disconnected from the watcher")
    again = Server(board, host="127.0.0.1", port=first.port, ready=lambda: None)
    await again.start()
    await expect(tab.page.locator("#live")).to_have_attribute("data-state", "live", timeout=15_000)
    await expect(tab.page.locator("h1")).to_have_text("4 of 9 targets need attention")
    await tab.page.close()
    await again.stop()


async def test_target_that_is_not_looked_at_any_more_is_stale(opened, server, board):
    """A watcher whose looking has stopped must not show an old "serving" as now."""
    board.publish(replace(signals("embeddings", "serving", "Serving.", time.time() - 300)))
    tab = await opened(server)
    row = tab.row("embeddings")
    await expect(row.locator(".badge").first).to_have_text("stale")
    await expect(row.locator(".sentence")).to_contain_text("No news for 5\u202fmin")


@pytest.mark.parametrize("size", [PHONE, (768, 1024), LAPTOP, WALL], ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_fits_every_screen_and_can_be_read(opened, server, size, scheme):
    """No sideways scroll, no text under AA contrast, nothing cut, with a target open."""
    tab = await opened(server, size, scheme)
    await tab.row("mistral-batch").locator("summary").click()
    await expect(tab.row("mistral-batch").locator(".chart")).to_have_count(7)
    await tab.page.evaluate("for (const e of document.querySelectorAll('.evidence')) e.open = true")
    assert await tab.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    poor = await tab.page.evaluate(CONTRAST)
    assert poor == []
    assert tab.complaints == []


async def test_five_hundred_targets_stay_quick(opened):
    """The ill ones are on top, the well ones are folded away, an update costs a fraction of a frame's budget."""
    board = Board()
    fill(board, extra=491, now=time.time(), back_seconds=10)
    server = Server(board, host="127.0.0.1", port=0, ready=lambda: None)
    await server.start()
    tab = await opened(server)
    await expect(tab.page.locator("h1")).to_have_text("4 of 500 targets need attention")
    assert await tab.page.locator("details.target").count() < 100
    await expect(tab.page.locator("#more")).to_be_visible()
    await tab.page.evaluate(LONGEST)
    stories = {
        name: (e.signals.state, e.signals.state_text)
        for name, e in board.targets.items()
        if e.signals
    }
    step(board, stories, time.time())
    await expect(tab.row("fleet-000").locator(".sentence")).to_have_text("Serving 38 requests.")
    await asyncio.sleep(1.5)  # the batch arrives and is drawn
    assert (
        await tab.page.evaluate("window.longest") < 400
    )  # on a busy two-core machine; a tenth of it elsewhere
    await tab.page.locator("#more").click()
    await expect(tab.page.locator("details.target")).to_have_count(500)
    assert tab.complaints == []
    await tab.page.close()
    await server.stop()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (42, "s", "42 s"), (0.0318, "seconds", "31.8 ms"), (0.71, "ratio", "71 %"), (2**30, "bytes", "1.0 GiB"),
        (2**20, "bytes_per_second", "1.0 MiB/s"), (91, "celsius", "91 °C"), (1.98e9, "hertz", "1.98 GHz"),
        (1420, "tokens_per_second", "1,420 tokens/s"), (1420, "tokens/s", "1,420 tokens/s"), (3, "requests", "3 requests"),
        (0.5, "", "0.5"), ("none", "requests", "none"), (None, "ratio", UNKNOWN),
    ],
)  # fmt: skip
async def test_evidence_is_in_its_unit(opened, server, value, unit, text):
    """Detectors name units; the reader sees them as everywhere on the page."""
    tab = await opened(server)
    script = "async ([value, unit]) => (await import('./page/format.js')).unit(value, unit)"
    assert (await tab.page.evaluate(script, [value, unit])).replace("\u202f", " ") == text


async def test_numbers_are_written_as_people_read_them(opened, server):
    """The formats of the page, from one table."""
    tab = await opened(server)
    cases = [
        ("number", None, UNKNOWN), ("number", math.inf, UNKNOWN), ("number", 0, "0"), ("number", 0.124, "0.12"), ("number", 12.34, "12.3"),
        ("number", 1420.4, "1,420"), ("number", 123_456, "123k"), ("number", 1_204_224, "1.2M"),
        ("count", 41, "41"), ("count", 41.5, "41.5"), ("ratio", 0.834, "83 %"), ("ratio", 0.042, "4.2 %"), ("ratio", 0, "0 %"),
        ("seconds", 0, "0 s"), ("seconds", 0.00042, "420 µs"), ("seconds", 0.0843, "84.3 ms"), ("seconds", 1.324, "1.32 s"),
        ("seconds", 84, "1 min 24 s"), ("age", 0.2, "0 s"), ("age", 59.7, "1 min"), ("age", 90_000, "1 d 1 h"), ("ago", None, "never"),
        ("bytes", None, UNKNOWN), ("bytes", 512, "512 B"), ("bytes", 149250113536, "139.0 GiB"), ("bytes", 2**20 * 512, "512.0 MiB"),
    ]  # fmt: skip
    given = [[name, None if value is math.inf else value] for name, value, _ in cases]
    shown = await tab.page.evaluate(
        "async (cases) => { const f = await import('./page/format.js'); return cases.map(([name, value]) => f[name](value)); }",
        given,
    )
    assert [text.replace("\u202f", " ") for text in shown] == [text for _, _, text in cases]


# Keeps the longest time for which the page did not answer, in milliseconds.
LONGEST = "window.longest = 0; new PerformanceObserver((list) => { for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({type: 'longtask'})"

# Every piece of visible text against what is painted behind it, by WCAG 2's formula.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !e.checkVisibility() || e.closest(".sr, .skip, noscript")) continue;
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(`${text.slice(0, 30)}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return poor;
}"""
