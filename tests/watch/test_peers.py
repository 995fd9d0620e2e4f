"""A pair of prefill and decode: the trouble is told on the one that stands still, and the other is related."""

import pytest

from tests.detectors.looks import engine, seen, silent
from vllm_watch.board.board import Board
from vllm_watch.samples.record import changed
from vllm_watch.samples.target import Target
from vllm_watch.watch.peers import Peers
from vllm_watch.watch.watch import Watch

WAITS = {"running": 0.0, "waiting": 3.0, "kv": 0.0, "num_requests_kv_fetch_by_stage": {"in_progress": 3.0}}  # fmt: skip


class Site:
    """Targets that are judged look by look, as their loops judge them."""

    def __init__(self, names, pairs):
        self.board = Board()
        self.watches = {name: Watch(name) for name in names}
        for name in names:
            self.board.add_target(Target(name=name, url=f"http://{name}"), 5.0)
        self.peers = Peers(self.board)
        self.peers.follow({name: pairs.get(name, ()) for name in names})

    def look(self, name, observation):
        watch = self.watches[name]
        beside, waited_for = self.peers.beside(name), self.peers.waiting_for(name)
        events = watch.observe(changed(observation, target=name), beside=beside, waited_for=waited_for)  # fmt: skip
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


def test_that_others_wait_for_it_advises_no_restart():
    """The network between may be broken."""
    site = pair(prefill=hangs)
    assert [each[3] for each in site.told()["prefill"]] == [False]
    assert "decode waits for KV from it" in site.watches["prefill"].incidents[0].summary


def test_of_several_idle_prefills_none_is_blamed():
    """Nor one that works; the decode pages itself."""
    for prefills in ({"a": hangs, "b": hangs}, {"a": works}):
        site = pair(**prefills)
        assert [site.told()[name] for name in prefills] == [[]] * len(prefills)
        assert site.told()["decode"] == [("engine_stalled", "peer_wait", "page", False)]


def test_a_pair_that_nobody_named_is_none():
    site = pair(prefill=hangs)
    alone = Site(["decode", "prefill"], {"decode": ("elsewhere",)})
    assert alone.peers.beside("decode") == alone.peers.waiting_for("prefill") == ()
    assert site.peers.waiting_for("prefill") == ("decode",)
