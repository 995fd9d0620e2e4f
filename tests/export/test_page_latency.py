"""From the daemon's verdict to the eye: faults in the lab, the real daemon as a process, the page in a browser.

The clock starts when the daemon logs that it has opened an incident, and stops when the page has painted the
incident's card. Both are on this machine, so they share a clock. Times are printed (pytest -s).
"""

import asyncio
import time
from datetime import datetime
from random import Random

import pytest
import yaml
from playwright.async_api import expect

from tests.daemon_process import daemon
from vllm_watch.lab.gpus import GpuRack
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

FAULTS = {"a-hang": "hang", "b-crash": "crash", "c-dead": "engine_dead"}
NEIGHBOURS = 60  # with news all the time, which must not keep the incident waiting
PATIENCE_SECONDS = 90.0
PAINTED = """() => {
  window.painted = {};
  const look = () => requestAnimationFrame(() => setTimeout(() => {
    for (const card of document.querySelectorAll(".incident")) window.painted[card.id] ??= Date.now() / 1000;
  }));
  new MutationObserver(look).observe(document.querySelector("main"), { childList: true, subtree: true });
}"""


def scene() -> Scene:
    """Three engines at work that will fall ill, and many that idle."""
    servers = []
    for n, name in enumerate(FAULTS):
        rng = Random(n)
        load = OpenLoop(rng, Sizes(rng, prompt_tokens=300, output_tokens=200), 4.0)
        servers.append(SimulatedVllm(name, group=name, workload=load))
    idle = [SimulatedVllm(f"idle-{n:02d}", group="idle") for n in range(NEIGHBOURS)]
    return Scene([*servers, *idle], GpuRack(1))


async def test_each_fault_is_painted_while_sixty_others_have_news(browser, tmp_path):
    """Verdict to paint, and fault to paint, are printed: the promise is a second, alone it is a tenth of that."""
    live = Live(scene())
    targets = [
        {"name": each.name, "url": each.url, "group": each.group,
         "scrape": {"interval_seconds": 1 if each.name in FAULTS else 3}}
        for each in await live.start()
    ]  # fmt: skip
    config = tmp_path / "vllm-watch.yaml"
    config.write_text(yaml.safe_dump({"targets": targets}))
    context = await browser.new_context()
    try:
        async with daemon("--config", config) as process:
            await process.until(settled, PATIENCE_SECONDS, every=0.5)
            page = await context.new_page()
            await page.goto(process.url + "/")
            await expect(page.locator("#live")).to_have_attribute("data-state", "live")
            await page.evaluate(PAINTED)
            for name, fault in FAULTS.items():
                began = time.time()
                live.scene[name].fault(fault)
                told = await opened_of(process, name)
                painted = await painted_at(page, f"incident-{told['id']}")
                verdict = datetime.fromisoformat(told["timestamp"]).timestamp()
                print(
                    f"{fault}: verdict to page {painted - verdict:.2f} s, fault to page {painted - began:.1f} s"
                )
                await expect(page.locator("h1")).to_contain_text(" is ")
            await context.close()
    finally:
        await live.stop()


def settled(status) -> bool:
    """Every target has answered, and those with requests have done some steps."""
    up = [each for each in status["targets"] if each["signals"] and each["signals"]["up"]]
    serving = [each for each in up if each["name"] in FAULTS and each["state"] == "serving"]
    return len(up) == NEIGHBOURS + len(FAULTS) and len(serving) == len(FAULTS)


async def opened_of(process, target) -> dict:
    """The log line of the first incident of a target."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for line in process.events("incident_opened"):
                if line["target"] == target:
                    return line
            await asyncio.sleep(0.05)


async def painted_at(page, card) -> float:
    """When the card was first on the screen, Unix time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (at := (await page.evaluate("window.painted")).get(card)) is None:
            await asyncio.sleep(0.05)
    return float(at)
