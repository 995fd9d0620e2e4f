"""What the gates remember, tell each probe and wait for: by a clock that stands still between the steps of a test."""

import asyncio
import time
from types import SimpleNamespace

import pytest
import structlog

from tests.restart.hooks.test_gate import START, Site
from vllm_watch.restart import gates
from vllm_watch.restart.gates import LIVENESS, READINESS


@pytest.fixture
def clock(monkeypatch):
    """Seconds on the timeline, to be moved on by hand."""
    one = SimpleNamespace(now_s=1000.0, monotonic=lambda: one.now_s, time=time.time)
    monkeypatch.setattr(gates, "time", one)
    return one


@pytest.fixture
def site(clock):
    return Site()


async def word(site, which, started=START):
    return await site.gates.answer("llama", which, started, "10.0.0.7")


@pytest.mark.parametrize(("off_s", "same"), [(-2.5, False), (-1.5, True), (1.5, True), (2.5, False)])  # fmt: skip
async def test_two_readings_of_one_start_are_one_server(site, off_s, same):
    """Of looks, of probes, and of a probe and what is meant."""
    await word(site, LIVENESS)
    await word(site, LIVENESS, START + off_s)
    assert len(site.gates.probes("llama").starts) == (1 if same else 2)
    site.looks()
    with site.gates.killing("llama", START, 30.0) as kill:
        assert (await word(site, LIVENESS, START + off_s) is not None) is (same or off_s < 0)
        site.looks(START + off_s)
        assert kill.ended.is_set() is not same


async def test_two_that_ask_at_once_are_told_the_same(site):
    """It is written once."""
    site.looks()
    site.gates.draining("llama", on=True)
    assert await asyncio.gather(word(site, READINESS), word(site, READINESS)) == [START, START]
    assert site.notes.entries == [("gate_readiness", "ok", "no")]


STANDING = {  # when the container of the probe that asks began → is it meant?
    "with the server": (START, True),
    "a second later, by another reader of the boot's time": (START + 1.9, True),
    "long before: a shell that began the server": (START - 600.0, True),
    "after it: beside its successor": (START + 60.0, False),
    "it does not say": (None, True),
}


@pytest.mark.parametrize(("started", "meant"), STANDING.values(), ids=STANDING)
@pytest.mark.parametrize("which", [LIVENESS, READINESS])
async def test_only_who_stands_beside_that_server_is_told(site, which, started, meant):
    """And only by the gate that is shut."""
    site.looks()
    other = READINESS if which == LIVENESS else LIVENESS
    with site.gates.killing("llama", START, 30.0) as kill:
        if which == READINESS:
            kill.until_s = 0.0
            site.gates.draining("llama", on=True)
        assert await word(site, which, started) == (START if meant else None)
        assert await word(site, other, started) is None
        assert kill.answers == (meant and which == LIVENESS)
    site.gates.draining("llama", on=False)
    assert await word(site, which, started) is None


async def test_a_kill_is_told_until_its_time_is_over(site, clock):
    """Each answer counts; what is asked at the end of its time is told nothing."""
    site.looks()
    with site.gates.killing("llama", START, 30.0) as kill:
        for seconds, told in ((0.0, 1), (29.0, 2), (30.0, 2)):
            clock.now_s = 1000.0 + seconds
            assert (await word(site, LIVENESS) is not None) is (seconds < 30.0)
            assert kill.answers == told


LOOKS = {  # looks before the kill and in it, as (start, outcome) → has the server ended?
    "it goes on": ([(START, "ok")], [(START, "ok")], False),
    "as another reader of the boot's time has it": ([(START, "ok")], [(START + 1.9, "ok")], False),
    "another process": ([(START, "ok")], [(START, "ok"), (START + 60, "ok")], True),
    "nothing listens": ([(START, "ok")], [(START, "refused")], True),
    "nothing listened before": ([(START, "refused")], [(START, "refused")], False),
    "it does not answer in time": ([(START, "ok")], [(START, "read_timeout")], False),
    "its start was not known": ([(None, "ok")], [(START, "ok")], False),
    "its start is not known any more": ([(START, "ok")], [(None, "ok")], False),
}


@pytest.mark.parametrize(("before", "within", "ended"), LOOKS.values(), ids=LOOKS)
async def test_when_a_server_has_ended(site, before, within, ended):
    for start, outcome in before:
        site.looks(start, outcome)
    with site.gates.killing("llama", START, 30.0) as kill:
        for start, outcome in within:
            site.looks(start, outcome)
        assert kill.ended.is_set() is ended


