"""Many targets fall silent at once: one page, and each is judged by itself again when most are back."""

import pytest

from tests.detectors.looks import DEAD, T, engine, seen, silent
from tests.told import made, said
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
    "one": (1, "read_timeout", ["t0"]),
    "two: may be chance": (2, "refused", ["t0", "t1"]),
    "half": (4, "refused", ["t0", "t1", "t2", "t3"]),
    "more than half: silent": (5, "read_timeout", [WATCHER]),
    "... not reached": (5, "connect_timeout", [WATCHER]),
    "... no name resolves": (8, "dns", [WATCHER]),
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


def test_of_many_each_is_a_ticket_without_advice_and_linked():
    """Nothing that restarts may act on it, and nobody has to look for what belongs together."""
    many = Many()
    many.until(100)
    many.lose(8)
    told = many.until(300)
    (common,) = [e for e in told if e["target"] == WATCHER and e["event"] == "opened"]
    singles = [e for e in told if e["target"] != WATCHER]
    assert {e["target"] for e in singles} == set(many.names)
    assert not [e for e in told if e["restart_advised"]]
    assert all(common["id"] in e["related"] for e in singles)
    newest = [e for e in told if e["target"] == WATCHER][-1]
    assert set(newest["related"]) == {e["id"] for e in singles}
    assert (common["kind"], common["cause"], common["engine"]) == (
        "engine_down",
        "unreachable",
        None,
    )


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


def test_who_refuses_for_longer_than_a_start_takes_after_the_way_is_back_pages():
    """As a crash, not as a lost way."""
    many = lost_way()
    told = many.until(700)
    assert pages(told) == ["t3"]
    paged = next(e for e in told if e["severity"] == "page" and e["target"] == "t3")
    assert (paged["cause"], 570 <= paged["t"] - T <= 600) == ("crash", True)


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


EXPLAINED = {  # of 8 that fall silent: of how many something else has paged for the silence → who pages beside it
    "of most: who is left speaks for himself": (7, ["t7"]),
    "of as many as leave no majority": (4, ["t4", "t5", "t6", "t7"]),
    "of a few: most are silent for no reason that is known": (2, [WATCHER]),
}


@pytest.mark.parametrize(("explained", "paged"), EXPLAINED.values(), ids=EXPLAINED)
def test_whose_silence_is_explained_is_not_counted(explained, paged):
    """A host whose GPUs are lost takes its engines along: that is no network, and hides no crash beside it."""
    many = Many()
    many.until(100)
    many.explained = frozenset(many.names[:explained])
    many.lose(8)
    told = many.until(200)
    assert [name for name in pages(told) if name not in many.explained] == paged
    held = {e["target"] for e in told if "related" in e and e["target"] != WATCHER}
    assert held.isdisjoint(many.explained)


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


def test_other_kinds_pass_as_they_are():
    """A stall is seen through answers."""
    events = made(told("a", "t0", "engine_stalled"))
    assert Fleet().take(seen(0), "h", events) == events


def texts(told, which):
    common = [e for e in told if e["target"] == WATCHER][-1]
    return [each["text"] for each in common["evidence"][which]]


def test_what_is_said_when_all_on_one_host_refuse():
    """That speaks for the host and against us."""
    many = Many(host="10.0.0.7")
    many.until(100)
    many.lose(8, "refused")
    told = many.until(200)
    assert texts(told, "for") == [
        "8 of the 8 targets that had answered: t0, t1, t2, t3, t4, t5, t6, t7",
        "how their last scrapes ended: 8 refused",
        "all of them are on 10.0.0.7: it may be that host, or the network to it",
    ]
    assert texts(told, "against") == [
        "every connection is refused: the hosts are reachable, so the servers or a proxy before them stopped"
    ]
    newest = [e for e in told if e["target"] == WATCHER][-1]
    assert newest["summary"] == (
        "8 of 8 targets fell silent within a minute (8 refused): "
        "most likely a shared cause, this watcher's host or network included"
    )


def test_targets_that_leave_take_their_part_along():
    """When all that fell silent are no longer watched, it is over."""
    many = Many()
    many.until(100)
    many.lose(6)
    many.until(200)
    (ended,) = said(each for name in many.names[:6] for each in many.fleet.forget(name, T + 200))
    many.names = many.names[6:]
    assert many.until(205) == []
    assert (ended["event"], ended["resolution"]) == ("resolved", "target_gone")


BACK = 300 + 1500
RETURNS = {  # how many of 8 are silent when the watcher comes back, and how the others are → who pages
    "one": (1, None, ["t0"]),
    "two": (2, None, ["t0", "t1"]),
    "five": (5, None, [WATCHER]),
    "all": (8, None, [WATCHER]),
    "two, and the others are gone for long": (2, "connect_timeout", ["t0", "t1"]),
    "two, and the others start": (2, "refused", ["t0", "t1"]),
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


def test_what_is_said_of_many_that_are_silent_as_the_watcher_comes_back():
    """Nobody saw when they fell silent; when all answer again it is over."""
    many = come_back(started(), BACK)
    many.lose(6)
    told = many.until(BACK + 400)
    newest = [e for e in told if e["target"] == WATCHER][-1]
    assert newest["summary"] == (
        "6 of 8 targets have not answered since the watcher started (6 read_timeout): "
        "most likely a shared cause, this watcher's host or network included"
    )
    assert len(newest["related"]) == 6
    many.ways.clear()
    ended = [e for e in many.until(BACK + 700) if e["event"] == "resolved"]
    assert {e["target"] for e in ended} == {WATCHER, *many.names[:6]}


@pytest.mark.parametrize(
    ("settings", "lost", "paged"),
    [
        ({"targets_min": 2}, 2, ["t0", "t1"]),  # half of them are not more than half
        ({"share": 0.25, "targets_min": 2}, 2, [WATCHER]),
        ({"share": 0.25, "targets_min": 3}, 2, ["t0", "t1"]),
        ({"targets_min": 5}, 4, ["t0", "t1", "t2", "t3"]),
    ],
)
def test_how_many_are_too_many_can_be_set(settings, lost, paged):
    many = Many(4, **settings)
    many.until(100)
    many.lose(lost)
    assert pages(many.until(200)) == paged


def test_what_is_said_of_mixed_outages():
    """Only where every connection is refused does something there live for sure."""
    many = Many()
    many.until(100)
    many.lose(3, "refused")
    many.lose(way="read_timeout", names=many.names[3:])
    told = many.until(200)
    assert texts(told, "for")[1] == "how their last scrapes ended: 5 read_timeout, 3 refused"
    assert texts(told, "against") == []


def test_without_the_fleet_a_hung_proxy_would_restart_them_all():
    """The same looks, judged one by one: what is prevented here."""
    many = Many(targets_min=100)
    many.until(100)
    many.lose(8)
    told = many.until(300)
    assert pages(told) == EVERY
    assert len({e["target"] for e in told if e["restart_advised"]}) == 8
