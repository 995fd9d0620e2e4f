"""The page outlives what happens to it: the watcher away or upgraded, wrong clocks, odd names, numbers out of all bounds."""

import asyncio
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import fields, replace

import pytest
from playwright.async_api import expect

from tests.daemon_process import ROOT, daemon
from tests.export.browsing import PHONE
from tests.export.demo_board import event, signals
from tests.export.page_states import ill, well
from tests.export.serving import serving
from tests.export.test_page_access import NO_VALUE, SIDEWAYS
from tests.told import made
from vllm_watch.board.board import LISTENERS_MAX, Board
from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import EngineSignals, Quantiles, TargetSignals

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

CLOCK = "window.ahead = %d; const real = Date.now; Date.now = () => real() + window.ahead;"
NEXT_LOOK = """new Promise((shown) =>
  new EventSource("api/v1/events").addEventListener("target", () => shown(true)))"""
ENDLESS = re.compile(r"\d{20}")  # no number is written with so many digits
HOSTILE = (
    "<script>alert(1)</script>", "'\" onmouseover=alert(1) x='", "../../etc/passwd?a=b&c#d", "%00%zz",
    "\u202egnp.exe", "naïve-🦙", "__proto__", "constructor", "x" * 300, "a b",
)  # fmt: skip


async def texts(tab):
    return await tab.page.evaluate("document.body.textContent")


async def test_the_watcher_is_gone_and_comes_back(opened):
    """It says so, how old the last word is and what it was; then it is live again by itself, with what is true now."""
    board = ill("stalled")
    async with serving(board) as first:
        tab = await opened(first)
        port = first.port
    await expect(tab.page.locator("h1")).to_have_text("Disconnected from the watcher")
    await expect(tab.page.locator("#live-text")).to_contain_text("disconnected · updated ")
    more = tab.page.locator("#verdict-more")
    await expect(more).to_contain_text(
        re.compile(r"Last update \d+\u202fs ago: chat-1 is stalled: hang\.")
    )
    await expect(tab.page.locator(".watcher-text")).to_contain_text("does not answer.")
    before = await more.inner_text()
    await expect(more).not_to_have_text(before, timeout=5000)  # it ages
    assert (await tab.page.title()).startswith("(1) Disconnected")
    for incident_id in list(board.targets["chat-1"].incidents.open):
        begun = event("chat-1", {"engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page", "summary": ""}, time.time())  # fmt: skip
        board.tell(made(begun | {"event": "resolved", "resolution": "healthy", "id": incident_id}))  # fmt: skip
    renew_as(board, "serving")
    async with serving(board, port):
        await expect(tab.page.locator("h1")).to_have_text(
            "All 3 targets are healthy", timeout=15_000
        )
        await expect(tab.page.locator(".incident")).to_have_count(0)
        await expect(tab.page.locator("#announce")).to_contain_text("Connected to the watcher")


def renew_as(board, state):
    for name in board.targets:
        board.publish(signals(name, state, f"It is {state}.", time.time()))


async def test_a_frozen_watcher_is_disconnected(browser):
    """It holds its connections and answers nothing: the page shows no old state as live."""
    async with daemon("--target", "a=http://127.0.0.1:9") as process:
        page = await browser.new_page()
        await page.goto(process.url + "/")
        await expect(page.locator("#live")).to_have_attribute("data-state", "live")
        process.process.send_signal(signal.SIGSTOP)
        await expect(page.locator("h1")).to_have_text(
            "Disconnected from the watcher", timeout=60_000
        )
        process.process.send_signal(signal.SIGCONT)
        await expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        await page.close()


