"""Two recordings of a real vLLM at their own pace: a real server, our daemon, Prometheus, Alertmanager, a pager.

What the engine answered when it was stopped, killed and well is answered again at the same distances; what was stopped
stays so until its page has come: what recovers before pages nobody. Each fault is one page with its cause, and is
resolved; the engine that was only busy is in none. Times are printed (pytest -s).
"""

import asyncio
import json
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.alerts.player import Player, scenes
from tests.alerts.programs import Pager, alertmanager, pager, prometheus
from tests.alerts.recorded import FOLDER
from tests.daemon_process import DaemonProcess, daemon

# name and group → recording, from when to when, seconds between its looks. Who is not stopped must outlast who is:
# at its end a player stands still, which is a hang.
PLAYED: dict[str, tuple[str, float, float, float]] = {
    "stopped": ("slow_hang_pinning", 250.0, 358.0, 1.0),
    "killed": ("kv_pinning_crash", 190.0, 375.0, 1.0),
    "busy": ("busy", 0.0, 237.0, 3.0),
}
# Whoever stops a process lets it go on when its page has come: seconds of its recording.
HELD = {"stopped": (274.0, 316.0)}


@dataclass(frozen=True)
class Fault:
    """What was done, at `at_s` of the recording, and what the pager reads of it."""

    alert: str
    cause: str
    whose: str
    at_s: float
    summary: str


FAULTS = (
    Fault("VllmEngineStalled", "hang", "stopped", 270.5,
          "stopped engine 0 is stalled: no scheduler step ends (hang)."),
    Fault("VllmEngineDown", "crash", "killed", 208.0,
          "killed is down: nothing listens on its port any more (crash)."),
    Fault("VllmEngineDown", "api_hang", "stopped", 312.5,
          "stopped is down: it accepts connections but answers none (api_hang)."),
)  # fmt: skip
PATIENCE_SECONDS = 150.0  # everything is waited for: a busy machine takes longer and passes
# As they were recorded: a look that waited longer than a second saw no answer.
ENVIRON = {"VLLM_WATCH_SCRAPE__TIMEOUT_SECONDS": "2", "VLLM_WATCH_SCRAPE__CONNECT_TIMEOUT_SECONDS": "2"}  # fmt: skip


@asynccontextmanager
async def players() -> AsyncIterator[dict[str, Player]]:
    """A server for each recording, standing at its first look."""
    made = {
        name: Player(
            list(scenes(FOLDER / f"{file}.jsonl.gz", from_s, to_s)),
            [at_s - from_s for at_s in HELD.get(name, ())],
        )
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
        for fault in FAULTS:
            await noticed(process, fault)
            player = made[fault.whose]
            fault_s = player.began_s + fault.at_s - PLAYED[fault.whose][1]
            await paged(taking, fault, fault_s)
            player.go_on()
        for fault in FAULTS:
            await one(taking, fault, "resolved")
        opened = {(each["target"], each["cause"]) for each in process.events("incident_opened")}
        assert opened == {(fault.whose, fault.cause) for fault in FAULTS}
        expected = sorted((fault.alert, fault.cause) for fault in FAULTS)
        assert told(taking) == await asyncio.to_thread(ever_fired, address) == expected


def all_answer(status: dict[str, Any]) -> bool:
    return all(each["signals"] and each["signals"]["up"] for each in status["targets"])


async def noticed(process: DaemonProcess, fault: Fault) -> None:
    """Wait until the daemon has opened the incident of this fault."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while fault.cause not in {each["cause"] for each in process.events("incident_opened")}:
            await asyncio.sleep(0.2)


async def paged(taking: Pager, fault: Fault, fault_s: float) -> None:
    """Wait for the page of a fault that was at this time of the event loop's clock."""
    at_s, page = await one(taking, fault, "firing")
    print(f"{fault.alert} {fault.cause}: page {at_s - fault_s:.1f} s after the fault")
    assert at_s > fault_s
    assert page["groupLabels"]["severity"] == "page"
    assert [each["annotations"]["summary"] for each in page["alerts"]] == [fault.summary]


async def one(taking: Pager, fault: Fault, status: str) -> tuple[float, dict[str, Any]]:
    """The first notification of its alert and cause that is firing, or resolved; waits until it is there."""

    def found() -> list[tuple[float, dict[str, Any]]]:
        sent = taking.notifications(fault.alert, status)
        return [each for each in sent if each[1]["groupLabels"]["cause"] == fault.cause]

    async with asyncio.timeout(PATIENCE_SECONDS), taking.arrived:
        await taking.arrived.wait_for(found)
    return found()[0]


def told(taking: Pager) -> list[tuple[str, str]]:
    """What was sent to whom is woken, each once."""
    assert taking.tickets == []
    sent = (each["groupLabels"] for _, each in taking.pages if each["status"] == "firing")
    return sorted((labels["alertname"], labels["cause"]) for labels in sent)


def ever_fired(address: str) -> list[tuple[str, str]]:
    """Every alert that Prometheus has seen fire, each once: those that an inhibition keeps silent among them."""
    query = urllib.parse.urlencode({"query": 'count_over_time(ALERTS{alertstate="firing"}[10m])'})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=20) as answer:
        found = json.load(answer)["data"]["result"]
    labels = (each["metric"] for each in found)
    return sorted({(each["alertname"], each.get("cause", "")) for each in labels})
