"""A common outage while the watcher is restarted: the same pages and the same advice as without."""

import json
from dataclasses import replace

import pytest

from tests.detectors.looks import T, seen, silent
from tests.incidents.test_fleet import INTERVAL, Many, brief, pages
from tests.incidents.test_fleet import told as event_of
from tests.told import made, said
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.samples.target import WATCHER

EVERY = ("t0", "t1", "t2", "t3")
SILENT = dict.fromkeys(EVERY, "read_timeout")


class Site(Many):
    """Targets of a watcher that can be restarted, scraped in turn."""

    def __init__(self, count=4):
        super().__init__(count)
        self.scrapes = 0

    def scrape(self):
        """Scrape the next target."""
        name = self.names[self.scrapes % len(self.names)]
        self.told += self._look(name, self.now, 0.0)
        self.scrapes += 1
        if self.scrapes % len(self.names) == 0:
            self.second += INTERVAL

    @property
    def now(self):
        count = len(self.names) or 1
        return self.second + self.scrapes % count * INTERVAL / count

    def restarted(self, away_s=0.0, *, fleet=True, gone=(), clock_s=0.0, older=None):
        """What begins anew from what is kept, `away_s` later. `fleet`: is the fleet's state kept?

        `gone`: targets that are not watched any more; `clock_s`: by how much the clock was set meanwhile; `older`: when
        the state of the targets was last written.
        """
        new = Site(len(self.names))
        new.names = [name for name in self.names if name not in gone]
        new.scrapes, new.ways, new.told = self.scrapes, dict(self.ways), list(self.told)
        new.second = self.second + away_s + clock_s
        if fleet:
            assert new.fleet.restore(kept(self.fleet)) == []
        for name, watch in new.watches.items():
            assert watch.restore(kept((older or self).watches[name]), T + new.now) == []
        new.told += said(new.fleet.take_up(T + new.now, {
            name: (self.hosts[name], new.watches[name].answered_t, new.watches[name].incidents)
            for name in new.names
        }))  # fmt: skip
        return new

    def to(self, second):
        while self.second < second:
            self.scrape()
        return self

    def shown(self):
        """By target the severity and advice of each open incident, as everybody sees it."""
        single = {
            each.target: (each.severity, each.restart_advised)
            for name in self.names for each in map(self.fleet.shown, self.watches[name].incidents)
        }  # fmt: skip
        return single | {each.target: (each.severity, False) for each in self.fleet.incidents}


def kept(watch):
    return json.loads(json.dumps(watch.export_state()))


HELD = {WATCHER: ("page", False)} | dict.fromkeys(EVERY, ("ticket", False))

OUTAGE = {60: SILENT, 150: {"t3": "read_timeout"}}  # second → who is silent from then on
CHANGES = (range(55, 90), range(150, 190))
END = 230


def outage(site, split=None):
    """Go on to its end; `split` is called before each scrape."""
    while site.second < END:
        site.ways = next((ways for t, ways in reversed(OUTAGE.items()) if site.second >= t), {})
        if split is not None:
            split(site)
        site.scrape()
    return site.told


def in_short(told):
    """What was told: each incident opened and ended once, who paged, what was advised, and the last word of each."""
    ends = sorted((e["target"], e["event"]) for e in told if e["event"] != "updated")
    last = {e["target"]: (e["severity"], e.get("resolution")) for e in told}
    return ends, pages(told), advised(told), last, len({e["id"] for e in told})


def advised(told):
    return sorted({e["target"] for e in told if e["restart_advised"]})


def test_a_restart_before_any_scrape_of_an_outage_changes_nothing():
    """One page for all, one for the target that stays silent, with its advice: by whichever run of the watcher."""
    splits = []

    def split(site):
        if any(site.second in each for each in CHANGES):
            splits.append((site.now, site.restarted()))

    whole = in_short(outage(Site(), split))
    assert whole[1:3] == (["t3", WATCHER], ["t3"])
    assert len(splits) == 60
    for second, site in splits:
        assert in_short(outage(site)) == whole, second