async def test_an_upgraded_watcher_brings_its_own_page(opened, tmp_path):
    """Another process with other files on the same port: the open page loads itself anew, once."""
    shutil.copytree(ROOT / "vllm_watch", tmp_path / "vllm_watch", ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    with (tmp_path / "vllm_watch/export/page/style.css").open("a") as style:
        style.write("h1 { letter-spacing: 7px; }\n")
    async with serving(well()) as first:
        tab = await opened(first)
        await tab.page.evaluate("window.old = true")
        address = f"127.0.0.1:{first.port}"
    upgraded = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", "run", "--listen", address, "--target", "a=http://127.0.0.1:9",
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await expect(tab.page.locator("h1")).to_have_css("letter-spacing", "7px", timeout=40_000)
        assert await tab.page.evaluate("window.old") is None
        await tab.page.evaluate("window.second = true")
        await expect(tab.page.locator("#live")).to_have_attribute("data-state", "live")
        await tab.page.evaluate(NEXT_LOOK)
        assert await tab.page.evaluate("window.second") is True
    finally:
        upgraded.kill()
        await upgraded.wait()


@pytest.mark.parametrize("ahead_hours", [-30, 5])
async def test_a_browser_whose_clock_is_wrong(browser, ahead_hours):
    """Ages are by the watcher's clock, also when the browser's is set meanwhile; the page says how far it is off."""
    async with serving(ill("stalled")) as server:
        context = await browser.new_context()
        page = await context.new_page()
        await page.add_init_script(CLOCK % (ahead_hours * 3_600_000))
        await page.goto(f"http://127.0.0.1:{server.port}/")
        age = page.locator(".incident .age")
        await expect(age).to_have_text(re.compile(r"^1\u202fmin 3\d\u202fs$"))
        await expect(page.locator(".badge", has_text="stale")).to_have_count(0)
        side = "ahead of" if ahead_hours > 0 else "behind"
        await expect(page.locator("#watcher")).to_contain_text(f"{side} the watcher's")
        before = await age.inner_text()
        await page.evaluate("window.ahead = -86400000 * 400")
        await expect(age).not_to_have_text(before)  # told anew since
        await expect(age).to_have_text(re.compile(r"^1\u202fmin 3\d\u202fs$"))
        await expect(page.locator(".badge", has_text="stale")).to_have_count(0)
        await context.close()


async def test_names_from_outside_never_become_markup(opened):
    """As a target, group, model, process, in sentences and in evidence: shown as they are spelled, linked as they are."""
    board = Board()
    now = time.time()
    for name in HOSTILE:
        board.add_target(Target(name=name, url=f"http://{name}", group=name, pod=name), 5.0)
        told = signals(name, "stalled", name, now)
        board.publish(replace(told, models=(name,), why_not=name, unknown_families=(name,)))
        story = {"engine": "0", "kind": name, "cause": name, "severity": "page", "summary": name, "for": [(name, name, name, name, name)]}  # fmt: skip
        board.tell(made(event(name, story, now - 60)))
    processes = tuple(
        ProcessSample(pid=n, used_bytes=2**30, name=name, cmdline=(name, name))
        for n, name in enumerate(HOSTILE)
    )
    board.publish_gpus(GpuReading(status="ok", t=now, gpus=(GpuSample(index=0, uuid=HOSTILE[0], name=HOSTILE[1], memory_total_bytes=2**36, memory_used_bytes=2**35, processes=processes),)))  # fmt: skip
    async with serving(board) as server:
        tab = await opened(server, PHONE)
        await tab.page.evaluate(
            "for (const e of document.querySelectorAll('details')) e.open = true"
        )
        await expect(tab.page.locator(".target-body")).to_have_count(len(HOSTILE))
        shown = await tab.page.locator("summary h3").all_text_contents()
        assert sorted(shown) == sorted(HOSTILE)
        assert await tab.page.locator("main :is(img, script, iframe, [onmouseover])").count() == 0
        assert await tab.page.evaluate(SIDEWAYS) <= 0
        for name in ("../../etc/passwd?a=b&c#d", "%00%zz"):
            link = tab.row(name).locator(".target-body > .recording a").first
            url = await link.evaluate("(a) => new URL(a.href).searchParams.get('target')")
            assert url == name
        assert tab.complaints == []


def with_numbers(value):
    numbers = {
        field.name: value for field in fields(EngineSignals)
        if field.type == "float | None" or field.name in ("requests_running", "requests_waiting")
    }  # fmt: skip
    quantiles = Quantiles(value, value, value)
    return EngineSignals(
        engine="0", state="serving", **numbers, time_to_first_token_seconds=quantiles,
        inter_token_latency_seconds=quantiles, queue_time_seconds=quantiles, e2e_latency_seconds=quantiles,
    )  # fmt: skip


@pytest.mark.parametrize("value", [None, 1e300, -1e300, -1.0, 1e-300, 2.0**63, float("inf"), float("nan")])  # fmt: skip
async def test_numbers_out_of_all_bounds(opened, value):
    """Unknown is a dash, and the largest is still short; nothing overflows, nothing says NaN."""
    board = Board()
    now = time.time()
    board.add_target(Target(name="odd", url="http://h:1"), 5.0)
    for second in range(20):
        t = now - 20 + second
        board.publish(TargetSignals(target="odd", t=t, up=True, outcome="ok", state="serving", state_text="Serving.",
                                    process_start_time=value, engines={"0": with_numbers(value)}))  # fmt: skip
    board.call("metrics", "odd", "ok", 0.001 if value is None else value, now)
    story = {"engine": "0", "kind": "overload", "cause": "demand", "severity": "ticket", "summary": "Much.", "for": [("n", value, "bytes", value, ""), ("n", value, "seconds", value, "")]}  # fmt: skip
    board.tell(made(event("odd", story, now)))
    bytes_ = None if value is None or not abs(value) < 1e30 else int(value)
    gpu = GpuSample(index=0, uuid="GPU-0", memory_total_bytes=bytes_, memory_used_bytes=bytes_, power_watts=value, temperature_celsius=value, sm_clock_hz=value, utilization_ratio=value)  # fmt: skip
    board.publish_gpus(GpuReading(status="ok", t=now, gpus=(gpu,)))
    async with serving(board) as server:
        tab = await opened(server, PHONE)
        await tab.page.locator(
            ".evidence > summary"
        ).first.click()  # its row has another, once it is drawn
        await expect(tab.page.locator(".chart")).to_have_count(10)
        assert NO_VALUE.search(await texts(tab)) is None
        assert ENDLESS.findall(await texts(tab)) == []
        assert await tab.page.evaluate(SIDEWAYS) <= 0
        if value is None:
            cells = await tab.row("odd").locator("summary .cell-value").all_text_contents()
            assert cells == ["\u2013"] * 5
        assert tab.complaints == []


async def test_without_a_stream_it_asks_now_and_then(browser):
    """Sixty-four other pages have taken all streams: the state is there all the same, and a free stream is taken."""
    board = ill("stalled")
    others = [board.listeners.add() for _ in range(LISTENERS_MAX)]
    async with serving(board) as server:
        page = await browser.new_page()
        await page.goto(f"http://127.0.0.1:{server.port}/")
        await expect(page.locator("h1")).to_have_text("chat-1 is stalled: hang")
        await expect(page.locator("#live-text")).to_contain_text("asked every 10")
        board.listeners.remove(others.pop())
        await expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=20_000)
        await page.close()


async def test_a_tab_in_the_background_still_tells(opened):
    """Its title counts, though browsers draw nothing there."""
    board = well()
    async with serving(board) as server:
        tab = await opened(server)
        await tab.page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true }); window.requestAnimationFrame = () => 1")  # fmt: skip
        story = {"engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page", "summary": "No step."}  # fmt: skip
        board.tell(made(event("chat-1", story, time.time())))
        await expect(tab.page).to_have_title(re.compile(r"^\(1\) chat-1 is stalled"), timeout=6000)
