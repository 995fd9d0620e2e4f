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


def test_what_is_said_of_mixed_outages():
    """Only where every connection is refused does something there live for sure."""
    many = Many()
    many.until(100)
    many.lose(3, "refused")
    many.lose(way="read_timeout", names=many.names[3:])
    told = many.until(200)
    assert texts(told, "for")[1] == "how their last scrapes ended: 5 read_timeout, 3 refused"
    assert texts(told, "against") == []


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


def test_without_the_fleet_a_hung_proxy_would_restart_them_all():
    """The same looks, judged one by one: what is prevented here."""
    many = Many(targets_min=100)
    many.until(100)
    many.lose(8)
    told = many.until(300)
    assert pages(told) == EVERY
    assert len({e["target"] for e in told if e["restart_advised"]}) == 8


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


class ByHand:
    """Four targets whose judgement is told by hand; their single incidents do not end by themselves."""

    def __init__(self):
        self.fleet = Fleet()
        self.told = []
        for second in (0, 5):
            self.look(second, "")

    def look(self, second, silent_ones, events=()):
        """All four, at one second; `silent_ones` by their numbers."""
        for number in "0123":
            one = silent(second, "read_timeout") if number in silent_ones else seen(second)
            one = type(one)(t=T + second, target=f"t{number}", scrape=one.scrape)
            own = [event for event in events if event["target"] == one.target]
            self.told += said(self.fleet.take(one, "h", made(*own)))

    def event(self, number, event="opened", **more):
        return told(f"down-{number}", f"t{number}", event=event, **more)

    def fall(self):
        """All fall silent, and each is called down."""
        self.look(50, "0123")
        self.look(55, "0123", [self.event(number) for number in "0123"])

    def between(self, first, last, silent_ones):
        for second in range(first, last + 1, 5):
            self.look(second, silent_ones)

    def released(self):
        """When somebody was told to be paged for himself: [(second, target)]."""
        return [
            (event["t"] - T, event["target"]) for event in self.told
            if event["severity"] == "page" and event["target"] != WATCHER
        ]  # fmt: skip


def test_who_was_released_stays_so():
    """A later word of it is told as judged, while the common incident still waits for the others."""
    hand = ByHand()
    hand.fall()
    hand.between(60, 95, "0")
    assert hand.released() == [(90, "t0")]
    assert hand.fleet.incidents != ()
    hand.told.clear()
    hand.look(100, "0", [hand.event(0, "updated", restart_advised=True)])
    (event,) = hand.told
    assert (event["severity"], event["restart_advised"]) == ("page", True)


def test_one_look_without_an_answer_releases_nobody():
    """Of those that are back one may miss a look: half a minute of silence is asked of it too."""
    hand = ByHand()
    hand.fall()
    hand.between(60, 100, "")
    hand.look(105, "1")
    hand.between(110, 150, "")
    assert hand.released() == []
    hand.between(155, 190, "1")
    assert hand.released() == [(185, "t1")]


def test_most_must_be_back_for_half_a_minute_at_a_stretch():
    """A short return does not count."""
    hand = ByHand()
    hand.fall()
    hand.between(60, 75, "0")
    hand.between(80, 85, "0123")
    hand.between(90, 130, "0")
    assert hand.released() == [(120, "t0")]


def test_while_they_come_and_go_it_stays_one_incident():
    """A network that flaps is one trouble, and over once it held for four minutes."""
    many = Many()
    many.until(100)
    for second in (100, 150, 200, 250):
        many.lose(8)
        many.until(second + 25)
        many.ways.clear()
        many.until(second + 45)
    many.until(600)
    assert [
        e["event"] for e in many.told if e["target"] == WATCHER and e["event"] != "updated"
    ] == [
        "opened",
        "resolved",
    ]


def test_who_falls_silent_later_is_told_as_ever():
    """The common trouble excuses its own minute, not the day."""
    many = Many(count=10)
    many.until(100)
    many.lose(6)
    many.until(300)
    many.lose(names=["t9"], way="refused")
    told = many.until(340)
    assert brief(told) == [("opened", "t9", "page")]


def test_one_by_one_over_minutes_is_no_common_cause():
    """A rolling failure pages for each."""
    many = Many()
    many.until(100)
    for number in range(8):
        many.lose(names=[f"t{number}"], way="refused")
        many.until(170 + 70 * number)
    assert pages(many.told) == EVERY


def test_what_was_scaled_down_before_is_not_counted():
    """Half of those that answered before, not of those that ever did."""
    many = Many(count=12)
    many.until(100)
    many.lose(6, "refused")  # half: each by itself
    many.until(900)
    told_before = len(many.told)
    many.lose(names=["t6", "t7", "t8", "t9"])
    many.until(1000)
    assert pages(many.told[told_before:]) == [WATCHER]


def test_looks_that_the_watcher_could_not_make_are_no_answers():
    """Who was scaled down long before a trouble of the watcher's own has not answered because of it."""
    many = Many(count=12)
    many.until(100)
    many.lose(6, "refused")
    many.until(900)
    many.lose(12, "watcher")
    many.until(920)
    many.ways.clear()
    many.lose(6, "refused")
    many.until(1060)
    told_before = len(many.told)
    many.lose(names=["t6", "t7", "t8", "t9"])
    many.until(1160)
    assert pages(many.told[told_before:]) == [WATCHER]


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


def test_a_server_that_answers_badly_is_its_own_trouble():
    """/health says 503: that is no network."""
    fleet = Fleet()
    events = made(told("a", "t0", restart_advised=True))
    for name in ("t1", "t2", "t3", "t0"):
        look = seen(0)
        fleet.take(type(look)(t=T, target=name, scrape=look.scrape), "h", [])
    for name in ("t1", "t2", "t3"):
        look = silent(5)
        fleet.take(type(look)(t=T + 5, target=name, scrape=look.scrape), "h", [])
    look = silent(6, "read_timeout", health=DEAD)
    answered = type(look)(t=T + 6, target="t0", scrape=look.scrape, health=look.health)
    assert fleet.take(answered, "h", events) == events


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


def test_what_is_said_when_we_were_held_up_and_others_answer():
    """A watcher that did not run for seconds is the first suspect."""
    many = Many()
    many.until(100)
    many.lose(5)
    told = many.until(200, late_s=7.0)
    assert texts(told, "for")[-2:] == [
        "they are on 5 hosts, which share only the network to them",
        "vllm-watch itself was delayed: a scrape began 7 s later than planned",
    ]
    assert texts(told, "against") == ["3 targets still answer"]


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