def in_the_midst(second=120):
    """All are silent, each judged down and held."""
    site = Site().to(60)
    site.ways = dict(SILENT)
    site.to(second)
    assert site.shown() == HELD
    return site


STARTS = {  # what is kept, and how long nobody watched
    "at once": {},
    "after an hour": {"away_s": 3600.0},
    "the clock was set back": {"clock_s": -3600.0},
    "the clock was set forward": {"clock_s": 3600.0},
    "killed before the fleet was written": {"fleet": False},
    "as a previous release has left it, an hour ago": {"fleet": False, "away_s": 3600.0},
}


@pytest.mark.parametrize("how", STARTS.values(), ids=STARTS)
def test_nobody_is_paged_or_advised_for_one_of_them(how):
    """Not as it begins, and not later: they are held as before, and at most the common incident is opened anew."""
    site = in_the_midst().restarted(**how)
    assert site.shown().items() <= HELD.items()
    before = len(in_the_midst().told)
    site.to(site.second + 200)
    assert site.shown() == HELD
    assert pages(site.told[before:]) in ([], [WATCHER])
    assert advised(site.told[before:]) == []


@pytest.mark.parametrize("how", STARTS.values(), ids=STARTS)
def test_what_is_over_when_the_watcher_comes_back_is_resolved(how):
    """Nobody is paged for it."""
    site = in_the_midst()
    before = len(site.told)
    site.ways = {}
    site = site.restarted(**how)
    site.to(site.second + 300)
    assert site.shown() == {}
    assert (pages(site.told[before:]), advised(site.told[before:])) == ([], [])
    ends = [each["resolution"] for each in site.told if each["event"] == "resolved"]
    assert set(ends) == {"healthy"}


@pytest.mark.parametrize("how", STARTS.values(), ids=STARTS)
def test_who_stays_silent_when_the_others_are_back_pages_for_itself(how):
    """Within a minute, with its advice."""
    site = in_the_midst()
    before = len(site.told)
    site.ways = {"t3": "read_timeout"}
    site = site.restarted(**how)
    site.to(site.second + 60)
    assert pages(site.told[before:]) == advised(site.told[before:]) == ["t3"]
    assert site.shown()["t3"] == ("page", True)


@pytest.mark.parametrize(("answered", "severity"), [(162, "page"), (158, "ticket")])
def test_news_of_a_page_stays_one_where_the_others_answered_since(answered, severity):
    """They have not been scraped again, but cannot have fallen silent within a minute of it."""
    site = Site()
    (event,) = made(event_of("down-0", "t0", t=T + 300), opened_t=T + 110)
    single = replace(event.incident, began_t=T + 100)
    answers = dict.fromkeys(EVERY, ("h", T + answered, ()))
    assert site.fleet.take_up(T + 300, answers | {"t0": ("h", T + 99, (single,))}) == []
    news = IncidentEvent("updated", T + 301, single)
    look = replace(silent(301, "read_timeout"), target="t0")
    assert [each.incident.severity for each in site.fleet.take(look, "h", [news])] == [severity]


@pytest.mark.parametrize(
    ("phase", "cause", "held"),
    [("active", "hang", EVERY[:3]), ("recovering", "hang", ()), ("active", "engine_dead", ())],
)
def test_who_answers_as_the_watcher_ends_is_not_silent_for_the_next(phase, cause, held):
    """Its incident is still open, or says that it answers."""
    incidents = [
        replace(
            one.incident, began_t=T + 100, **({"phase": phase, "cause": cause} if number else {})
        )
        for number in range(3)
        for one in made(event_of(f"down-{number}", f"t{number}", t=T + 300), opened_t=T + 110)
    ]
    restored = dict.fromkeys(EVERY, ("h", T + 99, ()))
    restored |= {each.target: ("h", T + 99, (each,)) for each in incidents}
    told = Site().fleet.take_up(T + 300, restored)
    assert [(each.incident.target, each.incident.severity) for each in told] == [
        (name, "ticket") for name in held
    ]


