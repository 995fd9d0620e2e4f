"""The example for Alertmanager: routed as it says, its texts in words, and which alert holds back which in a real one."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.alerts.programs import alertmanager
from tests.alerts.stories import ROOT

CONFIG = ROOT / "deploy/alertmanager.yml"
TEMPLATE = ROOT / "deploy/alertmanager.tmpl"
SUMMARY = "chat-0 (chat) is down: nothing listens on its port any more (crash)."
DETAILS = "Since 2026-01-01 00:00:30 UTC. No progress for 2m 0s."
SCOPE = "7 of chat at once. The worst, by time without progress: chat-6 2m 0s; chat-5 1m 50s;"


def amtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["amtool", *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (("alertname=VllmEngineDown", "severity=page"), "page"),
        (("alertname=VllmEngineDown", "severity=ticket"), "ticket"),
        (("alertname=VllmWatchAbsent", "severity=page"), "page"),
        (("alertname=SomebodysOwn",), "ticket"),
        (("alertname=Mine", "severity=page", "restart=ask", "target=chat-0"), "restart,page"),
        (("alertname=Mine", "restart=ask", "target=chat-0"), "restart"),
    ],
)
def test_route(labels: tuple[str, ...], receivers: str) -> None:
    """Pages wake, the rest is a ticket, and only what asks for it goes to the restart receiver too."""
    said = amtool("config", "routes", "test", f"--config.file={CONFIG}", *labels)
    assert said.strip() == receivers


def render(name: str, folder: Path, *, firing: int, resolved: int = 0, later: str = SCOPE) -> str:
    """`later` is the scope of the alert that fires last; it is neither the first nor the last in the list."""
    alert: dict[str, Any] = {"annotations": {"summary": SUMMARY, "scope": SCOPE, "details": DETAILS, "page_url": "http://w:9470/#target-chat-0", "description": "This is not …",
                             "first_step": "Leave it.", "runbook_url": "http://w:9470/runbooks/engine_down"}, "labels": {}}  # fmt: skip
    labels = {"alertname": "VllmEngineDown", "group": "chat", "cause": "crash", "severity": "page"}
    data: dict[str, Any] = {
        "status": "firing" if firing else "resolved", "groupLabels": labels, "commonLabels": labels,
        "alerts": [{**alert, "status": "firing"}] * firing + [{**alert, "status": "resolved"}] * resolved,
    }  # fmt: skip
    last = {**alert["annotations"], "scope": later}
    for number, each in enumerate(data["alerts"]):
        is_last = number == len(data["alerts"]) // 2
        at = f"2026-01-01T00:00:{30 if is_last else number % 20:02}Z"
        data["alerts"][number] = (
            each | {"startsAt": at} | ({"annotations": last} if is_last else {})
        )
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    return amtool(
        "template", "render", f"--template.glob={TEMPLATE}", f"--template.data={file}",
        f'--template.text={{{{ template "vllm_watch.{name}" . }}}}',
    ).strip()  # fmt: skip


@pytest.mark.parametrize(
    ("firing", "resolved", "title"),
    [
        (1, 0, "[CRITICAL] VllmEngineDown chat: crash"),
        (7, 0, "[CRITICAL] VllmEngineDown chat: crash (7 firing, 0 resolved)"),
        (3, 4, "[CRITICAL] VllmEngineDown chat: crash (3 firing, 4 resolved)"),
        (0, 7, "[RESOLVED] VllmEngineDown chat: crash (0 firing, 7 resolved)"),
    ],
)
def test_title_counts(tmp_path: Path, firing: int, resolved: int, title: str) -> None:
    assert render("title", tmp_path, firing=firing, resolved=resolved) == title


def test_text_has_the_sentence_the_worst_and_the_runbook(tmp_path: Path) -> None:
    """Of many alerts the text is one: what the one that came last says, which counts all."""
    last = "200 of chat at once. The worst, by time without progress: chat-9 3m 0s;"
    assert render("text", tmp_path, firing=7, later=last).splitlines() == [
        SUMMARY, DETAILS, "Do: Leave it.", last, "This is not …", "Page: http://w:9470/#target-chat-0",
        "Runbook: http://w:9470/runbooks/engine_down",
    ]  # fmt: skip


Labels = dict[str, str]
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing of this is to be sent
PATIENCE_SECONDS = 30.0
HERE = {"job": "vllm-watch", "instance": "w:9470"}


def alert(name: str, severity: str = "page", target: str = "a", group: str = "chat", **more: str) -> Labels:  # fmt: skip
    own = {"target": target, "group": group} if target else {}
    return {"alertname": name, "severity": severity, **HERE, **own, **more}


def name_of(labels: Labels) -> str:
    return " ".join(labels.get(key, "") for key in ("alertname", "severity", "target")).strip()


async def kept_back(session: aiohttp.ClientSession, url: str) -> set[str]:
    """Those of the alerts that are not sent, since another one is there."""
    async with session.get(url) as answer:
        found = await answer.json()
    return {name_of(each["labels"]) for each in found if each["status"]["inhibitedBy"]}


async def settled(session: aiohttp.ClientSession, url: str, posted: list[Labels], expected: set[str]) -> set[str]:  # fmt: skip
    """The same, once all have been taken in: Alertmanager learns of them one after another, and of what they inhibit after that."""
    async with session.post(url, json=[{"labels": labels} for labels in posted]) as answer:
        assert answer.status == 200, await answer.text()
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while await kept_back(session, url) != expected:
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)  # what is inhibited wrongly may come later
    return await kept_back(session, url)


DOWN, STALLED, COLLAPSED = "VllmEngineDown", "VllmEngineStalled", "VllmThroughputCollapse"
OVERLOADED, BURN = "VllmOverloaded", "VllmLatencyBudgetBurn"
STORIES = {
    "down inhibits all that is said of the same server": (
        [alert(DOWN), alert(STALLED, engine="0"), alert(COLLAPSED, engine="0"), alert(OVERLOADED, "ticket", engine="0"),
         alert("VllmWatchTargetUnreadable", "ticket", group="")],
        {f"{STALLED} page a", f"{COLLAPSED} page a", f"{OVERLOADED} ticket a", "VllmWatchTargetUnreadable ticket a"},
    ),
    "stalled inhibits collapsed and overloaded, of the same engine": (
        [alert(STALLED, engine="0"), alert(COLLAPSED, engine="0"), alert(OVERLOADED, "ticket", engine="1")],
        {f"{COLLAPSED} page a"},
    ),
    "collapsed inhibits overloaded": (
        [alert(COLLAPSED, engine="0"), alert(OVERLOADED, "ticket", engine="0")], {f"{OVERLOADED} ticket a"},
    ),
    "nothing of another server is kept back": (
        [alert(DOWN), alert(STALLED, target="b", engine="0"), alert(COLLAPSED, target="c", engine="0")], set(),
    ),
    "down as a ticket holds back tickets, and no page": (
        [alert(DOWN, "ticket"), alert(STALLED, engine="0"), alert(COLLAPSED, "ticket", engine="1")],
        {f"{COLLAPSED} ticket a"},
    ),
    "stalled as a ticket holds back tickets of its engine, and no page": (
        [alert(STALLED, "ticket", engine="0"), alert(COLLAPSED, "ticket", engine="0"), alert(OVERLOADED, engine="0")],
        {f"{COLLAPSED} ticket a"},
    ),
    "what was a ticket and pages now is told once": (
        [alert(DOWN, "ticket"), alert(DOWN), alert(DOWN, "ticket", target="b")], {f"{DOWN} ticket a"},
    ),
    "many that are silent at once: the watcher's own page stands for their tickets": (
        [alert("VllmFleetSilent", target="vllm-watch", group="", kind="engine_down"), alert(DOWN, "ticket"),
         alert(DOWN, "ticket", target="b"), alert(DOWN, target="c")],
        {f"{DOWN} ticket a", f"{DOWN} ticket b"},
    ),
    "many groups that page at once are one page": (
        [{"alertname": "VllmFleetFailing", "severity": "page", "job": "vllm-watch"}, alert(DOWN), alert(STALLED, group="b", target="b"),
         alert("VllmGpuFault", group="c", target="c"), alert("VllmRestartBreakerOpen"), alert("VllmWatchBlind", target="d"), alert(OVERLOADED, "ticket")],
        {f"{DOWN} page a", f"{STALLED} page b", "VllmGpuFault page c", "VllmRestartBreakerOpen page a", f"{OVERLOADED} ticket a"},
    ),
    "a page says why a promise is broken; a ticket does not": (
        [alert(STALLED, engine="0"), alert(BURN, target="", group="", objective="time_to_first_token") | {"group": "chat"},
         alert(BURN, target="", objective="time_to_first_token") | {"group": "search"}, alert(DOWN, "ticket", target="b", group="search")],
        {f"{BURN} page"},
    ),
    "an open breaker that keeps an incident stands for the tickets of its group": (
        [alert("VllmRestartBreakerOpen"), alert("VllmRestartDidNotHelp", "ticket", target="b"), alert("VllmRestartUncertain", "ticket"),
         alert("VllmRestartDidNotHelp", "ticket", target="c", group="search"), alert("VllmRestartBudgetSpent", "ticket", target="b")],
        {"VllmRestartDidNotHelp ticket b", "VllmRestartUncertain ticket a"},
    ),
    "without a watcher too, what does not answer is not told as stalled": (
        [alert("VllmRawEngineDown", target=""), alert("VllmRawEngineStalled", target="")], {"VllmRawEngineStalled page"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("posted", "expected"), STORIES.values(), ids=STORIES.keys())
async def test_inhibition(tmp_path: Path, posted: list[Labels], expected: set[str]) -> None:
    """Alertmanager holds back just what another alert explains."""
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        alertmanager(tmp_path, NOBODY) as address,
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        url = f"http://{address}/api/v2/alerts"
        assert await settled(session, url, posted, expected) == expected
