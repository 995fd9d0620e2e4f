"""The status page in Chromium: how soon it says what is wrong, and what news of a whole fleet cost it.

`python benchmarks/bench_page.py [TARGETS]...`; a bar beside each figure is for a free machine of two cores.
"""

import asyncio
import gzip
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.async_api import Browser, async_playwright

from tests.export.browsing import LONGEST, paint_ms
from tests.export.page_states import many, renew
from tests.export.serving import serving
from vllm_watch.export import page_files

FLEETS = (9, 500, 2000)
OPENINGS = 5
NEWS = 5
DRAWN_BAR_MS = 1000
NODES = "document.getElementsByTagName('*').length"
BEAT_SECONDS = 1.2  # a little over a batch of news


async def main() -> None:
    files = page_files.contents()
    packed = sum(len(gzip.compress(content, 1)) for content in files.values())
    plain = sum(map(len, files.values()))
    print(f"{len(files)} files, {plain / 1000:.0f} kB, {packed / 1000:.0f} kB as they are sent")
    print(f"{'targets':>8}{'first paint':>13}{'verdict':>10}{'bar':>8}{'news block for':>16}{'nodes':>8}{'heap':>9}")  # fmt: skip
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for count in map(int, sys.argv[1:] or FLEETS):
            await row(browser, count)
        await browser.close()
    print(
        "the median of five openings; news: the longest time that the page did not answer, under 50 ms unseen"
    )


async def row(browser: Browser, count: int) -> None:
    """Open the page some times, then look at every target some times."""
    board = many(count)
    times = []
    async with serving(board) as server:
        for _ in range(OPENINGS):
            page = await browser.new_page()
            await page.goto(f"http://127.0.0.1:{server.port}/")
            await page.wait_for_selector('#live[data-state="live"]')
            await asyncio.sleep(0.3)
            times.append(await paint_ms(page))
            if len(times) < OPENINGS:
                await page.close()
        await page.evaluate(LONGEST)
        for _ in range(NEWS):
            renew(board)
            await asyncio.sleep(BEAT_SECONDS)
        longest_ms = await page.evaluate("window.longest")
        nodes = await page.evaluate(NODES)
        heap = await page.evaluate("performance.memory.usedJSHeapSize") / 2**20
        await page.close()
    first, drawn = (statistics.median(each) for each in zip(*times, strict=True))
    bar = "" if count > 500 else f"{DRAWN_BAR_MS} ms"
    print(
        f"{count:>8}{first:>10.0f} ms{drawn:>7.0f} ms{bar:>8}{longest_ms:>13.0f} ms{nodes:>8}{heap:>6.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(main())
