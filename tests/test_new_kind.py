"""A new kind of incident is four files: then it is judged, counted, shown, told and alerted as every other one.

A copy of the tree is given a kind `toy`. The real daemon runs from it beside an engine of the lab; what it says is
read on the page in a browser, in the terminal, in a notification and in the alert rules that are made there.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.async_api import async_playwright, expect

from tests.alerts.stories import promtool, rules
from tests.daemon_process import daemon
from tests.notify.telling import receiver
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm

ROOT = Path(__file__).parents[1]
COPIED = ["vllm_watch", "alerts", "dashboards", "deploy", "docs", "tests", "pyproject.toml", "requirements.lock", "CHANGELOG.md", "mkdocs.yml"]  # fmt: skip

DETECTOR = '''\
"""Toys lie about."""

from collections.abc import Sequence

from pydantic import BaseModel

from vllm_watch.detectors.base import FIRING, Verdict, View

KIND = "toy"


class Settings(BaseModel):
    """Nothing to tune."""


class Detector:
    """Finds marbles in every engine that it sees."""

    def __init__(self, settings: Settings) -> None:
        pass

    def update(self, view: View) -> Sequence[Verdict]:
        return [
            Verdict(state=FIRING, kind=KIND, engine=name, cause="marbles", summary=f"Engine {name} rattles")
            for name in view.signals.engines
        ]
'''
STORY = '''\
"""How it is told that toys lie about."""

from vllm_watch.story.base import Cause, Story

STORY = Story(
    title="Toys about",
    says="has toys lying about",
    about="Toys lie about in the engine.",
    cost="Nothing.",
    is_not="a model that plays games",
    first_step="Tidy up.",
    restart="A restart does not help: toys do not put themselves away.",
    causes={"marbles": Cause(title="marbles", seen="marbles roll in the cache", first_step="Pick up the marbles.")},
    severities=("ticket",),
    charts=("requests_running",),
)
'''
PAGE = """\
# toy

Toys lie about in an engine.

## What to do now

Pick up the marbles.

## Is it really that?

A model that plays games rattles, too.

## Reference

### What it sees

Cause `marbles`: it rattles.
"""
TEST = '''\
"""Marbles are found."""

from tests.detectors.looks import engine, seen
from vllm_watch.watch.watch import Watch


def test_marbles() -> None:
    watch = Watch("x")
    for n in range(3):
        watch.observe(seen(5.0 * n, engine(1000 + n)))
    assert [(each.kind, each.cause) for each in watch.incidents] == [("toy", "marbles")]
'''
FILES = {
    "vllm_watch/detectors/toy.py": DETECTOR, "vllm_watch/story/toy.py": STORY,
    "docs/detectors/toy.md": PAGE, "tests/detectors/test_toy.py": TEST,
}  # fmt: skip
MADE = ("docs/generate_thresholds.py", "docs/generate_configuration.py", "docs/generate_schema.py", "docs/generate_man.py", "docs/generate_llms.py", "dashboards/build.py", "alerts/generate.py", "docs/generate_runbooks.py")  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy with the four files, and with what is made of them made anew."""
    copy = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    for name, text in FILES.items():
        assert not (copy / name).exists()
        (copy / name).write_text(text)
    for script in MADE:
        done = python(copy, script)
        assert done.returncode == 0, done.stdout + done.stderr
    return copy


def python(tree: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in a copy, with the code of the copy."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=tree, capture_output=True, text=True, timeout=400, check=False,
        env=os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "200"},
    )  # fmt: skip


