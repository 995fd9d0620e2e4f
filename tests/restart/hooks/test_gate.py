"""The gate hook: when it refuses, how it ends, what it leaves. The probes themselves: test_gate_probes.py."""

import asyncio
import time

import aiohttp
import pytest

from tests.restart.hooks.calls import call
from vllm_watch.board.board import Board
from vllm_watch.errors import JournalError
from vllm_watch.export.gate import WORDS
from vllm_watch.export.server import Server
from vllm_watch.restart import gates
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.hooks import base, gate
from vllm_watch.samples.target import Target
from vllm_watch.settings.hooks import GateHook
from vllm_watch.signals.records import TargetSignals

START = 1_795_000_000.25
CALL = call(process_start_time=START)


class Notes:
    """A journal that keeps, or cannot."""

    def __init__(self):
        self.entries, self.broken, self.seconds = [], False, 0.0

    async def note(self, entry):
        await asyncio.sleep(self.seconds)
        if self.broken:
            raise JournalError("the disk is full", "make room")
        self.entries.append((entry.action, entry.before.split()[0], entry.after.split()[0]))


class Site:
    """One daemon's gates, and a hook over them."""

    def __init__(self, seconds=20.0):
        self.notes = Notes()
        self.gates = Gates(self.notes)
        settings = GateHook(name="a", timeout_seconds=seconds)
        self.hook = gate.Hook(settings, base.Tools(gates=self.gates))

    async def asked(self, started=START, which=gates.LIVENESS):
        """A probe asks; return whether it must fail."""
        return await self.gates.answer("llama", which, started, "10.0.0.7") is not None

    def looks(self, started=START, outcome="ok"):
        self.gates.scraped(
            TargetSignals(
                target="llama", t=time.time(), up=outcome == "ok", outcome=outcome, state="serving",
                state_text="", process_start_time=started,
            )
        )  # fmt: skip


@pytest.fixture
def site():
    return Site()


async def begun(site, of=CALL):
    """Begin a restart, and wait until probes are told of it."""
    task = asyncio.create_task(site.hook.restart(of))
    async with asyncio.timeout(10):
        while not await site.asked():
            await asyncio.sleep(0.01)
    return task


@pytest.mark.parametrize("end", ["port closed", "another process"])
async def test_restart_is_done_when_the_server_has_ended(site, end):
    await site.asked()
    site.looks()
    task = await begun(site)
    match end:
        case "port closed":
            site.looks(outcome="refused")
        case _:
            assert not await site.asked(START + 60)  # what a probe says of itself ends nothing
            assert not task.done()
            site.looks(START + 60)
    result = await task
    assert (result.outcome, result.text) == (
        "done", "the probe failed, and the server has ended",
    )  # fmt: skip
    assert not await site.asked()
    assert site.notes.entries == [("gate_liveness", "ok", "kill"), ("gate_liveness", "kill", "ok")]


async def test_server_that_does_not_end_is_uncertain(site):
    """Probes were told, so it may end yet."""
    await site.asked()
    site.hook = gate.Hook(GateHook(name="a", timeout_seconds=0.5), base.Tools(gates=site.gates))
    result = await (await begun(site))
    assert result.outcome == "uncertain"
    assert "has not ended yet" in result.text


async def test_without_a_probe_in_time_nothing_was_done():
    """It asked lately and then no more: surely nobody heard of it, and it may be tried again."""
    site = Site(seconds=0.3)
    await site.asked()
    assert (await site.hook.restart(CALL)).outcome == "failed"


@pytest.mark.parametrize(
    ("starts", "of", "words"),
    [
        ([], CALL, "no liveness probe of llama has ever asked"),
        ([START + 60], CALL, "started after the observed server"),
        ([None], call(), "known neither from vLLM nor from its probe"),
        ([START], CALL, None),
        (
            [START, START + 100],
            CALL,
            "probes of 2 containers ask for llama",
        ),  # two replicas of one name
        ([START - 600], CALL, None),  # a shell that loads a model first, then begins vLLM
        ([None], CALL, None),
        ([START], call(), None),  # several API servers: vLLM does not say when they started
    ],
)
async def test_only_the_observed_server_is_meant(site, starts, of, words):
    """Who it is must be known, and a probe must stand beside it."""
    for start in starts:
        await site.asked(start)
    said = await site.hook.refusal(of)
    assert (said is None) is (words is None)
    assert words is None or words in said
    if words is not None:
        assert (await site.hook.restart(of)).outcome == "refused"
        assert site.notes.entries == []


async def test_probe_that_went_silent_is_refused(site, monkeypatch):
    """After a minute without a question there is no probe any more."""
    await site.asked()
    monkeypatch.setattr(gate, "ASKED_SECONDS", -1.0)
    assert "has not asked" in await site.hook.refusal(CALL)


async def test_server_that_was_restarted_meanwhile_is_spared(site):
    """Between the observation and the call it has ended by itself."""
    await site.asked()
    site.looks(START + 60)
    assert "was restarted since it was observed" in await site.hook.refusal(CALL)


async def test_rehearsal_asks_the_daemon_whether_a_probe_asks():
    """`hook test` is another process: what was heard of probes it learns over HTTP."""
    site = Site()
    board = Board(window_seconds=30)
    board.add_target(Target(name="llama", url="http://127.0.0.1:1"), 5.0)
    server = Server(board, host="127.0.0.1", port=0, ready=lambda: None, gatekeeper=site.gates)
    await server.start()
    try:
        tools = base.Tools(watcher_url=f"http://127.0.0.1:{server.port}")
        beside = gate.Hook(GateHook(name="a"), tools)
        first = (await beside.rehearse(CALL))[0]
        assert (first.ok, first.text) == (False, "no liveness probe of llama has ever asked")
        async with aiohttp.ClientSession() as session:
            url = f"{tools.watcher_url}/gate/liveness?target=llama&started={START}"
            assert await (await session.get(url)).text() == "ok\n"
        first = (await beside.rehearse(CALL))[0]
        assert first.ok
        assert "it would fail" in first.text
        unknown = (await beside.rehearse(call(target="x")))[0]
        assert (unknown.ok, unknown.text) == (False, "No target is named 'x'")
        assert await beside.refusal(CALL) == "only the running daemon can do this"
    finally:
        await server.stop()
    first = (await beside.rehearse(CALL))[0]
    assert (first.ok, "does not answer at" in first.text) == (False, True)


def test_both_sides_have_the_same_words():
    """The server and the hook know nothing of each other, but say the same."""
    assert gates.WORDS == WORDS
