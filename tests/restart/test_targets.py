"""What the guard is told of the world: peers in engines, starts, incidents; and what an attempt does to it."""

import asyncio
import time
from dataclasses import replace

import pytest

from tests.restart.station import station
from vllm_watch.incidents.incident import Incident, IncidentEvent
from vllm_watch.incidents.verdicts import RestartNews
from vllm_watch.restart.facts import Peers
from vllm_watch.samples.observation import StartFailure
from vllm_watch.samples.target import Target, host_target
from vllm_watch.state.attempt import Attempt

ATTEMPT = Attempt(
    id="x1", target="a", group="g", trigger="incident", hook="h", reason="", actor="",
    state="helped", began_t=1.0,
)  # fmt: skip
SERVES, STALLED, OLD = {"state": "serving"}, {"state": "stalled"}, {"age_s": 120.0}

PEERS = {
    "alone": ([STALLED], Peers(healthy=0, total=1)),
    "alone, of four engines that are all ill": ([STALLED | {"engines": 4}], Peers(healthy=0, total=1)),
    "one of three is ill": ([STALLED, SERVES, SERVES], Peers(healthy=2, total=3)),
    "another was not seen for long": ([STALLED, SERVES, OLD], Peers(healthy=1, total=3, unknown=1)),
    "another is overloaded, and serves": (
        [STALLED, {"state": "overloaded"}], Peers(healthy=1, total=2)
    ),
    "engines are counted, not servers": (
        [STALLED, SERVES | {"engines": 8}], Peers(healthy=8, total=9)
    ),
    "its own engines that are well are lost, too": (
        [SERVES | {"engines": 8}, SERVES | {"engines": 8}], Peers(healthy=8, total=16)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "peers"), PEERS.values(), ids=PEERS)
async def test_peers(tmp_path, looks, peers):
    names = "abc"[: len(looks)]
    async with station(tmp_path, targets=tuple(names), start=False) as one:
        for name, look in zip(names, looks, strict=True):
            one.look(name, **look)
        assert one.restarts.targets.peers("a") == peers


async def test_a_peer_that_is_being_restarted_does_not_count(tmp_path):
    """It may still answer; soon it will not."""
    async with station(tmp_path, targets=("a", "b"), start=False) as one:
        targets = one.restarts.targets
        assert targets.peers("a") == Peers(healthy=1, total=2)
        targets.restarting("b")
        assert targets.peers("a") == Peers(healthy=0, total=2)
        targets.restarting("b", ATTEMPT)
        targets.draining("b", on=True)
        assert targets.peers("a") == Peers(healthy=0, total=2)


async def test_what_judgement_is_told_of_a_restart(tmp_path):
    """That it is under way; and, where it did not help, why the server should be back by now."""
    async with station(tmp_path, start=False) as one:
        targets, entry = one.restarts.targets, one.board.targets["a"]
        for end, missing in (
            ("helped", None), ("did_not_help", "vllm-watch restarted it 1970-01-01 00:00:02Z, and it did not come back"),
        ):  # fmt: skip
            targets.restarting("a")
            news = entry.restart_news
            assert news is None or not news.under_way  # nothing was done to it yet
            targets.acting("a", on=True)
            assert entry.restart_news == RestartNews(under_way=True)
            targets.restarting("a", replace(ATTEMPT, state=end, called_t=2.0))
            assert entry.restart_news == RestartNews(missing=missing)


async def test_a_fault_of_the_host_fires_for_what_it_is_to_restart(tmp_path):
    """Of the targets that it concerns only those whose restart is advised."""
    fault = Incident(
        id="f", target=host_target("h"), engine=None, kind="gpu_fault", cause="xid", severity="page",
        summary="Xid 31", restart_advised=True, concerns=("a", "b"), restart_targets=("b",), opened_t=1.0, began_t=1.0, updated_t=1.0,
    )  # fmt: skip
    async with station(tmp_path, targets=("a", "b"), start=False) as one:
        one.board.host.target = Target(name=host_target("h"), url="")
        one.board.tell([IncidentEvent("opened", 1.0, fault)])
        assert one.restarts.targets.firing_kinds("a") == set()
        assert one.restarts.targets.firing_kinds("b") == {"gpu_fault"}


async def test_a_crash_loop_is_a_start_that_fails(tmp_path):
    """One more start would crash again."""
    async with station(tmp_path, start=False) as one:
        assert one.restarts.targets.start_failure("a") is None
        one.incident(kind="engine_down", cause="crash_loop", advised=False)
        assert one.restarts.targets.start_failure("a") == "no step for 40 s"


