"""What the guard is told of the world: peers in engines, starts, incidents; and what an attempt does to it."""

import asyncio
import itertools
import tarfile
from dataclasses import replace

import pytest

from tests.restart.station import station
from vllm_watch.detectors.base import Verdict
from vllm_watch.restart.facts import IncidentFact, Peers
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.engine_log import StartFailure
from vllm_watch.samples.observation import Call, Observation, Reading, ServerSample
from vllm_watch.sources.engine_log import TAIL_BYTES_MAX, EngineLog
from vllm_watch.state.attempt import Attempt
from vllm_watch.watch.watch import Watch

SERVES, STALLED, GONE = {"state": "serving"}, {"state": "stalled"}, {"state": "down", "up": False}
OLD = {"age_s": 120.0}

PEERS = {
    "alone": ([STALLED], Peers(healthy=0, total=1)),
    "alone, of four engines that are all ill": ([STALLED | {"engines": 4}], Peers(healthy=0, total=1)),
    "alone, of four engines that are well": ([SERVES | {"engines": 4}], Peers(healthy=0, total=4)),
    "one of three is ill": ([STALLED, SERVES, SERVES], Peers(healthy=2, total=3)),
    "another is gone": ([STALLED, SERVES, GONE], Peers(healthy=1, total=3)),
    "another was not seen for long": ([STALLED, SERVES, OLD], Peers(healthy=1, total=3, unknown=1)),
    "another is overloaded, and serves": (
        [STALLED, {"state": "overloaded"}], Peers(healthy=1, total=2)
    ),
    "another starts": ([STALLED, {"state": "starting"}], Peers(healthy=0, total=2)),
    "another sleeps": ([STALLED, {"state": "sleeping"}], Peers(healthy=0, total=2)),
    "engines are counted, not servers": (
        [STALLED, SERVES | {"engines": 8}], Peers(healthy=8, total=9)
    ),
    "its own engines that are well are lost, too": (
        [SERVES | {"engines": 8}, SERVES | {"engines": 8}], Peers(healthy=8, total=16)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "peers"), PEERS.values(), ids=PEERS)
async def test_peers(tmp_path, looks, peers):
    """Of the target `a`; the others are of its group."""
    names = "abc"[: len(looks)]
    async with station(tmp_path, targets=tuple(names), start=False) as one:
        for name, look in zip(names, looks, strict=True):
            one.look(name, **look)
        assert one.restarts.world.peers("a") == peers


async def test_a_peer_that_is_being_restarted_does_not_count(tmp_path):
    """It may still answer; soon it will not."""
    async with station(tmp_path, targets=("a", "b"), start=False) as one:
        world = one.restarts.world
        assert world.peers("a") == Peers(healthy=1, total=2)
        world.restarting("b", on=True)
        assert world.peers("a") == Peers(healthy=0, total=2)
        world.restarting("b", on=False)
        world.draining("b", on=True)
        assert world.peers("a") == Peers(healthy=0, total=2)


async def test_incidents(tmp_path):
    """As they were told to people; what nobody knows is None."""
    async with station(tmp_path, start=False) as one:
        world = one.restarts.world
        incident = one.incident()
        assert world.incident(incident) == IncidentFact(open=True, restart_advised=True)
        one.incident("resolved", advised=False)
        assert world.incident(incident) == IncidentFact(open=False, restart_advised=False)
        assert world.incident("zz") is None


class Says:
    """A detector that says one thing after another, and the last one for ever."""

    def __init__(self, *states):
        self.states = itertools.chain(states, itertools.repeat(states[-1]))

    def update(self, view):
        return [
            Verdict(
                state=next(self.states),
                kind="engine_stalled",
                severity="page",
                restart_advised=True,
            )
        ]


def seen(t, process_start_time):
    """A look at a server whose process began then."""
    server = ServerSample(process_start_time=process_start_time)
    reading = Reading(vllm=True, engines=(EngineSample(engine="0"),), server=server)
    return Observation(t=t, monotonic_s=t, target="a", scrape=Call(outcome="ok"), reading=reading)


def found(one, *states):
    """A target on which an incident has just been found, its Watch, and the incident's id; `states`: what follows."""
    watch = one.watches["a"] = Watch("a", detectors={"said": Says("firing", *states)})
    one.follow()
    events = watch.observe(seen(1000.0, 1.0))
    one.look("a", "stalled", events=events)
    return watch, events[0]["id"]


