"""Two cycles of the demo: page, `top`, API, /metrics and the alerts of a real Prometheus never say different things of one fact.

All of it happens in virtual time: the engines are scraped and everything is compared at each second. At each change of
an incident virtual time stands still until a real Prometheus has scraped the same board and evaluated the shipped
rules, so only their waits are left out. Promtool evaluates those, over the whole of /metrics.
"""

import json
import os
import re
import time
from typing import Any

import pytest
from playwright.async_api import expect
from prometheus_client import CollectorRegistry

from benchmarks.detection.sequences import KINDS
from benchmarks.lab.virtual import EPOCH
from tests.alerts import chain
from tests.alerts.programs import Evaluated, prometheus
from tests.export.browsing import LAPTOP, Tab
from tests.export.contradictions import Seen, contradictions
from tests.export.demo_hour import ILL, LATE_SECONDS, DemoHour
from tests.export.serving import serving
from vllm_watch.board import board
from vllm_watch.cli import top
from vllm_watch.cli.helpers.top.status import Status as ToldStatus
from vllm_watch.export import text
from vllm_watch.export.status import Status
from vllm_watch.story.base import severity_word
from vllm_watch.story.kinds import story_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

CYCLE_SECONDS = 585
RULES_EVERY_SECONDS = int(os.environ.get("RULES_EVERY_SECONDS", "60"))
"""The rules are also evaluated at every change of an incident. `make one-truth` evaluates them at each second."""

INTERVAL, INTERVAL_SECONDS = "200ms", 0.2  # of the real Prometheus
HEIGHT = 5000  # what is out of sight is not drawn
NOW, MEAN = "current_generation_tokens_per_second", "generation_tokens_per_second"
STANDS_STILL = ("hang", "admission_deadlock", "crash", "engine_dead")
ALERTS = {
    "VllmEngineStalled": "engine_stalled", "VllmEngineDown": "engine_down",
    "VllmThroughputCollapse": "throughput_collapse", "VllmOverload": "overload",
}  # fmt: skip
ALERT_EARLY_SECONDS = 75.0
"""An incident has its alert two evaluations after it opened, and 30 s later if its cause is unknown."""

ALERT_LATE_SECONDS = 90.0
"""An alert begins at the next evaluation, and is kept for a minute so that a flapping series tells once."""

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

SHOWN = """() => [...document.querySelectorAll("details.target")].map((row) => [
  row.querySelector("h3").textContent, row.querySelector(".cell-generation .cell-value").textContent.replace(/[^\\d.]/g, "")])"""


class Told:
    """What API, terminal and /metrics say of one moment."""

    def __init__(self, play: DemoHour) -> None:
        self.body = text.render(play.board, CollectorRegistry()).decode()
        said = Status(play.board).whole(None)
        self.api = json.loads(said)
        self.top = top.as_data(ToldStatus.model_validate_json(said))
        self.metrics: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in self.body.splitlines():
            if found := _SAMPLE.match(line):
                labels = dict(_LABEL.findall(found[2]))
                self.metrics.setdefault(found[1], []).append((labels, float(found[3])))

    def of_engines(self, name: str) -> dict[tuple[str, str], float]:
        """A family of engines, by target and engine."""
        return {(each["target"], each["engine"]): value for each, value in self.metrics.get(f"vllm_watch_engine_{name}", ())}  # fmt: skip

    def rates(self, name: str) -> dict[str, dict[tuple[str, str], float]]:
        """By who tells it, what they say of a rate."""
        engines = {
            (target["name"], label): engine[name]
            for target in self.api["targets"]
            for label, engine in ((target["signals"] or {}).get("engines") or {}).items()
        }
        rows = {(row["target"], row["engine"]): row[name] for row in self.top["engines"]}
        told = {"API": engines, "top": rows, "/metrics": self.of_engines(name)}
        return {who: {key: round(value, 6) for key, value in of.items() if value is not None} for who, of in told.items()}  # fmt: skip

    def states(self) -> dict[str, set[tuple[str, str]]]:
        """By who tells it, which engine is in which state."""
        of_metrics = {(each["target"], each["state"]) for each, value in self.metrics["vllm_watch_engine_state"] if value}  # fmt: skip
        of_api = set()
        for target in self.api["targets"]:
            engines = (target["signals"] or {}).get("engines") or {}
            of_api |= {(target["name"], each["state"]) for each in engines.values()} or {(target["name"], target["state"])}  # fmt: skip
        return {
            "API": of_api,
            "top": {(row["target"], row["state"]) for row in self.top["engines"]},
            "/metrics": of_metrics,
        }

    def incidents(self) -> dict[str, set[tuple[str, str, str, str, bool]]]:
        """By who tells it, which incidents are open: target, kind, cause, severity, and is it active?"""
        entries = (*self.api["targets"], self.api["host"])
        of_api = [each for entry in entries for each in entry["incidents"]]
        names = ("target", "kind", "cause", "severity")
        open_ = [each for each, value in self.metrics.get("vllm_watch_incident_open", ()) if value]
        recovering = self.metrics.get("vllm_watch_incident_recovering", ())
        over = {tuple(each[name] for name in names) for each, value in recovering if value}
        return {
            "API": {(*(each[name] for name in names), each["phase"] == "active") for each in of_api},
            "top": {(*(each[name] for name in names), each["phase"] == "active") for each in self.top["wrong"]},
            "/metrics": {(*key, key not in over) for key in (tuple(each[name] for name in names) for each in open_)},
        }  # fmt: skip

    def asking(self) -> set[tuple[str, str, str, str]]:
        """The incidents that ask for somebody now."""
        return {_key(each) for each in self.top["wrong"] if each["phase"] == "active" and each["severity"] != "info"}  # fmt: skip


