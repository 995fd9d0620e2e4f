"""Many targets fall silent at once: one page, and each is judged by itself again when most are back."""

import pytest

from tests.detectors.looks import DEAD, T, engine, seen, silent
from tests.told import said
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.samples.observation import ProcessState
from vllm_watch.samples.target import WATCHER
from vllm_watch.watch.watch import Watch

INTERVAL = 5


class Many:
    """Targets with a Watch each, looked at in turn, and the Fleet before whoever is told."""

    def __init__(self, count=8, host="10.0.0.{}", **settings):
        self.names = [f"t{number}" for number in range(count)]
        self.hosts = {name: host.format(number) for number, name in enumerate(self.names)}
        self.watches = {name: Watch(name) for name in self.names}
        self.fleet = Fleet(**settings)
        self.second = 0
        self.told = []
        self.ways = {}  # target → how its looks end, where they bring no answer
        self.explained = ()  # targets whose silence something else has paged for

    def until(self, second, late_s=0.0):
        """Go on; return what was told meanwhile."""
        told = []
        while self.second <= second:
            for number, name in enumerate(self.names):
                told += self._look(name, self.second + number * INTERVAL / len(self.names), late_s)
            self.second += INTERVAL
        self.told += told
        return told

    def _look(self, name, second, late_s):
        way = self.ways.get(name)
        if way is None:
            look = seen(second, engine(1000 + int(10 * second)))
        elif way == "ill":
            look = seen(second, engine(1000), health=DEAD)
        elif way == "alive":
            look = silent(second, "read_timeout", process=ProcessState(pid=7, alive=True))
        elif way == "dead":
            look = silent(second, process=ProcessState(pid=7, alive=False))
        else:
            look = silent(second, way)
        look = type(look)(
            **{f: getattr(look, f) for f in look.__slots__}
            | {"target": name, "monotonic_s": second}
        )
        events = self.watches[name].observe(look)
        return said(self.fleet.take(look, self.hosts[name], events, late_s, self.explained))

    def lose(self, count=None, way="read_timeout", names=None):
        for name in names or self.names[:count]:
            self.ways[name] = way


def come_back(before, second):
    """The watcher is started again: what was learnt of each target is kept, what the Fleet knew is not."""
    many = Many(len(before.names))
    many.second = second
    for name, watch in many.watches.items():
        state = before.watches[name].export_state()
        assert watch.restore(state, T + second) == []
    return many


def started(count=8):
    """Servers that refused while they started, and then answered: who is silent later does not start."""
    many = Many(count)
    many.lose(way="refused")
    many.until(30)
    many.ways.clear()
    assert many.until(300) == []
    return many


def brief(told):
    return [(e["event"], e["target"], e["severity"]) for e in told]


def pages(told):
    return sorted(
        {e["target"] for e in told if e["severity"] == "page" and e["event"] != "resolved"}
    )


EVERY = [f"t{number}" for number in range(8)]

STORIES = {  # how many of 8 fall silent, and how → who pages
    "two: may be chance": (2, "refused", ["t0", "t1"]),
    "half": (4, "refused", ["t0", "t1", "t2", "t3"]),
    "more than half: silent": (5, "read_timeout", [WATCHER]),
    "... not reached": (5, "connect_timeout", [WATCHER]),
    "... refused: a node that reboots, or a proxy that died": (8, "refused", [WATCHER]),
    "... TLS fails: it is no engine's silence": (8, "tls", []),
    "the watcher itself cannot ask": (8, "watcher", []),
    "known to have died on this host: each is told": (8, "dead", EVERY),
    "known to live: it is the way to them": (8, "alive", [WATCHER]),
}


@pytest.mark.parametrize(("count", "way", "paged"), STORIES.values(), ids=STORIES)
def test_who_pages(count, way, paged):
    """Of many at once only the watcher, of few each."""
    many = Many()
    assert many.until(100) == []
    many.lose(count, way)
    assert pages(many.until(200)) == paged


def test_when_all_are_back_it_ends_and_nobody_is_paged():
    """One page in all."""
    many = Many()
    many.until(100)
    many.lose(8)
    many.until(200)
    many.ways.clear()
    told = many.until(400)
    assert pages(many.told) == [WATCHER]
    ended = [e for e in told if e["event"] == "resolved"]
    assert {e["target"] for e in ended} == {WATCHER, *many.names}
    single = {e["severity"] for e in many.told if e["target"] != WATCHER}
    assert single == {"ticket"}  # to its end: nobody was woken for it
    assert {e["resolution"] for e in ended} == {"healthy"}
    assert many.fleet.incidents == ()


