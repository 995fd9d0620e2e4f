"""How many requests an incident cost: what failed beyond the usual, and what was in flight when the process ended."""

import json

import pytest

from benchmarks.lab.virtual import observations
from vllm_watch.incidents.lost import LostRequests, kept, restored
from vllm_watch.samples.engine import EngineSample
from vllm_watch.watch.host_watch import SiteWatch

SECOND = 5.0


class Server:
    """One engine "0", looked at every five seconds."""

    def __init__(self) -> None:
        self.lost = LostRequests()
        self.now, self.restarts = 0.0, 0
        self.ends: dict[str, float] | None = {"stop": 0.0, "abort": 0.0, "error": 0.0}
        self.running: float | None = 4.0

    def look(self, times=1, *, well=True, **ends):
        """`ends`: requests that ended since the look before, by reason, at each of the looks."""
        for _ in range(times):
            self.now += SECOND
            for reason, count in ends.items():
                self.ends[reason] += count
            sample = EngineSample(
                engine="0", requests_running=self.running, requests_waiting=1.0,
                request_success=None if self.ends is None else dict(self.ends),
            )  # fmt: skip
            self.lost.look(self.now, [sample], {"0": self.restarts}, well=well)
        return self

    def silent(self):
        self.now += SECOND
        self.lost.look(self.now, [], {}, well=False)
        return self

    def anew(self):
        """Another process answers."""
        self.restarts += 1
        self.ends = dict.fromkeys(self.ends, 0.0)
        return self.look(well=False)

    def mark(self, ago_s=0.0):
        return self.lost.at(None, self.now - ago_s)

    def since(self, mark):
        return self.lost.since(mark, self.now)


def test_what_was_in_flight_when_its_process_ended_is_lost():
    """Not known before the next process answers: it may still be at work."""
    server = Server().look(20)
    mark = server.mark()
    assert server.since(mark) == 0
    assert server.silent().since(mark) is None
    assert server.anew().since(mark) == 5


def test_what_fails_beyond_the_usual_is_lost():
    """Some clients hang up on a healthy engine: two at each look."""
    server = Server().look(60, stop=3.0, abort=2.0)
    mark = server.mark()
    assert server.look(12, well=False, stop=3.0, abort=2.0).since(mark) == 0
    assert server.look(well=False, error=40.0).since(mark) == 38


def test_an_incident_begins_before_it_is_opened():
    server = Server().look(20)
    server.look(3, well=False, error=10.0)
    assert server.since(server.mark(ago_s=3 * SECOND)) == 30
    assert server.since(server.mark()) == 0


def test_what_ends_after_it_is_not_lost():
    server = Server().look(20)
    mark = server.mark()
    assert server.look(5, well=False, stop=9.0).since(mark) == 0


UNKNOWN = {
    "a counter that is not there": ({"ends": None}, {}),
    "what runs is not known as it ends": ({"running": None}, {"anew": True}),
    "no usual time before": ({}, {"error": 3.0, "looks": 2}),
}


@pytest.mark.parametrize(("lacking", "then"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_is_not_none_lost(lacking, then):
    server = Server()
    for name, value in lacking.items():
        setattr(server, name, value)
    server.look(then.get("looks", 20))
    mark = server.mark()
    if then.get("anew"):
        server.anew()
    elif "error" in then:
        server.look(error=then["error"], well=False)
    assert server.since(mark) is None


def test_another_server_in_its_place_makes_it_unknown():
    """Counters that fall without a new process: what was counted before is of another one."""
    server = Server().look(20, error=1.0)
    mark = server.mark()
    server.ends = dict.fromkeys(server.ends, 0.0)
    assert server.look(well=False).since(mark) is None


def test_it_outlives_the_watcher():
    server = Server().look(30, abort=1.0)
    mark = server.mark()
    state = json.loads(json.dumps([server.lost.export_state(), kept(mark)]))
    server.lost = LostRequests.restored(state[0])
    assert restored(state[1]) == mark
    assert server.look(well=False, error=50.0).since(mark) == 49


@pytest.mark.parametrize(("story", "least"), [("crash", 1), ("hang", 0)])
def test_the_record_of_a_simulated_trouble_says_what_it_cost(story, least):
    """A crash costs what was in flight, as its own summary counts it; a hang that ends costs nothing."""
    site, ends, said = SiteWatch(), [], set()
    for seen in observations(story, 600.0):
        events = site.look(seen)
        said |= {each.incident.summary for each in events if each.event == "opened"}
        ends += [each.incident for each in events if each.event == "resolved"]
    (ended,) = ends
    assert (ended.requests_lost == 0) if least == 0 else (ended.requests_lost >= least)
    if least:
        assert any(f"{ended.requests_lost} requests were in flight" in each for each in said)