def differences(told: Told, play: DemoHour) -> list[str]:
    """Every sentence is one fact that is told in two ways, or otherwise than it is."""
    found = []
    for what in (told.rates(NOW), told.rates(MEAN), told.states(), told.incidents()):
        who, first = next(iter(what.items()))
        found += [f"{who}: {first}, {other}: {said}" for other, said in what.items() if said != first]  # fmt: skip
    trouble = play.trouble_at(play.t)
    still = trouble and trouble.slug in STANDS_STILL and play.t - trouble.begin_s > LATE_SECONDS
    rate = told.rates(NOW)["API"].get((ILL, "0"))
    if still and rate:
        found.append(f"in a {trouble.slug} {rate} tokens per second are told")
    if play.healthy_at(play.t) and rate == 0 and told.of_engines("requests_running")[ILL, "0"] > 1:
        found.append("all is well, requests run, and no token is told")
    return found


def wrong_alerts(alerts, play: DemoHour, seen: list[tuple[float, set[Any], set[Any]]]) -> list[str]:  # fmt: skip
    """Return alerts of which the lab knows nothing, or that the incidents of their time do not tell.

    `seen`: the incidents and those that ask for somebody, by the second.
    """
    found = []
    for alert in (each for each in alerts if each.name in ALERTS):
        labels = alert.labels
        begins, ends = alert.first_s - ALERT_LATE_SECONDS, alert.last_s
        incidents = {each[:2] for t, told, _ in seen if begins <= t <= ends for each in told}
        if (labels["target"], ALERTS[alert.name]) not in incidents:
            found.append(
                f"{alert.name} of {labels['target']} at {alert.first_s} s, and no incident"
            )
        if not any(
            KINDS[each.slug] == ALERTS[alert.name]
            and each.begin_s <= ends
            and (each.end_s or ends) >= begins
            for each in play.told.troubles
        ):
            found.append(f"{alert.name} at {alert.first_s} s: nothing of the kind was wrong")
    for t, *_ in seen:
        before = [asking for at_s, _, asking in seen if t - ALERT_EARLY_SECONDS <= at_s <= t]
        for key in set.intersection(*before):
            if not any(_key(each.labels) == key and each.first_s <= t <= each.last_s + chain.SCRAPE_SECONDS for each in alerts):  # fmt: skip
                found.append(f"{key} at {t} s, and no alert")
    return found


