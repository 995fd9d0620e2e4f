"""A pair of prefill and decode: the trouble is told on the one that stands still, and the other is related."""

import pytest

from tests.detectors.looks import T, engine, seen, silent
from vllm_watch.board.board import Board
from vllm_watch.detectors.base import Around
from vllm_watch.samples.observation import EngineCpu
from vllm_watch.samples.record import changed
from vllm_watch.samples.target import Target
from vllm_watch.settings.target import TargetConfig
from vllm_watch.watch.peers import Peers
from vllm_watch.watch.watch import NOTHING_AROUND, Watch

WAITS = {"running": 0.0, "waiting": 3.0, "kv": 0.0, "num_requests_kv_fetch_by_stage": {"in_progress": 3.0}}  # fmt: skip


class Site:
    """Targets that are judged look by look, as their loops judge them."""

    def __init__(self, names, pairs, gang=""):
        self.board = Board()
        self.watches = {name: Watch(name) for name in names}
        for name in names:
            self.board.add_target(Target(name=name, url=f"http://{name}"), 5.0)
        self.peers = Peers(self.board)
        self.peers.follow(
            TargetConfig(name=name, url=f"http://{name}", peers=pairs.get(name, ()), gang=gang)
            for name in names
        )

    def look(self, name, observation):
        watch = self.watches[name]
        beside, around = self.peers.beside(name), self.peers.around(name, NOTHING_AROUND)
        events = watch.observe(changed(observation, target=name), beside=beside, around=around)
        assert watch.failures == {}
        self.board.publish(watch.signals, events=events, incidents=watch.incidents)

    def told(self):
        return {
            name: [(e.kind, e.cause, e.severity, e.restart_advised) for e in watch.incidents]
            for name, watch in self.watches.items()
        }


def pair(**prefills):
    """A decode and its prefill servers; `prefills`: name → how its looks go on after a minute of health."""
    site = Site(["decode", *prefills], {"decode": tuple(prefills)})
    for second in range(0, 60, 5):
        for name in site.watches:
            site.look(name, seen(second))
    for second in range(60, 400, 5):
        site.look("decode", seen(second, engine(1600, **WAITS)))
        for name, after in prefills.items():
            site.look(name, after(second))
    return site


def hangs(second):
    """Stopped while it looks idle."""
    return seen(second, engine(1600, running=0.0, kv=0.0))


def works(second):
    return seen(second)


RELATED = ("engine_stalled", "peer_wait", "ticket", False)


@pytest.mark.parametrize(("after", "kind", "cause"), [
    (lambda s: silent(s, "read_timeout"), "engine_down", "api_hang"), (hangs, "engine_stalled", "idle_wedged"),
])  # fmt: skip
def test_the_prefill_is_told_and_the_decode_is_related(after, kind, cause):
    site = pair(prefill=after)
    (told,) = site.told()["prefill"]
    assert told[:3] == (kind, cause, "page")
    assert site.told()["decode"] == [RELATED]
    (incident,), (other,) = site.watches["decode"].incidents, site.watches["prefill"].incidents
    assert other.id in incident.related


def test_a_prefill_that_was_restarted_is_not_blamed_for_what_the_dead_one_owed():
    """The decode's requests wait on for KV that went with the old process; the new one is idle and well."""
    site = Site(["decode", "prefill"], {"decode": ("prefill",)})
    for second in range(0, 60, 5):
        for name in site.watches:
            site.look(name, seen(second))
    told = set()
    for second in range(60, 600, 5):
        idle = seen(second, engine(0, running=0.0, kv=0.0), process_start_time=T + 110)
        site.look("decode", seen(second, engine(1600, **WAITS)))
        site.look("prefill", silent(second, "refused") if second < 120 else idle)
        told |= {each.kind for each in site.watches["prefill"].incidents}
    assert told == {"engine_down"}
    assert site.told() == {
        "decode": [("engine_stalled", "peer_wait", "page", False)],
        "prefill": [],
    }


@pytest.mark.parametrize("paired", [True, False])
def test_a_pair_that_is_named_waits_for_its_peer_whatever_else_it_offloads(paired):
    """Its own offload is the only connector that it names, and no restart of it is advised while it has a peer."""
    site = Site(["decode", "prefill"], {"decode": ("prefill",)} if paired else {})
    waits = WAITS | {"kv_transfers": {"kv_offload_load_size": 9.0}}
    for second in range(0, 300, 5):
        site.look("prefill", seen(second))
        site.look("decode", seen(second, engine(1600, **waits)) if second >= 60 else seen(second))
    told = [each[1:] for each in site.told()["decode"]]
    assert told == [
        ("peer_wait", "page", False) if paired else ("admission_deadlock", "page", True)
    ]


