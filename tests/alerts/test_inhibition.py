"""Which alert holds back which, asked of a real Alertmanager with the example's rules."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.alerts.programs import alertmanager

Labels = dict[str, str]
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing of this is to be sent
PATIENCE_SECONDS = 30.0
HERE = {"job": "vllm-watch", "instance": "w:9470"}


def alert(name: str, severity: str = "page", target: str = "a", group: str = "chat", **more: str) -> Labels:  # fmt: skip
    own = {"target": target, "group": group} if target else {}
    return {"alertname": name, "severity": severity, **HERE, **own, **more}


def name_of(labels: Labels) -> str:
    return " ".join(labels.get(key, "") for key in ("alertname", "severity", "target")).strip()


@asynccontextmanager
async def asked(folder: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    async with (
        alertmanager(folder, NOBODY) as address,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
    ):
        yield session, f"http://{address}/api/v2/alerts"


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
    async with asked(tmp_path) as (session, url):
        assert await settled(session, url, posted, expected) == expected
