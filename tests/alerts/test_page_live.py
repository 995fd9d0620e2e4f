"""The whole way: a fault in the lab, our daemon, a real Prometheus, a real Alertmanager, a pager.

One engine hangs, and at the same moment 200 others of one group die. Each is one page; the first one is
resolved when its engine steps again. Times are printed (pytest -s).
"""

import re
import time
from random import Random

import yaml

from tests.alerts.programs import Pager, alertmanager, pager, prometheus
from tests.daemon_process import daemon
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes

MANY = 200
# Everything here is waited for, not slept for: a busy machine takes longer and passes.
PATIENCE_SECONDS = 400.0  # 201 engines and a Prometheus, on a machine that is busy with other tests
SCRAPED = ("5s", "3s")
"""A scrape must end within its interval, and on a busy machine 201 engines take over a second."""

ENVIRON = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "1"}


def scene() -> Scene:
    """One engine that is asked for something, and a large group that idles."""
    rng = Random(1)
    load = OpenLoop(rng, Sizes(rng, prompt_tokens=300, output_tokens=200), 4.0)
    chat = [SimulatedVllm(f"chat-{n}", group="chat") for n in range(MANY)]
    return Scene([SimulatedVllm("solo", group="solo", workload=load), *chat])


async def test_one_page_for_one_and_one_for_two_hundred(tmp_path):
    """Fault in, page out with the cause and the worst; resolved when it is over."""
    live = Live(scene())
    targets = [
        {"name": target.name, "url": target.url, "group": target.group,
         "scrape": {"interval_seconds": 1 if target.name == "solo" else 4}}
        for target in await live.start()
    ]  # fmt: skip
    config = tmp_path / "vllm-watch.yaml"
    config.write_text(yaml.safe_dump({"targets": targets}))
    try:
        async with (
            pager() as taking,
            alertmanager(tmp_path, taking.url) as manager,
            daemon("--config", config, environ=ENVIRON) as process,
            prometheus(tmp_path, process.url.removeprefix("http://"), manager, every=SCRAPED),
        ):
            await process.until(settled, PATIENCE_SECONDS, every=0.5)
            began = time.monotonic()
            live.scene["solo"].fault("hang")
            for n in range(MANY):
                live.scene[f"chat-{n}"].fault("engine_dead")
            await one_page_each(taking, began)
            healed = time.monotonic()
            live.scene["solo"].clear("hang")
            at, _ = await taking.page("VllmEngineStalled", "resolved", 1, PATIENCE_SECONDS)
            print(f"it steps again: resolved after {at - healed:.1f} s")
    finally:
        await live.stop()


def settled(status) -> bool:
    """Every target was seen to answer, and the one with requests has done some steps."""
    up = [target for target in status["targets"] if target["signals"] and target["signals"]["up"]]
    solo = [target for target in up if target["name"] == "solo" and target["state"] == "serving"]
    return len(up) == MANY + 1 and bool(solo)


async def one_page_each(taking: Pager, began: float) -> None:
    """Of each trouble one group of alerts has come, with its cause, its count and its worst."""
    at, stalled = await taking.page("VllmEngineStalled", "firing", 1, PATIENCE_SECONDS)
    print(f"one engine hangs: page after {at - began:.1f} s")
    assert stalled["groupLabels"]["cause"] == "hang"
    notes = stalled["alerts"][0]["annotations"]
    assert notes["summary"] == "solo engine 0 is stalled: no scheduler step ends (hang)."
    assert not notes.get("scope")
    assert re.fullmatch(
        r"Since \S+ \S+ UTC\. No progress for [\dms ]+\. Requests: \d+ running, \d+ waiting\. Model \S+\.",
        notes["details"],
    )
    assert notes["first_step"].startswith("Take it out of the load balancer")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#target-solo", notes["page_url"])
    assert notes["runbook_url"].endswith("/runbooks/engine_stalled")

    at, down = await taking.page("VllmEngineDown", "firing", MANY, PATIENCE_SECONDS)
    sent = taking.notifications("VllmEngineDown", "firing")
    print(
        f"{MANY} engines die: page after {sent[0][0] - began:.1f} s with {len(sent[0][1]['alerts'])}"
    )
    print(f"... and all of them in it after {at - began:.1f} s; {len(sent)} message(s)")
    assert len({each["groupKey"] for _, each in sent}) == 1
    assert (down["groupLabels"]["group"], down["groupLabels"]["cause"]) == ("chat", "engine_dead")
    assert {alert["labels"]["severity"] for alert in down["alerts"]} == {"page"}
    last = max(down["alerts"], key=lambda alert: alert["startsAt"])["annotations"]["scope"]
    assert last.startswith(f"{MANY} of chat at once. The worst, by time without progress: chat-")
    assert last.count(";") == 5
    assert {each["groupLabels"]["alertname"] for _, each in taking.pages} == {
        "VllmEngineStalled", "VllmEngineDown",
    }  # fmt: skip