@pytest.mark.parametrize(("explained", "severity"), [((), "ticket"), (("t0",), "page")])
def test_whose_silence_is_explained_waits_for_no_other_after_a_restart(explained, severity):
    """Only what may have a common cause is put off until all were scraped."""
    fleet = Site().fleet
    fleet.take_up(T + 300, dict.fromkeys(EVERY, ("h", T + 299, ())))
    events = made(event_of("down-0", "t0", t=T + 301))
    look = replace(silent(301, "read_timeout"), target="t0")
    told = fleet.take(look, "h", events, explained=explained)
    assert [each.incident.severity for each in told] == [severity]


def test_who_falls_in_sight_is_not_counted_with_those_that_nobody_watched():
    """They have not answered since the watcher started, an hour after their last answer; it has."""
    fleet = Site().fleet
    fleet.take_up(T + 3600, dict.fromkeys(EVERY, ("h", T, ())))
    for second, name in ((3600, "t1"), (3601, "t2"), (3602, "t3")):
        fleet.take(replace(silent(second, "read_timeout"), target=name), "h", [])
    fleet.take(replace(seen(3603), target="t0"), "h", [])
    look = replace(silent(3608, "read_timeout"), target="t0")
    (told,) = fleet.take(look, "h", made(event_of("down-0", "t0", t=T + 3608)))
    assert (told.incident.target, told.incident.severity) == ("t0", "page")


@pytest.mark.parametrize("fleet", [True, False])
def test_an_incident_of_one_target_is_as_it_was(fleet):
    """No more than half are silent: a restart holds nothing back."""
    site = Site().to(60)
    site.ways = dict.fromkeys(EVERY[:2], "read_timeout")
    site.to(120)
    before, shown = len(site.told), site.shown()
    assert set(shown.values()) == {("page", True)}
    site = site.restarted(fleet=fleet)
    assert site.shown() == shown
    assert site.to(site.second + 60).shown() == shown
    assert site.told[before:] == []


def test_who_is_silent_at_the_first_scrape_waits_for_the_others():
    """Killed as they fell, before any was judged; the first to be scraped again may be one of many, or alone."""
    site = Site().to(60)
    site.ways = dict(SILENT)
    site.to(70)
    assert site.told == []
    together, alone = site.restarted(), site.restarted()
    alone.ways = {"t0": "read_timeout"}
    assert pages(together.to(110).told) == [WATCHER]
    alone.to(110)
    assert (pages(alone.told), brief(alone.told)[0]) == (["t0"], ("opened", "t0", "ticket"))


def test_who_fell_with_them_and_is_judged_after_the_restart_is_held_as_well():
    """Nobody watched for longer than the minute in which they fell."""
    site = Site().to(60)
    site.ways = dict.fromkeys(EVERY[:3], "read_timeout")
    site.to(75)
    assert pages(site.told) == [WATCHER]
    site.ways = dict(SILENT)
    site = site.restarted(away_s=200.0)
    site.to(site.second + 100)
    assert site.shown() == HELD


def test_targets_that_were_removed_meanwhile_are_not_waited_for():
    """The others end it; if all were removed, it ends with them."""
    site = in_the_midst()
    site.ways = {}
    site = site.restarted(gone=("t3",))
    site.to(site.second + 100)
    assert site.shown() == {}
    site = in_the_midst().restarted(gone=EVERY)
    assert site.shown() == {WATCHER: ("page", False)}
    (ended,) = said(site.fleet.forget_all_but([], T + site.second + 120))
    assert (ended["event"], ended["target"], ended["resolution"]) == (
        "resolved", WATCHER, "target_gone",
    )  # fmt: skip


@pytest.mark.parametrize("state", [{}, {"version": 1}, {"version": 2, "opened": {}, "links": {}, "common": None},
    {"version": 1, "opened": {}, "links": {}, "common": {}}])  # fmt: skip
def test_what_cannot_be_read_is_left_out(state):
    """And said."""
    fleet = Site().fleet
    (why,) = fleet.restore(state)
    assert why.startswith("all: ")
    assert fleet.incidents == ()