@pytest.mark.browser
async def test_a_new_kind_is_seen_wherever_incidents_are(tree: Path, tmp_path: Path) -> None:
    """With its own words: status, metrics, page, terminal and notification."""
    async with Live(Scene([SimulatedVllm("box")])) as live, receiver() as taking:
        config = {
            "targets": [{"name": "box", "url": live.servers["box"].url}],
            "notifications": {"webhook": [{"name": "a", "url": taking.url, "group_seconds": 0, "kinds": ["toy"]}]},
        }  # fmt: skip
        file = tmp_path / "vllm-watch.yaml"
        file.write_text(yaml.safe_dump(config))
        async with daemon("--config", file, tree=tree) as process:
            status = await process.until(lambda s: s["targets"][0]["incidents"])
            (incident,) = status["targets"][0]["incidents"]
            assert status["story"]["toy"]["causes"]["marbles"]["title"] == "marbles"
            assert (incident["title"], incident["first_step"]) == ("Toys about: marbles", "Pick up the marbles.")  # fmt: skip
            await process.shows('vllm_watch_incidents_total{target="box",kind="toy"} 1')
            await page_says(process.url)
            top = ("-m", "vllm_watch", "top", "--once", "--url", process.url)
            told = (await asyncio.to_thread(python, tree, *top)).stdout
            told_of = (await taking.until(1))[0]["text"]
    assert "warning   box/0  Toys about: marbles" in told
    assert "  do       Pick up the marbles. Runbook on the page: /runbooks/toy\n" in told
    assert "  restart  A restart does not help: toys do not put themselves away.\n" in told
    assert "box engine 0 has toys lying about: marbles, since " in told_of
    assert "\nDo: Pick up the marbles.\nRestart: A restart does not help" in told_of
    assert "\nRunbook: docs/detectors/toy.md\n" in told_of


async def page_says(url: str) -> None:
    """The card of the incident, in a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        tab = await browser.new_page()
        await tab.goto(url)
        card = tab.locator(".incident")
        await expect(card.locator("h3")).to_have_text("Toys about: marbles", timeout=20_000)
        await expect(card.locator(".first-step")).to_have_text("Do: Pick up the marbles.")
        await expect(card.locator(".restart")).to_have_text("Restart: vllm-watch will not restart it (restarts are off). A restart does not help: toys do not put themselves away.")  # fmt: skip
        await expect(card.get_by_role("link", name="Runbook")).to_have_attribute(
            "href", "runbooks/toy"
        )
        await expect(card.locator(".chart")).to_have_count(1)
        await expect(tab.locator("#verdict-text")).to_have_text("box has toys lying about: marbles")
        await browser.close()


def test_a_new_kind_has_its_alert(tree: Path) -> None:
    """Made by the generator: valid, in every form, and in the page of alerts; no dashboard names kinds."""
    files = sorted((tree / "alerts").glob("*.yaml"))
    status, said = promtool("check", "rules", "--lint=all", "--lint-fatal", *files)
    assert status == 0, said
    (alert,) = (rule for rule in rules(files) if rule.get("alert") == "VllmToy")
    assert alert["expr"] == 'vllm_watch:incident_alert{kind="toy"}'
    assert "Pick up the marbles." in alert["annotations"]["first_step"]
    (rest,) = (rule["expr"] for rule in rules(files) if rule.get("alert") == "VllmIncident")
    assert "|toy" in rest
    for form in ("alerts/mixin/rules.json", "deploy/kubernetes/monitoring/prometheus-rule.yaml"):
        assert "VllmToy" in (tree / form).read_text()
    assert "### VllmToy\n" in (tree / "docs/alerts.md").read_text()
    for board in (ROOT / "dashboards").glob("*.json"):
        assert (tree / "dashboards" / board.name).read_text() == board.read_text()


def test_a_new_kind_needs_no_other_file(tree: Path) -> None:
    """Its own test, what every kind must have, and what holds for pages and alerts."""
    done = python(
        tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/test_story.py", "tests/detectors/test_toy.py", "tests/alerts/test_rules.py",
        "tests/test_conventions.py::test_every_page_of_docs_is_on_the_map",
        "tests/test_conventions.py::test_generated_pages_are_in_step",
        "tests/detectors/test_needs.py::test_every_detector_says_what_it_needs",
        "tests/board/test_incidents.py", "-k", "not written_out",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