def test_of_several_idle_prefills_none_is_blamed():
    """Nor one that works; the decode pages itself."""
    for prefills in ({"a": hangs, "b": hangs}, {"a": works}):
        site = pair(**prefills)
        assert [site.told()[name] for name in prefills] == [[]] * len(prefills)
        assert site.told()["decode"] == [("engine_stalled", "peer_wait", "page", False)]


def test_a_pair_that_nobody_named_is_none():
    site = pair(prefill=hangs)
    alone = Site(["decode", "prefill"], {"decode": ("elsewhere",)})
    assert (alone.peers.beside("decode"), alone.peers.around("prefill", NOTHING_AROUND)) == (
        (),
        Around(),
    )
    assert site.peers.around("prefill", NOTHING_AROUND) == Around(
        missed_by=("decode",), waited_for=("decode",), peers=("decode",)
    )


def test_an_idle_prefill_that_died_is_paged_for_as_soon_as_a_decode_fails_without_it():
    """A prefill is idle at most looks: its crash was a ticket, and the page went to the decode that it hurt."""
    site = Site(["decode", "prefill", "other"], {"decode": ("prefill", "other")})
    severities = []
    for second in range(0, 200, 5):
        failed = 20.0 * max(0, second - 90)
        requests = {"stop": 1000.0, "error": failed}
        site.look("decode", seen(second, engine(1600 + second, running=0.0, kv=0.0, request_success=requests, kv_failures={"nixl_num_failed_transfers": failed})))  # fmt: skip
        idle = seen(second, engine(1600, running=0.0, kv=0.0))
        site.look("other", idle)
        site.look("prefill", idle if second < 90 else silent(second, "refused"))
        severities += [each.severity for each in site.watches["decode"].incidents]
    assert site.told() == {
        "decode": [("engine_failing", "kv_transfer", "ticket", False)],
        "prefill": [("engine_down", "crash", "page", False)],
        "other": [],
    }
    assert set(severities) == {"ticket"}
    (incident,) = site.watches["prefill"].incidents
    assert "decode cannot work without it" in [each.text for each in incident.evidence_for]


def ranks():
    """Two ranks, each with its own address: one has work and no step, the other looks idle, for it is stopped."""
    site = Site(["dp-0", "dp-1"], {}, gang="moe")
    halted = EngineCpu(engine="0", waited_seconds=1.0, stopped="VLLM::EngineCore_DP1 (PID 7)")
    for second in range(0, 60, 5):
        for name in site.watches:
            site.look(name, seen(second))
    for second in range(60, 360, 5):
        site.look("dp-0", seen(second, engine(1600)))
        site.look("dp-1", changed(seen(second, engine(1600, running=0.0, kv=0.0)), cpu=(halted,)))
        assert "page" not in [each.severity for each in site.watches["dp-0"].incidents]
    return site


def test_the_rank_that_is_stopped_is_told_and_its_victim_is_related():
    """The victim is found first; no restart of either alone is advised."""
    site = ranks()
    assert site.told() == {
        "dp-0": [("engine_stalled", "rank_wait", "ticket", False)],
        "dp-1": [("engine_stalled", "stopped", "page", False)],
    }
    (victim,), (culprit,) = site.watches["dp-0"].incidents, site.watches["dp-1"].incidents
    assert culprit.id in victim.related
    assert "VLLM::EngineCore_DP1 (PID 7) is stopped" in culprit.summary
    assert culprit.opened_t - T == 70  # at the third look that finds it stopped


def test_a_restart_of_a_rank_is_one_of_all_of_them():
    """Also where nobody is known to hold it up."""
    site = Site(["dp-0", "dp-1"], {}, gang="moe")
    for second in range(0, 300, 5):
        site.look("dp-1", seen(second, engine(1600, running=0.0, kv=0.0)))
        site.look("dp-0", seen(second) if second < 60 else seen(second, engine(1600)))
    assert site.told()["dp-0"] == [("engine_stalled", "hang", "page", True)]
    (incident,) = site.watches["dp-0"].incidents
    assert incident.restart_targets == ("dp-0", "dp-1")
    assert "it steps together with dp-1: restart all of them, or none" in [
        each.text for each in incident.evidence_against
    ]


def test_that_others_wait_for_it_advises_no_restart():
    """The network between may be broken."""
    site = pair(prefill=hangs)
    assert [each[3] for each in site.told()["prefill"]] == [False]
    assert "decode waits for KV from it" in site.watches["prefill"].incidents[0].summary


def test_ranks_that_go_down_together_are_related():
    """A rank that dies takes the others with it."""
    site = Site(["dp-0", "dp-1"], {}, gang="moe")
    for second in range(0, 120, 5):
        for name in site.watches:
            site.look(name, seen(second) if second < 60 else silent(second, "refused"))
    (first,), (second,) = site.watches["dp-0"].incidents, site.watches["dp-1"].incidents
    assert (first.id in second.related, second.id in first.related) == (True, True)