def alert_differences(alerts, told: Told, shown: Seen) -> list[str]:
    """Between what fires in Prometheus and what page, top and API tell, in both directions."""
    firing = {_key(alert["labels"]): alert for alert in alerts if alert["labels"].get("kind") and alert["state"] == "firing"}  # fmt: skip
    of_api = {_key(each): each for entry in (*told.api["targets"], told.api["host"]) for each in entry["incidents"] if each["phase"] == "active" and each["severity"] != "info"}  # fmt: skip
    of_top = {_key(each): each for each in told.top["wrong"]}
    cards = {each["id"]: each for each in shown.cards}
    found = [f"alert {key} fires without an incident" for key in firing.keys() - of_api.keys()]
    found += [f"incident {key} without an alert" for key in of_api.keys() - firing.keys()]
    for key in firing.keys() & of_api.keys():
        alert, incident, row = firing[key], of_api[key], of_top[key]
        card, notes, story = cards[incident["id"]], alert["annotations"], story_of(key[2], key[0])
        since = time.strftime("%H:%M:%S UTC", time.gmtime(incident["began_timestamp_seconds"]))
        facts = {
            "severity": (severity_word(alert["labels"]["severity"]), severity_word(incident["severity"]), card["severity"], severity_word(row["severity"])),
            "title": (story.title_of(key[3]), incident["title"], card["title"], row["title"]),
            "since": (since, card["since"].removeprefix("since ").partition(",")[0], time.strftime("%H:%M:%S UTC", time.gmtime(row["began_t"]))),
        }  # fmt: skip
        found += [f"{key}: {name} {told}" for name, told in facts.items() if len(set(told)) > 1]
        if f" {since}." not in notes["details"] or not notes["details"].startswith("Since "):
            found.append(f"{key}: since {since}, and the alert: {notes['details']}")
        who = f"{key[0]} engine {key[1]}" if key[1] else key[0]
        if not notes["summary"].startswith(f"{who} {story.says}: ") or f"({key[3]})" not in notes["summary"]:  # fmt: skip
            found.append(f"{key}: {incident['title']}, and the alert: {notes['summary']}")
    return found


def _key(labels) -> tuple[str, str, str, str]:
    """Of an alert or an incident: whose, and what."""
    return labels["target"], labels.get("engine") or "", labels["kind"], labels["cause"]


async def test_two_cycles_of_the_demo_are_told_alike_everywhere(browser, monkeypatch, tmp_path):
    """Page, terminal, API, metrics, alerts and truth."""
    monkeypatch.setattr(board, "LISTENERS_MAX", 0)  # the page polls: the test says when
    found: list[str] = []
    scraped, seen = chain.Exported(began_t=EPOCH), []
    async with (
        DemoHour(monkeypatch, interval_s=1.0) as play,
        serving(play.board) as server,
        await browser.new_context(viewport={"width": LAPTOP[0], "height": HEIGHT}) as context,
        prometheus(
            tmp_path, f"127.0.0.1:{server.port}", "127.0.0.1:9", every=(INTERVAL, INTERVAL),
            keep_firing="1ms", cause_wait="1ms",
        ) as address,
    ):  # fmt: skip
        rules, fired = Evaluated(address, INTERVAL_SECONDS), set()
        before: object = None
        tab = Tab(await context.new_page(), f"http://127.0.0.1:{server.port}/")
        await tab.page.goto(tab.url)
        await expect(tab.page.locator("#live")).to_have_attribute("data-state", "polled")
        for at_s in range(1, 2 * CYCLE_SECONDS + 1):
            await play.advance(at_s)
            told = Told(play)
            seen.append((at_s, told.incidents()["API"], told.asking()))
            while at_s >= scraped.scrapes * chain.SCRAPE_SECONDS:
                scraped.scrape(told.body)
            found += [f"{at_s} s: {each}" for each in differences(told, play)]
            shown = await Seen.of(tab.page)
            found += [f"{at_s} s: page: {each}" for each in contradictions(shown, play)]
            now = told.incidents()["API"]
            if now != before or at_s % RULES_EVERY_SECONDS == 0:
                alerts, before = await rules.alerts(), now
                fired |= {each["labels"]["alertname"] for each in alerts}
                found += [f"{at_s} s: {each}" for each in alert_differences(alerts, told, shown)]
            of_api = {target: sum(v for (name, _), v in told.rates(NOW)["API"].items() if name == target) for target, _ in told.rates(NOW)["API"]}  # fmt: skip
            for name, number in await tab.page.evaluate(SHOWN):
                rate = of_api.get(name)
                if (number == "") != (rate is None) or (number and abs(float(number) - rate) > 0.006 * rate + 0.01):  # fmt: skip
                    found.append(f"{at_s} s: page: {name} generates {number}, API {rate}")
    alerts = chain.alerts(scraped, tmp_path)
    assert {each.name for each in alerts} >= {"VllmEngineStalled", "VllmEngineDown"}
    assert fired >= {"VllmEngineStalled", "VllmEngineDown", "VllmThroughputCollapse"}
    assert found + wrong_alerts(alerts, play, seen) == []