IDENTITIES = {  # when the server started by the last look, (seconds ago, container's start) of probes → who is drained
    "by the server's word": (START, [(0, START + 300)], START),
    "by the one container that asks": (None, [(0, START)], START),
    "... twice, a second apart": (None, [(0, START), (0, START + 1)], START),
    "by the one that asked lately": (None, [(61, START - 900), (60, START)], START),
    "of two nobody can tell": (None, [(0, START), (0, START + 300)], None),
    "nobody asks": (None, [], None),
    "it does not say": (None, [(0, None)], None),
}


@pytest.mark.parametrize(("looked", "asked", "drained"), IDENTITIES.values(), ids=IDENTITIES)
async def test_which_server_is_drained(site, clock, looked, asked, drained):
    """A server whose start is unknown is not drained, and the log says so."""
    site.looks(looked)
    for ago_s, started in asked:
        clock.now_s = 1000.0 - ago_s
        await word(site, READINESS, started)
    clock.now_s = 1000.0
    with structlog.testing.capture_logs() as logs:
        site.gates.draining("llama", on=True)
    assert ("drain_not_asked_for" in [each["event"] for each in logs]) is (drained is None)
    assert await word(site, READINESS, None) == drained
    with structlog.testing.capture_logs() as logs:
        site.gates.draining("llama", on=False)
    assert logs == []


async def test_what_was_heard_of_probes(site, clock):
    """Who asked when; of very many those that asked last."""
    assert site.gates.probes("llama").liveness_asked_seconds is None
    await word(site, READINESS)
    assert site.gates.probes("llama").liveness_asked_seconds is None
    for number in range(20):
        clock.now_s += 1.0
        await word(site, LIVENESS, START + 10.0 * number)
    clock.now_s += 5.0
    heard = site.gates.probes("llama")
    assert heard.liveness_asked_seconds == 5.0
    assert heard.starts == tuple(START + 10.0 * number for number in range(4, 20))
    site.gates.forget("llama")
    assert site.gates.probes("llama").starts == ()


async def test_each_change_of_a_word_is_written_once(site):
    """Before it is said; who asks again is told at once."""
    site.looks()
    for _ in range(2):
        assert await word(site, READINESS) is None
    site.gates.draining("llama", on=True)
    for _ in range(3):
        assert await word(site, READINESS) == START
    site.gates.draining("llama", on=False)
    for _ in range(2):
        assert await word(site, READINESS) is None
    assert site.notes.entries == [("gate_readiness", "ok", "no"), ("gate_readiness", "no", "ok")]


async def test_what_is_not_on_disk_is_not_said(site):
    """A journal that cannot be written, until it can."""
    site.looks()
    site.gates.draining("llama", on=True)
    site.notes.broken = True
    assert await word(site, READINESS) is None
    site.notes.broken = False
    assert await word(site, READINESS) == START
    assert len(site.notes.entries) == 1


async def test_an_answer_that_became_wrong_while_it_was_written_is_not_given(site):
    """The drain was taken back meanwhile."""
    site.looks()
    site.gates.draining("llama", on=True)
    note = site.notes.note

    async def taken_back(entry):
        await note(entry)
        site.gates.draining("llama", on=False)

    site.notes.note = taken_back
    assert await word(site, READINESS) is None


def slow_notes(site, monkeypatch):
    """What is written waits for this event, and a probe does not wait for it."""
    monkeypatch.setattr(gates, "NOTE_SECONDS", 0.0)
    free, note = asyncio.Event(), site.notes.note

    async def slow(entry):
        await free.wait()
        await note(entry)

    site.notes.note = slow
    return free


async def test_a_word_that_took_long_to_write_is_not_written_again(site, monkeypatch):
    """Nor by whoever asks the other gate meanwhile; a word that has changed since has its own entry."""
    free = slow_notes(site, monkeypatch)
    site.looks()
    site.gates.draining("llama", on=True)
    assert await word(site, READINESS) is None
    site.gates.draining("llama", on=False)
    assert await word(site, READINESS) is None
    site.looks(START + 60)
    site.gates.draining("llama", on=True)
    for _ in range(2):
        assert await word(site, READINESS, None) is None
    free.set()
    async with asyncio.timeout(10):
        while await word(site, READINESS, None) is None:
            await asyncio.sleep(0.001)
    assert site.notes.entries == [("gate_readiness", "ok", "no")] * 2
