"""A host whose clocks are set, that sleeps, or whose name server flaps, around a real daemon.

The clocks are those of a library between the daemon and the kernel (host.c), so an hour takes no time.
"""

import asyncio
import signal

import pytest

from tests.faults.host import NAME, Host
from tests.faults.site import rate, site

HOUR, HALF_AN_HOUR, TEN_MINUTES = 3600.0, 1800.0, 600.0
TOKENS_PER_SECOND = 10_000.0  # what the engines generate


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    host.close()


@pytest.mark.parametrize("step_s", [HOUR, -HOUR], ids=["forward", "back"])
async def test_a_clock_that_is_set_by_an_hour(host, step_s):
    """No incident, no false rate nor one that is not known, and who dies afterwards is told at once, as a page."""
    async with site(environ=host.environ) as here:
        before = await here.target()
        host.step(unix_s=step_s)
        looks = [await here.looks(1) for _ in range(12)]
        assert here.opened == []
        rates = [rate(look) for look in looks if look["signals"]["up"]]
        assert rates == [pytest.approx(TOKENS_PER_SECOND, rel=0.3)] * len(rates)
        after = await here.target()
        assert after["signals"]["t"] - before["signals"]["t"] == pytest.approx(step_s, abs=300)
        incident = await here.dies()
        assert (incident["kind"], incident["cause"], incident["severity"]) == (
            "engine_down", "crash", "page",
        )  # fmt: skip


BOTH_CLOCKS = {"unix_s": TEN_MINUTES, "monotonic_s": TEN_MINUTES}
WAYS = {  # what its clocks show afterwards; does its engine run meanwhile?
    "SIGSTOP": (BOTH_CLOCKS, True),
    "SIGSTOP, and its engine too": (BOTH_CLOCKS, False),
    "the host sleeps": ({"unix_s": TEN_MINUTES}, True),  # its monotonic clock stands still
}


@pytest.mark.parametrize(("clocks", "engine_runs"), WAYS.values(), ids=WAYS)
async def test_a_watcher_that_was_suspended_for_ten_minutes(host, clocks, engine_runs):
    """It calls nobody dead because of its own sleep, and tells who died in it."""
    async with site(environ=host.environ) as here:
        # A look is under way when it is stopped: its time runs out while nobody is there to see it.
        here.well.runs.clear()
        await here.well.scraped(here.well.scrapes + 1)
        process = here.process.process
        process.send_signal(signal.SIGSTOP)
        await here.other.misbehave("refuses")
        if engine_runs:
            here.well.runs.set()
            await asyncio.sleep(1)  # the answer that was under way arrives while it stands
        host.step(**clocks)
        scrapes = here.well.scrapes
        process.send_signal(signal.SIGCONT)
        await here.well.scraped(scrapes + 1)  # where there is no answer: the second try
        here.well.runs.set()
        after = await here.looks(6)
        assert after["sources"]["metrics"]["errors"] == {}
        assert after["incidents"] == []
        other = await here.until(lambda target: target["incidents"], "other")
        (incident,) = other["incidents"]
        assert (incident["kind"], incident["cause"]) == ("engine_down", "crash")
        # While it slept the engine may have been emptied and stopped on purpose: a ticket until it stays away for as
        # long as any start may take; but a page at once where the last look had begun before, and ended well when it
        # woke.
        assert incident["severity"] in {"ticket", "page"}
        host.step(**dict.fromkeys(("unix_s", "monotonic_s"), HALF_AN_HOUR))
        await here.until(
            lambda target: any(each["severity"] == "page" for each in target["incidents"]), "other"
        )
        assert {target for target, _ in here.opened} == {"other"}


SELDOM = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "3"}
"""A flap lasts until its look is seen, and that must be sooner than two more looks, on a busy machine too."""


async def test_a_name_server_that_flaps(host):
    """A name that does not resolve for some seconds opens nothing; for longer, a page without a restart."""
    async with site(environ=host.environ | SELDOM, host=NAME) as here:
        here.well.closes = here.other.closes = True  # each look needs the name
        await here.looks(2)
        for _ in range(3):
            host.resolve(answers=False)
            host.step(unix_s=31, monotonic_s=31)  # past what is remembered of the name
            await here.until(lambda target: target["sources"]["metrics"]["outcome"] == "dns")
            host.resolve(answers=True)
            await here.until(lambda target: target["sources"]["metrics"]["outcome"] == "ok")
        assert here.opened == []

        host.resolve(answers=False)
        host.step(unix_s=31, monotonic_s=31)
        target = await here.until(lambda target: target["incidents"])
        (incident,) = target["incidents"]
        assert (incident["cause"], incident["severity"]) == ("unreachable", "page")
        assert not incident["restart_advised"]
        assert any("does not resolve" in each["text"] for each in incident["evidence"]["for"])

        host.resolve(answers=True)
        await here.until(lambda target: target["signals"]["up"])