async def test_a_start_that_its_log_says_cannot_succeed(tmp_path):
    """Only what would fail the same way again; what the next start may survive is no reason against it."""
    async with station(tmp_path, start=False) as one:
        targets = one.restarts.targets
        for deterministic, said in ((True, "the KV cache is too small"), (False, None)):
            failed = StartFailure(
                failure="kv_cache_too_small", deterministic=deterministic, sentence="the KV cache is too small",
            )  # fmt: skip
            one.board.publish(replace(targets.signals("a"), start_failure=failed))
            assert targets.start_failure("a") == said


async def test_the_next_look(tmp_path):
    async with station(tmp_path, targets=("a", "b"), start=False) as one:
        targets = one.restarts.targets
        waiting = asyncio.create_task(targets.next_scrape("a", 5.0))
        await asyncio.sleep(0)
        one.look("b")
        await asyncio.sleep(0)
        assert not waiting.done()
        one.look("a")
        assert await waiting is True
        assert await targets.next_scrape("a", 0.01) is False


async def test_one_engine_under_two_names(tmp_path):
    """Of one address, however it is written, of one process, or of one port of a pod: its history is one, and it is no
    peer of its own."""
    async with station(tmp_path, targets=("a", "b", "c"), start=False) as one:
        managed, targets = one.restarts.targets.managed, one.restarts.targets
        assert targets.same_engine("a") == {"a"}
        for name, url in (("a", "http://LOCALHOST:8000"), ("b", "http://127.0.0.1:8000")):
            managed[name].target = replace(managed[name].target, url=url, group=name)
        one.look("a", start=7.0)
        one.look("c", start=7.0)
        assert targets.same_engine("a") == {"a", "b"}
        assert targets.same_engine("c") == {"c"}
        for name in "ac":
            looked = one.board.targets[name].looked
            one.board.targets[name].looked = replace(looked, pids=frozenset({7, 8}))
        assert targets.same_engine("c") == {"a", "c"}
        (known,) = targets.history("b", [replace(ATTEMPT, target="a", group="a")])
        assert known.target == "b"
        managed["b"].target = replace(managed["b"].target, group="a")
        assert targets.peers("b") == Peers(healthy=0, total=1)


async def test_twins_that_start_together_are_two(tmp_path):
    """Two servers of one model, begun in the same tick: one that hangs leaves nobody to restart the other for."""
    async with station(tmp_path, targets=("a", "b"), start=False) as one:
        targets = one.restarts.targets
        for name, state in (("a", "stalled"), ("b", "stalled")):
            one.look(name, state, start=7.0)
            one.board.targets[name].signals = replace(targets.signals(name), models=("m",))
        assert targets.same_engine("a") == {"a"}
        assert targets.peers("a") == Peers(healthy=0, total=2)


async def test_two_targets_of_one_pod(tmp_path):
    async with station(tmp_path, targets=("a", "b", "c"), start=False) as one:
        managed, targets = one.restarts.targets.managed, one.restarts.targets
        for name, at in (("a", "p:8000"), ("b", "10.0.0.9:8000"), ("c", "p:8001")):
            target = managed[name].target
            managed[name].target = replace(target, url=f"http://{at}", pod="p", namespace="llm")
        assert targets.same_engine("a") == {"a", "b"}
        assert targets.same_engine("c") == {"c"}


async def test_a_group_that_is_renamed_keeps_its_history(tmp_path):
    """By its targets, and by their addresses where these are renamed, too."""
    async with station(tmp_path, targets=("a", "b"), start=False, cooldown_seconds=600) as one:
        targets = one.restarts.targets
        for name in "ab":
            target = targets.managed[name].target
            targets.managed[name].target = replace(target, group="renamed")
        past = replace(ATTEMPT, group="g", target="b")
        assert targets.history("a", [past]) == (past,)
        moved = replace(ATTEMPT, group="g", target="gone", address="10.0.0.1:8000")
        assert [each.target for each in targets.history("a", [moved])] == ["a"]
        assert targets.history("a", [replace(moved, address="")]) == ()


async def test_what_was_tried_for_an_open_incident_is_never_forgotten(tmp_path):
    """An incident that has been open for a month has had its restart then, and gets no other."""
    month_s = 31 * 86400.0
    async with station(tmp_path, start=False) as one:
        began_t = time.time() - month_s
        name = one.incident(began_t=began_t)
        await one.journal.write(replace(
            ATTEMPT, target="a", group="g", trigger="incident", incident_id=name, state="helped",
            began_t=began_t + 60.0, called_t=began_t + 60.0,
        ))  # fmt: skip
        await one.restarts.start()
        (waiting,) = await one.decided()
        assert waiting.decision.check == "breaker"
        assert "has already had a restart" in waiting.decision.text
