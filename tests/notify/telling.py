"""What the tests of notifications share: alerts, settings, and a receiver that answers as it is told."""

import asyncio
import json
import time
from collections import namedtuple
from contextlib import asynccontextmanager

from aiohttp import web

from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents.incident import Incident
from vllm_watch.notify.alert import INCIDENT, RESTART, Alert
from vllm_watch.notify.base import Tools
from vllm_watch.notify.delivery import Delivery
from vllm_watch.notify.kinds import make
from vllm_watch.notify.ledger import Ledger
from vllm_watch.settings.notifications import NotificationsSettings, WebhookNotifier
from vllm_watch.state.ledger import LedgerTable
from vllm_watch.state.worker import Worker

T = 1_795_000_000.0
EVIDENCE = ("No step has ended for 94 s.", "41 requests are running.", "/health says 200.")


def incident(
    name="stall-a", *, severity="page", t=T, target="chat-0", group="chat", ended_t=None, evidence=EVIDENCE, silenced=False,
    inhibited=False, restart="advised.", about=INCIDENT, **more,
):  # fmt: skip
    """An alert: an engine that stands still."""
    said = {
        "id": name, "target": target, "engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": severity,
        "summary": "no step has ended for 94 s although 41 requests run", "restart_advised": True,
        "evidence_for": tuple(Evidence(name="", value=None, unit="", expected=None, text=text) for text in evidence),
        "opened_t": t, "began_t": t, "updated_t": t, "resolved_t": ended_t,
    }  # fmt: skip
    return Alert(
        incident=Incident(**(said | more)), about=about, group=group, restart=restart, silenced=silenced, inhibited=inhibited,
    )  # fmt: skip


def step(name="did_not_help", *, t=T, target="chat-0", group="chat"):
    """An alert: a step of a restart."""
    return incident(
        f"restart-{target}-{name}", about=RESTART, t=t, target=target, group=group, kind="restart", cause=name,
        severity="ticket", summary="no token for 300 s after the restart", engine=None, evidence=(), restart="",
        restart_advised=False,
    )  # fmt: skip


def settings(url="http://127.0.0.1:1/", **more):
    """A webhook named a."""
    return WebhookNotifier(name="a", url=url, **({"group_seconds": 0, "timeout_seconds": 5} | more))


class Receiver:
    """Answers each POST with the next of `statuses`, the last for ever; `got` is what it was sent."""

    def __init__(self):
        self.statuses = [200]
        self.headers = {}
        self.got = []
        self.requests = []  # headers and body
        self.url = ""
        self.hang = asyncio.Event()  # a status of 0 waits for it
        self.witness = lambda message: None  # sees each message before it is answered
        self._came = asyncio.Condition()

    async def handle(self, request):
        body = await request.read()
        self.requests.append((request.headers.copy(), body))
        self.got.append(json.loads(body))
        self.witness(self.got[-1])
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        async with self._came:
            self._came.notify_all()
        if status == 0:
            await self.hang.wait()
        return web.Response(status=status or 200, headers=self.headers)

    async def until(self, count, seconds=20.0):
        """Wait until so many were sent; return them."""
        async with asyncio.timeout(seconds), self._came:
            await self._came.wait_for(lambda: len(self.got) >= count)
        return self.got

    @property
    def titles(self):
        return [each["title"] for each in self.got]


@asynccontextmanager
async def receiver():
    """A real receiver on loopback."""
    it = Receiver()
    app = web.Application()
    app.router.add_post("/told{rest:.*}", it.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    it.url = f"http://127.0.0.1:{runner.addresses[0][1]}/told"
    try:
        yield it
    finally:
        it.hang.set()
        await runner.cleanup()


Report = namedtuple("Report", "outcome number queue because t")


class Desk:
    """One delivery at work over a ledger; `reports` is all that it tells of itself."""

    def __init__(self, settings, folder=None):
        self.reports = []
        self.worker = None if folder is None else Worker(folder)
        self.ledger = Ledger(None if folder is None else LedgerTable(self.worker))
        self._heard = asyncio.Event()
        self.delivery = Delivery(
            settings,
            make(settings, Tools()),
            self.ledger,
            NotificationsSettings(page_url="https://watch.example/"),
            self,
        )

    def count(self, *report):
        """Take what a NotifierHealth would be told."""
        self.reports.append(Report(*report))
        self._heard.set()

    def offer(self, *alerts):
        self.delivery.offer(alerts, time.time())

    async def heard(self, outcome, seconds=20.0, times=1):
        """Wait until it has told this outcome so often; return the last."""
        async with asyncio.timeout(seconds):
            while sum(each.outcome == outcome for each in self.reports) < times:
                self._heard.clear()
                await self._heard.wait()
        return [each for each in self.reports if each.outcome == outcome][-1]


@asynccontextmanager
async def desk(settings, folder=None):
    """A delivery that works until the block ends."""
    one = Desk(settings, folder)
    await one.ledger.open()
    task = asyncio.create_task(one.delivery.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await one.ledger.flush()
        if one.worker is not None:
            await one.worker.close()
