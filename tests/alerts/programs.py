"""A real Prometheus and a real Alertmanager as the examples set them up, and a pager that they reach.

Only what a test can not have is changed: addresses, intervals of seconds, and how long an alert outlives
its incident. Rules, grouping, inhibition, routes and texts are those that are shipped.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from tests.alerts.stories import ROOT
from tests.dashboards.prometheus import wait_for
from tests.ports import free_port

READY_SECONDS_MAX = 60.0
GROUP_WAIT, GROUP_INTERVAL = "10s", "2s"


@dataclass
class Pager:
    """Takes what Alertmanager sends; `pages` and `tickets` are (when, notification) in their order."""

    url: str = ""
    pages: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    tickets: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        into = self.pages if request.path == "/page" else self.tickets
        async with self.arrived:
            into.append((time.monotonic(), await request.json()))
            self.arrived.notify_all()
        return web.Response()

    def notifications(self, alert: str, status: str) -> list[tuple[float, dict[str, Any]]]:
        """The pages of an alert, firing or resolved."""
        return [
            (at, each) for at, each in self.pages
            if each["groupLabels"]["alertname"] == alert and each["status"] == status
        ]  # fmt: skip

    async def page(
        self, alert: str, status: str, count: int, seconds: float
    ) -> tuple[float, dict[str, Any]]:
        """The first page of an alert that has so many alerts in it; waits until it is there."""

        def found() -> list[tuple[float, dict[str, Any]]]:
            return [p for p in self.notifications(alert, status) if len(p[1]["alerts"]) >= count]

        async with asyncio.timeout(seconds), self.arrived:
            await self.arrived.wait_for(found)
        return found()[0]


@asynccontextmanager
async def pager() -> AsyncIterator[Pager]:
    """A pager on a loopback port."""
    taking = Pager()
    application = web.Application(client_max_size=1 << 24)
    application.router.add_post("/page", taking.take)
    application.router.add_post("/ticket", taking.take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    taking.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield taking
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(ready: str, *command: str | Path) -> AsyncIterator[None]:
    """A program, from when it answers at the address `ready` until the block ends."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await asyncio.to_thread(wait_for, ready, process, READY_SECONDS_MAX)
        yield
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 30)


@asynccontextmanager
async def alertmanager(folder: Path, pager_url: str) -> AsyncIterator[str]:
    """deploy/alertmanager.yml, with the pager as its receivers; yields its address."""
    text = (ROOT / "deploy/alertmanager.yml").read_text()
    for old, new in {
        "http://127.0.0.1:9099": pager_url,
        "group_wait: 20s": f"group_wait: {GROUP_WAIT}",
        "group_interval: 2m": f"group_interval: {GROUP_INTERVAL}",
        "- alertmanager.tmpl": f"- {ROOT / 'deploy/alertmanager.tmpl'}",
    }.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "alertmanager.yml").write_text(text)
    address = f"127.0.0.1:{free_port()}"
    async with running(
        f"http://{address}/-/ready", "prometheus-alertmanager", f"--config.file={folder / 'alertmanager.yml'}",
        f"--web.listen-address={address}", f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address=",
    ):  # fmt: skip
        yield address


class Evaluated:
    """What a running Prometheus makes of what its watcher says now."""

    def __init__(self, address: str, interval_seconds: float) -> None:
        self._url, self._interval_seconds = f"http://{address}/api/v1", interval_seconds

    async def alerts(self) -> list[dict[str, Any]]:
        """Return every alert, pending ones too, of rules evaluated twice over a scrape that began after this call.

        An alert outlives its series by one evaluation, which begins `keep_firing_for`, however short that is.
        """
        async with aiohttp.ClientSession() as session, asyncio.timeout(READY_SECONDS_MAX):
            while True:
                scraped = await self._scraped_anew(session)
                alerts = await self._evaluated(session, scraped)
                # On a busy machine a scrape may take longer than its interval: it fails, and ends all alerts.
                if await self._answered_since(session, scraped):
                    return alerts

    async def _scraped_anew(self, session: aiohttp.ClientSession) -> float:
        asked = time.time()
        while (scraped := await self._scraped(session)) <= asked:
            await asyncio.sleep(self._interval_seconds / 4)
        return scraped

    async def _evaluated(
        self, session: aiohttp.ClientSession, scraped: float
    ) -> list[dict[str, Any]]:
        done: dict[str, set[float]] = {}
        while True:
            groups = (await self._ask(session, "rules?type=alert"))["groups"]
            for each in groups:
                began = _seconds(each["lastEvaluation"])  # of the last that has ended
                # It is evaluated at its due time, at most an interval before it begins.
                if began > scraped + self._interval_seconds:
                    done.setdefault(each["name"], set()).add(began)
            if all(len(done.get(each["name"], ())) > 1 for each in groups):
                return [
                    alert for each in groups for rule in each["rules"] for alert in rule["alerts"]
                ]
            await asyncio.sleep(self._interval_seconds / 4)

    async def _answered_since(self, session: aiohttp.ClientSession, scraped: float) -> bool:
        span_ms = int(1000 * (time.time() - scraped + self._interval_seconds))  # it began before
        found = await self._ask(session, f"query?query=min(min_over_time(up[{span_ms}ms]))")
        return [each["value"][1] for each in found["result"]] == ["1"]

    async def _scraped(self, session: aiohttp.ClientSession) -> float:
        targets = (await self._ask(session, "targets?state=active"))["activeTargets"]
        return (
            min(_seconds(each["lastScrape"]) + each["lastScrapeDuration"] for each in targets)
            if targets
            else 0.0
        )

    async def _ask(self, session: aiohttp.ClientSession, path: str) -> dict[str, Any]:
        async with session.get(f"{self._url}/{path}") as answer:
            return (await answer.json())["data"]


def _seconds(moment: str) -> float:
    """Unix time of 2027-01-15T08:00:00.123456789Z."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", moment)).timestamp()


@asynccontextmanager
async def prometheus(
    folder: Path,
    watcher: str,
    alertmanager: str,
    engines: Sequence[str] = (),
    listen: str = "",
    every: tuple[str, str] = ("1s", "3s"),
    **tuned: str,
) -> AsyncIterator[str]:
    """deploy/prometheus.yaml with all rules, over one watcher, every few seconds; yields its address.

    `engines` are scraped beside it, as job vllm in namespace chat. `every`: intervals of scrapes and evaluations.
    """
    wanted = [f"--set={name}={value}" for name, value in ({"keep_firing": "1s"} | tuned).items()]
    subprocess.run(
        [sys.executable, ROOT / "alerts/generate.py", "--out", folder, *wanted],
        check=True, timeout=600,
    )  # fmt: skip
    config = yaml.safe_load((ROOT / "deploy/prometheus.yaml").read_text())
    config["global"] = dict(zip(("scrape_interval", "evaluation_interval"), every, strict=True))
    config["rule_files"] = [str(folder / "vllm-watch-rules.yaml")]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [watcher]}]
    config["scrape_configs"].append(
        {
            "job_name": "vllm",
            "static_configs": [{"targets": list(engines), "labels": {"namespace": "chat"}}],
        }
    )
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager]}]}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    address = listen or f"127.0.0.1:{free_port()}"
    async with running(
        f"http://{address}/-/ready", "prometheus", f"--config.file={folder / 'prometheus.yaml'}",
        f"--web.listen-address={address}", f"--storage.tsdb.path={folder / 'prometheus'}",
    ):  # fmt: skip
        yield address
