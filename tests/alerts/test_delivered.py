"""Every alert as it arrives: through a real Alertmanager to a webhook, each with numbers, a first step, and links that are served.

What an alert says is what the stories have promtool see it say; here a board has their targets, so that the links can be
followed: to the page in a real browser, to the runbook and its heading.
"""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from playwright.async_api import Page, async_playwright, expect

from tests.alerts.incident_stories import STORIES as OF_INCIDENTS
from tests.alerts.other_stories import STORIES as OF_OTHERS
from tests.alerts.programs import alertmanager, pager
from tests.alerts.restart_stories import STORIES as OF_RESTARTS
from tests.alerts.stories import ROOT, RULE_FILES, as_promtool, rules
from tests.export.demo_board import signals
from tests.export.serving import serving
from tests.export.test_runbooks import Page as Anchors
from vllm_watch.board.board import Board
from vllm_watch.samples.target import Target

BASE = re.compile(r"^http://[aw]:9470")  # of the stories' watchers
WRITTEN_OUT = ROOT / "tests/alerts/watcher_test.yaml"
NAMES = {each["alert"] for each in rules(RULE_FILES) if "alert" in each}
AWAY = {"VllmWatchAbsent"}
"""Of a watcher that does not answer, nothing is served: its link leads to the repository."""

PATIENCE_SECONDS = 120.0


def fired() -> dict[str, dict[str, Any]]:
    """Of each alert one that a story sees fire: its labels, and its texts but the details."""
    found: dict[str, dict[str, Any]] = {}
    stories = [
        as_promtool(story)["tests"][0] for story in (*OF_INCIDENTS, *OF_OTHERS, *OF_RESTARTS)
    ]
    for story in (*stories, *yaml.safe_load(WRITTEN_OUT.read_text())["tests"]):
        for test in story["alert_rule_test"]:
            for each in test.get("exp_alerts", ()):
                found.setdefault(test["alertname"], each)
    return found


def board_of(alerts: dict[str, dict[str, Any]]) -> Board:
    """The targets that the alerts are of, behind sixty others."""
    board, now = Board(), time.time()
    own = {each["exp_labels"].get("target", "") for each in alerts.values()}
    for name in (*(f"_{n:02}" for n in range(60)), *sorted(own - {"", "vllm-watch"})):
        board.add_target(Target(name=name, url="http://127.0.0.1:8000"), 600.0)
        board.publish(signals(name, "serving", "38 running, 0 waiting", now))
    return board


async def delivered(
    folder: Path, alerts: dict[str, dict[str, Any]], base: str
) -> dict[str, dict[str, str]]:
    """Post them to an Alertmanager; return the annotations that the webhook was given, by alert."""
    posted = [
        {"labels": {"alertname": name, **each["exp_labels"], "number": str(number)},
         "annotations": {key: BASE.sub(base, text) for key, text in each["exp_annotations"].items() if text}}
        for number, (name, each) in enumerate(alerts.items())
    ]  # fmt: skip
    async with (
        pager() as taking,
        alertmanager(folder, taking.url) as manager,
        aiohttp.ClientSession() as session,
    ):
        for one in posted:  # by itself: what it inhibits is delivered, too
            async with session.post(f"http://{manager}/api/v2/alerts", json=[one]) as answer:
                assert answer.status == 200, await answer.text()

        def all_of_them() -> dict[str, dict[str, str]]:
            return {
                alert["labels"]["alertname"]: alert["annotations"]
                for _, sent in (*taking.pages, *taking.tickets) for alert in sent["alerts"]
            }  # fmt: skip

        async with asyncio.timeout(PATIENCE_SECONDS), taking.arrived:
            await taking.arrived.wait_for(lambda: len(all_of_them()) == len(posted))
        return all_of_them()


async def test_every_alert_arrives_with_links_that_lead_there(tmp_path: Path) -> None:
    """Each page and runbook is served, with the heading that is meant; nothing is lost on the way."""
    alerts = fired()
    assert set(alerts) == NAMES
    async with serving(board_of(alerts)) as server, aiohttp.ClientSession() as session:
        base = f"http://127.0.0.1:{server.port}"
        taken = await delivered(tmp_path, uninhibited(alerts), base)
        for name, notes in taken.items():
            assert notes["summary"]
            assert notes["first_step"], name
            if name in AWAY:
                continue
            assert notes["page_url"].startswith(f"{base}/")
            for url in (notes["page_url"], notes["runbook_url"]):
                async with session.get(url) as answer:
                    assert (answer.status, answer.content_type) == (200, "text/html"), name
                    text = await answer.text()
            heading = notes["runbook_url"].partition("#")[2]
            assert heading in {"", *Anchors(text).anchors}, name
        print(f"{len(taken)} alerts: every link is served")


def uninhibited(alerts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each on a target, in a group and of a watcher of its own, so that none holds another one back; tickets would wait for two minutes."""
    return {
        name: each | {"exp_labels": each["exp_labels"] | {
            "job": f"j{number}", "group": f"g{number}", "target": f"t{number}", "severity": "page", "cause": each["exp_labels"].get("cause", "x"),
        }}
        for number, (name, each) in enumerate(alerts.items())
    }  # fmt: skip


@pytest.mark.browser
async def test_the_links_of_an_alert_scroll_there() -> None:
    """In a browser: the target's row, below sixty others, opens in view; the runbook shows the heading."""
    alerts = fired()
    of_target = alerts["VllmRestartBreakerOpen"]["exp_annotations"]
    async with serving(board_of(alerts)) as server, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])  # fmt: skip
        page: Page = await browser.new_page()
        base = f"http://127.0.0.1:{server.port}"
        await page.goto(BASE.sub(base, of_target["page_url"]))
        name = of_target["page_url"].partition("#target-")[2]
        row = page.locator(f'details.target[id="target-{name}"]')
        await expect(row).to_have_attribute("open", "")
        await expect(row).to_be_in_viewport()
        await page.goto(BASE.sub(base, of_target["runbook_url"]))
        heading = page.locator(f"#{of_target['runbook_url'].partition('#')[2]}")
        await expect(heading).to_have_text("VllmRestartBreakerOpen")
        await expect(heading).to_be_in_viewport()
        await browser.close()