def test_who_stays_away_while_the_others_came_back_pages_for_himself():
    """Half a minute after most are back, with the advice that it had by itself."""
    many = Many()
    many.until(100)
    many.lose(8)
    many.until(200)
    many.ways = {"t3": "read_timeout"}
    told = many.until(260)
    assert pages(told) == ["t3"]
    (paged,) = [e for e in told if e["severity"] == "page" and e["event"] == "updated"]
    assert 230 <= paged["t"] - T <= 250
    assert (paged["cause"], paged["restart_advised"]) == ("api_hang", True)
    (common,) = [e for e in told if e["target"] == WATCHER]
    assert paged["related"] == [common["id"]]
    assert many.fleet.incidents == ()
    many.ways.clear()
    last = many.until(400)[-1]
    assert (last["event"], last["severity"], last["related"]) == (
        "resolved",
        "page",
        [common["id"]],
    )


def lost_way(seconds=300):
    """All at once there was no way to any for so long; now it is back, and t3 refuses."""
    many = Many()
    many.until(100)
    many.lose(8, way="connect_timeout")
    many.until(100 + seconds)
    many.ways = {"t3": "refused"}
    return many


def test_who_is_being_restarted_when_the_way_is_back_pages_nobody():
    """Since when it has refused nobody knows: it has the time that a start takes, from the first look that met it."""
    many = lost_way()
    many.until(400 + 150)
    many.ways.clear()
    many.until(800)
    assert pages(many.told) == [WATCHER]
    assert many.fleet.incidents == ()
    assert [e["resolution"] for e in many.told if e["event"] == "resolved" and e["target"] == "t3"] == ["healthy"]  # fmt: skip


def test_a_short_loss_of_the_way_hides_no_crash():
    """It was in use half a minute before: whoever refuses then has crashed."""
    told = lost_way(30).until(250)
    assert pages(told) == ["t3"]
    paged = next(e for e in told if e["severity"] == "page" and e["target"] == "t3")
    assert (paged["cause"], paged["t"] - T <= 175) == ("crash", True)


def told(name, target, kind="engine_down", **more):
    """An event, as it is published."""
    return {"t": T, "event": "opened", "id": name, "target": target, "engine": None, "kind": kind,
            "cause": "hang", "severity": "page", "summary": "s", "evidence": {"for": [], "against": []},
            "restart_advised": False, **more}  # fmt: skip


def test_who_comes_back_ill_pages_at_once():
    """Held as a ticket while all were silent, it answers now, and badly: that is no network any more."""
    many = Many()
    many.until(100)
    many.lose()
    assert pages(many.until(200)) == [WATCHER]
    for name in many.names[1:]:
        del many.ways[name]
    many.ways["t0"] = "ill"
    told = many.until(300)
    assert [e["cause"] for e in told if e["target"] == "t0" and e["severity"] == "page"] == [
        "engine_dead"
    ]
    assert pages(told) == ["t0"]
    assert ("resolved", WATCHER, "page") in brief(many.told), "it holds nothing up"
    assert [e for e in told if e["target"] == "t0"][-1]["restart_advised"]


BACK = 300 + 1500
RETURNS = {  # how many of 8 are silent when the watcher comes back, and how the others are → who pages
    "two": (2, None, ["t0", "t1"]),
    "all": (8, None, [WATCHER]),
    "two, and the others are gone for long": (2, "connect_timeout", ["t0", "t1"]),
}


@pytest.mark.parametrize(("count", "others", "paged"), RETURNS.values(), ids=RETURNS)
def test_who_pages_when_they_are_silent_as_the_watcher_comes_back(count, others, paged):
    """They have not answered this watcher; the first look at all of them has met the same silence."""
    many = come_back(started(), BACK)
    if others is not None:
        many.lose(way=others)
    many.lose(count, "read_timeout")
    told = many.until(BACK + 400)
    assert pages(told) == paged
    advised = {e["target"] for e in told if e["restart_advised"]}
    assert advised == set() if paged == [WATCHER] else advised == set(paged)