async def test_an_incident_of_a_process_that_another_has_followed(tmp_path):
    """It is open until it was quiet for a while, but what it was found in is gone: nothing is to be done for it."""
    async with station(tmp_path, start=False) as one:
        watch, incident = found(one, "unknown")
        assert one.restarts.world.incident(incident) == IncidentFact(
            open=True, restart_advised=True
        )
        watch.observe(seen(1005.0, 1003.0))
        told = IncidentFact(open=True, restart_advised=True, outlived=True)
        assert one.restarts.world.incident(incident) == told


async def test_an_incident_that_has_ended_and_is_not_shown_so_yet(tmp_path):
    """What a look has found is shown once it is on the disk; nothing is begun for what it has ended."""
    async with station(tmp_path, start=False) as one:
        watch, incident = found(one, "clear")
        for look in range(1, 20):  # an incident ends once it was quiet for half a minute
            assert one.restarts.world.incident(incident).open
            if events := watch.observe(seen(1000.0 + 5.0 * look, 1.0)):
                break
        assert events[0]["event"] == "resolved"
        assert not one.restarts.world.incident(incident).open


async def test_a_crash_loop_is_a_start_that_fails(tmp_path):
    """One more start would crash again."""
    async with station(tmp_path, start=False) as one:
        assert one.restarts.world.start_failure("a") is None
        one.incident(kind="engine_down", cause="crash_loop", advised=False)
        assert one.restarts.world.start_failure("a") == "no step for 40 s"


async def test_a_start_that_its_log_says_cannot_succeed(tmp_path):
    """Only what would fail the same way again; what the next start may survive is no reason against it."""
    async with station(tmp_path, start=False) as one:
        world = one.restarts.world
        for deterministic, said in ((True, "the KV cache is too small"), (False, None)):
            failed = StartFailure(
                failure="kv_cache_too_small", deterministic=deterministic, sentence="the KV cache is too small",
            )  # fmt: skip
            one.board.publish(replace(one.watches["a"].signals, start_failure=failed))
            assert world.start_failure("a") == said


async def test_the_end_of_the_log_is_evidence(tmp_path):
    """What the engine said last, without secrets."""
    log = EngineLog("a", tmp_path / "vllm.log")
    log.path.write_text(
        "x" * (TAIL_BYTES_MAX + 5) + "\nGET http://user:pass@host\nValueError: no such model"
    )
    async with station(tmp_path, start=False) as one:
        world = one.restarts.world
        world.log_tail = lambda _: log.tail()
        attempt = Attempt(
            id="x2", target="a", group="g", trigger="incident", hook="h", reason="", actor="",
            state="intent", began_t=1.0,
        )  # fmt: skip
        with tarfile.open(await world.evidence(attempt)) as archive:
            kept = archive.extractfile("a-x2/engine.log").read()
    assert kept.endswith(b"GET http://[hidden]@host\nValueError: no such model")
    assert len(kept) <= TAIL_BYTES_MAX


async def test_the_next_look(tmp_path):
    """Waits for the target's own next look, and no longer than it is told to."""
    async with station(tmp_path, targets=("a", "b"), start=False) as one:
        world = one.restarts.world
        waiting = asyncio.create_task(world.next_look("a", 5.0))
        await asyncio.sleep(0)
        one.look("b")
        await asyncio.sleep(0)
        assert not waiting.done()
        one.look("a")
        assert await waiting is True
        assert await world.next_look("a", 0.01) is False


async def test_evidence(tmp_path):
    """A recording, the target, its incidents and the GPUs: what there is of it in the morning."""
    async with station(tmp_path, start=False) as one:
        one.incident()
        attempt = Attempt(
            id="x1", target="a", group="g", trigger="incident", hook="h", reason="", actor="",
            state="intent", began_t=1.0,
        )  # fmt: skip
        path = await one.restarts.world.evidence(attempt)
        with tarfile.open(path) as archive:
            found = {each.name: archive.extractfile(each).read() for each in archive.getmembers()}
        assert sorted(found) == [
            "a-x1/gpus.json", "a-x1/incidents.json", "a-x1/recording.jsonl.gz", "a-x1/target.json",
        ]  # fmt: skip
        assert b'"engine_stalled"' in found["a-x1/incidents.json"]
        assert found["a-x1/recording.jsonl.gz"] == b"recorded"


async def test_a_reload_holds_at_once(tmp_path):
    """A target that is switched off is restarted no more, and shown no more; its wish waits for nobody."""
    async with station(tmp_path) as one:
        one.incident()
        (wish,) = await one.decided()
        assert wish.decision.gate == "approval"
        off = one.config.restart.model_copy(update={"mode": "off"})
        one.follow(one.config.model_copy(update={"restart": off}))
        for _ in range(400):
            if wish.decision.gate == "mode":
                break
            await asyncio.sleep(0.01)
        assert wish.decision.text == "restarts are off (restart.mode)"
