"""A daemon that looks twice a second at two engines: one that stays well, and one that may die."""

import os
from contextlib import asynccontextmanager

from tests.daemon_process import daemon
from tests.faults.engine import Engine

ENVIRON = {
    "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "0.5",
    # Patient with engines that live in the test's process, on a machine that runs other tests.
    "VLLM_WATCH_SCRAPE__TIMEOUT_SECONDS": "10",
    "VLLM_WATCH_SCRAPE__CONNECT_TIMEOUT_SECONDS": "10",
}
PATIENCE_SECONDS = float(os.environ.get("FAULTS_PATIENCE_SECONDS", "300"))
"""... of a machine that is busy with other tests; alone each step takes seconds. Less where much of what is waited
for will never come (removing.py)."""


class Site:
    """The process and its engines."""

    def __init__(self, process, well, other):
        self.process = process
        self.well = well
        self.other = other

    async def target(self, name="well"):
        """What the status says of a target now."""
        return named(await self.process.status(), name)

    async def until(self, true, name="well"):
        """Wait until `true(target)`; return the target."""
        status = await self.process.until(
            lambda status: true(named(status, name)), PATIENCE_SECONDS
        )
        return named(status, name)

    async def looks(self, count, name="well"):
        """Wait for so many more looks at a target; return it as it is then."""
        so_far = calls(await self.target(name))
        return await self.until(lambda target: calls(target) >= so_far + count, name)

    async def dies(self):
        """The other engine dies at work: wait until that is told, and return its incident."""
        await self.other.misbehave("refuses")
        target = await self.until(lambda target: target["incidents"], "other")
        (incident,) = target["incidents"]
        return incident

    @property
    def opened(self):
        """(target, kind) of every incident that was told."""
        return [(line["target"], line["kind"]) for line in self.process.events("incident_opened")]


NOTHING_YET = {"state": "", "signals": None, "sources": {}, "incidents": []}


def named(status, name):
    """A target of this name; nothing is known of one that is not there (yet)."""
    return next((each for each in status["targets"] if each["name"] == name), NOTHING_YET)


def calls(target):
    return target["sources"]["metrics"]["calls"] if target["sources"] else 0


def rate(target):
    """Tokens a second of its only engine; None while that is not known."""
    engines = (target["signals"] or {}).get("engines", {})
    return next((each["generation_tokens_per_second"] for each in engines.values()), None)


@asynccontextmanager
async def site(*arguments, environ=None, host="127.0.0.1", **options):
    """Both engines are up, and their rates known."""
    well, other = Engine(), Engine()
    await well.start()
    await other.start()
    try:
        places = [f"well=http://{host}:{well.port}", f"other=http://{host}:{other.port}"]
        targets = [part for place in places for part in ("--target", place)]
        async with daemon(
            *targets, *arguments, environ=ENVIRON | (environ or {}), **options
        ) as process:
            found = Site(process, well, other)
            for name in ("well", "other"):
                await found.until(lambda target: rate(target) is not None, name)
            yield found
    finally:
        await well.stop()
        await other.stop()
