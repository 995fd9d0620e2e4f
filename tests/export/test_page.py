"""The status page in a real browser: what a person sees, on a phone and on a wall, live and cut off."""

import re
import time
from dataclasses import replace

import pytest
from playwright.async_api import expect

from tests.export.browsing import EVIL, UNKNOWN, resolve
from tests.export.demo_board import (
    STORIES,
    reading,
    signals,
)
from vllm_watch.samples.target import Target

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_says_first_what_is_wrong(opened, server):
    """The sentence on top counts and names those that need someone, the worst first; nothing is fetched elsewhere."""
    tab = await opened(server)
    await expect(tab.page.locator("h1")).to_have_text("llama-8b-canary is down: crash")
    await expect(tab.page.locator("#verdict-more")).to_have_text(
        "Also: llama-70b-b is stalled: hang · GPU 3 fell off the bus"
        " · mistral-batch has a standing queue: more demand than it can serve · 1 more."
        " 4 of 9 targets and a GPU need attention."
    )
    names = await tab.page.locator("details.target h3").all_text_contents()
    assert names[:4] == ["llama-8b-canary", "llama-70b-b", "mistral-batch", EVIL]
    assert names[4:] == sorted(names[4:], key=str.lower)
    assert await tab.page.title() == "(5) llama-8b-canary is down: crash · vllm-watch"
    assert tab.complaints == []


async def test_shows_each_target_in_words_and_numbers(opened, server):
    """State, sentence and the numbers of a row; unknown is a dash, never 0."""
    tab = await opened(server)
    stalled = tab.row("llama-70b-b")
    await expect(stalled.locator(".badge").first).to_have_text("stalled")
    await expect(stalled.locator(".sentence")).to_have_text(STORIES["llama-70b-b"][1])
    await stalled.scroll_into_view_if_needed()
    await expect(stalled.locator("summary .cell-value")).to_have_text(
        ["0\u202ftok/s", "41", "17", "83\u202f%", UNKNOWN]
    )
    canary = tab.row("llama-8b-canary").locator("summary .cell-value")
    await expect(canary).to_have_text([UNKNOWN] * 5)


async def test_is_live(opened, server, board):
    """A change, a new target and a removed one arrive without a reload, within seconds."""
    tab = await opened(server)
    now = time.time()
    resolve(board, "llama-70b-b")
    board.publish(signals("llama-70b-b", "serving", "Serving again.", now))
    await expect(tab.row("llama-70b-b").locator(".sentence")).to_have_text("Serving again.")
    await expect(tab.page.locator("#verdict-more")).to_contain_text(
        "3 of 9 targets and a GPU need attention"
    )
    board.add_target(Target(name="fresh", url="http://h:1"), 5.0)
    await expect(tab.row("fresh").locator(".sentence")).to_have_text("Not scraped yet.")
    board.remove_target("llama-8b-canary")
    await expect(tab.row("llama-8b-canary")).to_have_count(0)
    gpus = reading(now)
    assert gpus.gpus is not None
    board.publish_gpus(replace(gpus, gpus=gpus.gpus[:2]))
    await expect(tab.page.locator(".gpu")).to_have_count(2)
    assert tab.complaints == []


def points(least: int):
    return re.compile(rf"^M[^L]+(L[^L]+){{{least},}}$")


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
    uptime = row.locator(".identity > div", has_text="Process uptime")
    await expect(uptime.locator("dd")).to_have_text(UNKNOWN)
    told = signals("llama-70b-a", "down", "connection refused; it was serving", now + 40)
    board.publish(replace(told, why_not="connection refused", process_start_time=now - 900))
    await expect(row.locator(".sentence")).to_contain_text("it was serving")
    await expect(row.locator(".callout")).to_be_hidden()
    await expect(uptime.locator("dd")).to_have_text(UNKNOWN)


async def test_says_what_is_not_seen_of_a_target(opened, server):
    """What is blind first, as text, with how to mend it; what sees all is not listed; then what could be set better."""
    tab = await opened(server)
    row = tab.row("llama-70b-a")
    await row.locator("summary").click()
    lines = row.locator(".blind:not(.advice) li")
    await expect(lines).to_have_text([
        "No detection of throughput_collapse: no <b>counter</b> of generated tokens: throughput is unknown.",
        "Limited detection of engine_stalled: no canary so far: a hang of an idle engine is not covered yet. To fix: switch it on.",
    ])  # fmt: skip
    assert [await line.get_attribute("data-tone") for line in await lines.all()] == [
        "warn",
        "quiet",
    ]
    await expect(row.locator(".advice li")).to_have_text(
        "advice: 900 <b>preemptions</b> in 60 min → --max-num-seqs 100: requests wait a little instead"
    )
    assert tab.complaints == []


