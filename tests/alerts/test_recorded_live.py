"""Two recordings of a real vLLM at their own pace: a real server, our daemon, Prometheus, Alertmanager, a pager.

What the engine answered when it was stopped, killed and well is answered again at the same distances. Each fault is
one page with its cause, and is resolved; the engine that was only busy is in none. Times are printed (pytest -s).
"""

import asyncio
import json
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.alerts.player import Player, scenes
from tests.alerts.programs import Pager, alertmanager, pager, prometheus
from tests.alerts.recorded import FOLDER
from tests.daemon_process import daemon

# name and group → recording, from when to when, seconds between its looks
PLAYED: dict[str, tuple[str, float, float, float]] = {
    "stopped": ("slow_hang_pinning", 250.0, 358.0, 1.0),
    "killed": ("kv_pinning_crash", 190.0, 298.0, 1.0),
    "busy": ("busy", 60.0, 237.0, 3.0),
}
# alert, cause, whose, when it was done in seconds of the recording, what the pager reads
FAULTS = (
    ("VllmEngineStalled", "hang", "stopped", 270.5,
     "stopped engine 0 (stopped) is stalled: it has work and ends no step (hang)."),
    ("VllmEngineDown", "crash", "killed", 208.0,
     "killed (killed) is down: nothing listens where a server answered (crash)."),
    ("VllmEngineDown", "api_hang", "stopped", 312.5,
     "stopped (stopped) is down: it takes connections and answers none (api_hang)."),
)  # fmt: skip
SECONDS = 108.0
PATIENCE_SECONDS = 60.0
# As they were recorded: a look that waited longer than a second saw no answer.
ENVIRON = {"VLLM_WATCH_SCRAPE__TIMEOUT_SECONDS": "2", "VLLM_WATCH_SCRAPE__CONNECT_TIMEOUT_SECONDS": "2"}  # fmt: skip


@asynccontextmanager
async def players() -> AsyncIterator[dict[str, Player]]:
    """A server for each recording, standing at its first look."""
    made = {
        name: Player(list(scenes(FOLDER / f"{file}.jsonl.gz", from_s, to_s)))
        for name, (file, from_s, to_s, _) in PLAYED.items()
    }
    async with made["stopped"], made["killed"], made["busy"]:
        yield made


def config(folder: Path, made: dict[str, Player]) -> Path:
    targets = [
        {"name": name, "url": player.url, "group": name, "scrape": {"interval_seconds": PLAYED[name][3]}}
        for name, player in made.items()
    ]  # fmt: skip
    file = folder / "vllm-watch.yaml"
    file.write_text(yaml.safe_dump({"targets": targets}))
    return file


async def test_each_fault_is_one_page_and_is_resolved(tmp_path: Path) -> None:
    """The words on the pager, the cause, the group; then resolved; and nothing else fired at all."""
    async with (
        players() as made,
        pager() as taking,
        alertmanager(tmp_path, taking.url) as manager,
        daemon("--config", config(tmp_path, made), environ=ENVIRON) as process,
        prometheus(tmp_path, process.url.removeprefix("http://"), manager) as address,
    ):
        await process.until(all_answer, PATIENCE_SECONDS, every=0.5)
        for player in made.values():
            player.play()
        began_s = made["stopped"].began_s
        for alert, cause, whose, at_s, summary in FAULTS:
            await paged(taking, alert, cause, summary, began_s + at_s - PLAYED[whose][1])
        for alert, cause, *_ in FAULTS:
            await one(taking, alert, cause, "resolved", SECONDS)
        opened = {(each["target"], each["cause"]) for each in process.events("incident_opened")}
        assert opened == {(whose, cause) for _, cause, whose, *_ in FAULTS}
        assert told(taking) == sorted((alert, cause) for alert, cause, *_ in FAULTS)
        assert await asyncio.to_thread(ever_fired, address) == told(taking)


def all_answer(status: dict[str, Any]) -> bool:
    return all(each["signals"] and each["signals"]["up"] for each in status["targets"])


async def paged(taking: Pager, alert: str, cause: str, summary: str, fault_s: float) -> None:
    """Wait for the page of a fault that was at this time of the event loop's clock."""
    at_s, page = await one(taking, alert, cause, "firing", SECONDS)
    print(f"{alert} {cause}: page {at_s - fault_s:.1f} s after the fault")
    assert at_s > fault_s
    assert page["groupLabels"]["severity"] == "page"
    assert [each["annotations"]["summary"] for each in page["alerts"]] == [summary]


async def one(taking: Pager, alert: str, cause: str, status: str, seconds: float) -> tuple[float, dict[str, Any]]:  # fmt: skip
    """The first notification of this alert and cause that is firing, or resolved; waits until it is there."""

    def found() -> list[tuple[float, dict[str, Any]]]:
        sent = taking.notifications(alert, status)
        return [each for each in sent if each[1]["groupLabels"]["cause"] == cause]

    async with asyncio.timeout(seconds + PATIENCE_SECONDS), taking.arrived:
        await taking.arrived.wait_for(found)
    return found()[0]


def told(taking: Pager) -> list[tuple[str, str]]:
    """What was sent to whom is woken, each once."""
    assert taking.tickets == []
    sent = (each["groupLabels"] for _, each in taking.pages if each["status"] == "firing")
    return sorted((labels["alertname"], labels["cause"]) for labels in sent)


def ever_fired(address: str) -> list[tuple[str, str]]:
    """Every alert that Prometheus has seen fire, tickets that nobody was told of yet among them."""
    query = urllib.parse.urlencode({"query": 'count_over_time(ALERTS{alertstate="firing"}[10m])'})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=20) as answer:
        found = json.load(answer)["data"]["result"]
    labels = (each["metric"] for each in found)
    return sorted((each["alertname"], each.get("cause", "")) for each in labels)