async def test_gpus_show_who_holds_their_memory(opened, server):
    """Bytes, process, user, age and verdict of each holder; a stale one says why and what to do; secrets are not shown."""
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
        "stale",
    ]
    await expect(zombie.locator(".reason")).to_contain_text("has been a zombie")
    await expect(zombie.locator(".reason")).to_contain_text("Do:")
    await expect(shared.locator(".chips")).to_contain_text("GiB held by stale processes")
    await expect(shared).to_have_attribute("data-tone", "warn")
    hidden = tab.page.locator(".gpu").nth(2)
    await expect(hidden.locator(".holds")).to_have_text("unknown")
    await expect(hidden.locator(".memory-text")).to_contain_text("not known per process")
    await expect(tab.page.locator(".gpu").nth(3).locator(".memory-text")).to_have_text(
        "memory unknown"
    )
    assert "sk-secret" not in await tab.page.content()


async def test_target_that_is_not_looked_at_any_more_is_stale(opened, server, board):
    """A watcher whose looking has stopped must not show an old "serving" as now."""
    board.publish(replace(signals("embeddings", "serving", "Serving.", time.time() - 300)))
    tab = await opened(server)
    row = tab.row("embeddings")
    await expect(row.locator(".badge").first).to_have_text("stale")
    await expect(row.locator(".sentence")).to_contain_text("No news for 5\u202fmin")
    assert await row.locator("summary .cell-value").all_text_contents() == [UNKNOWN] * 5


FORMATS = [
    ("unit", 42, "s", "42 s"), ("unit", 0.0318, "seconds", "31.8 ms"), ("unit", 0.71, "ratio", "71 %"), ("unit", 2**30, "bytes", "1.0 GiB"),
    ("unit", 2**20, "bytes_per_second", "1.0 MiB/s"), ("unit", 91, "celsius", "91 °C"), ("unit", 1.98e9, "hertz", "1.98 GHz"),
    ("unit", 1420, "tokens_per_second", "1,420 tokens/s"), ("unit", 1420, "tokens/s", "1,420 tokens/s"), ("unit", 3, "requests", "3 requests"),
    ("unit", 0.5, "", "0.5"), ("unit", "none", "requests", "none"), ("unit", None, "ratio", UNKNOWN),
    ("number", None, None, UNKNOWN), ("number", 0, None, "0"), ("number", 0.124, None, "0.12"), ("number", 12.34, None, "12.3"),
    ("number", 1420.4, None, "1,420"), ("number", 123_456, None, "123k"), ("number", 1_204_224, None, "1.2M"),
    ("count", 41, None, "41"), ("count", 41.5, None, "41.5"), ("ratio", 0.834, None, "83 %"), ("ratio", 0.042, None, "4.2 %"), ("ratio", 0, None, "0 %"),
    ("seconds", 0, None, "0 s"), ("seconds", 0.00042, None, "420 µs"), ("seconds", 0.0843, None, "84.3 ms"), ("seconds", 1.324, None, "1.32 s"),
    ("seconds", 84, None, "1 min 24 s"), ("age", 0.2, None, "0 s"), ("age", 59.7, None, "1 min"), ("age", 90_000, None, "1 d 1 h"), ("ago", None, None, "never"),
    ("bytes", None, None, UNKNOWN), ("bytes", 512, None, "512 B"), ("bytes", 149250113536, None, "139.0 GiB"), ("bytes", 2**20 * 512, None, "512.0 MiB"),
]  # fmt: skip


async def test_numbers_are_written_as_people_read_them(opened, server):
    """The formats and units of the page; a time that its sentence says is not repeated."""
    tab = await opened(server)
    script = "async (cases) => { const f = await import('./page/format.js'); return cases.map(([name, value, unit]) => f[name](value, unit ?? undefined)); }"
    shown = await tab.page.evaluate(script, [each[:3] for each in FORMATS])
    assert [text.replace("\u202f", " ") for text in shown] == [each[3] for each in FORMATS]
    script = "async (item) => (await import('./page/evidence.js')).inALine(item)"
    for text, line in (
        ("No step for 1 h 57 min", "No step for 1 h 57 min"),
        ("No step yet", "No step yet (1 h 57 min)"),
    ):
        item = {"text": text, "name": "n", "value": 7050.0, "unit": "s", "expected": None}
        assert (await tab.page.evaluate(script, item)).replace("\u202f", " ") == line
