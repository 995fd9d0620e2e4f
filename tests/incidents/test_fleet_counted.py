"""Many targets that fall silent at once: who is counted, who is held and who is let go, looked at by hand."""

from dataclasses import replace

import pytest

from tests.detectors.looks import OK, T, seen, silent
from tests.incidents.test_fleet import told
from tests.told import made, said
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.samples.observation import Call, ProcessState
from vllm_watch.samples.target import WATCHER

NO_ANSWER = Call(outcome="read_timeout", error="said read_timeout")


class Hand:
    """A fleet that is shown one look at a time."""

    def __init__(self, **settings):
        self.fleet = Fleet(**settings)
        self.told = []

    def look(self, second, names, way="", *events, late_s=0.0, host="h", explained=(), **fields):
        """Look at each of these, as a text of numbers; `way`: how it ends where it brings no answer."""
        told = []
        for number in names:
            look = silent(second, way) if way else seen(second)
            look = replace(look, target=f"t{number}", **fields)
            own = [event for event in events if event["target"] == look.target]
            told += said(self.fleet.take(look, host, made(*own, opened_t=T), late_s, explained))
        self.told += told
        return told

    def fall(self, second, names, way="read_timeout", **how):
        """They are silent, and each is called down at that look."""
        return self.look(second, names, way, *(down(number, second) for number in names), **how)

    def ends(self, second, names):
        """They answer, and what each had is over."""
        over = (
            down(number, second, event="resolved", resolution="healthy", ended=T) for number in names
        )  # fmt: skip
        return self.look(second, names, "", *over)

    def shown(self, number):
        (incident,) = (each.incident for each in made(down(number)))
        return self.fleet.shown(incident)


def down(number, second=0, *, version=1, **more):
    return told(f"down-{number}-{version}", f"t{number}", t=T + second, **more)


def brief(events):
    return [(each["event"], each["target"], each["severity"]) for each in events]


def commons(events):
    return [each for each in events if each["target"] == WATCHER]


WAY = "read_timeout"
ANSWERED = (0, "0123", "")
COUNTED = {  # looks before t0 is called down, (when and how it is then), is the watcher suspected?
    "three of four": ([ANSWERED, (100, "012", WAY)], {}, True),
    "two of two are too few": ([(0, "01", ""), (100, "01", WAY)], {}, False),
    "half": ([(0, "012345", ""), (100, "012", WAY)], {}, False),
    "more than half": ([(0, "01234", ""), (100, "012", WAY)], {}, True),
    "a minute before": ([ANSWERED, (50, "12", WAY), (100, "0", WAY)], {}, True),
    "more than a minute before": ([ANSWERED, (49, "12", WAY), (100, "0", WAY)], {}, False),
    "silent for longer, looked at again": ([ANSWERED, (40, "12", WAY), (100, "012", WAY)], {}, False),
    "back meanwhile, and silent again": ([ANSWERED, (40, "12", WAY), (80, "12", ""), (100, "012", WAY)], {}, True),
    "its process has ended": ([ANSWERED, (100, "01", WAY), (100, "2", WAY, {"process": ProcessState(pid=7, alive=False)})], {}, False),
    "its process had ended, by an earlier look": (
        [ANSWERED, (100, "01", WAY), (100, "2", WAY, {"process": ProcessState(pid=7, alive=False)}), (105, "2", WAY)], {}, True),
    "its process lives": ([ANSWERED, (100, "01", WAY), (100, "2", WAY, {"process": ProcessState(pid=7, alive=True)})], {}, True),
    "whether its process lives is not known": ([ANSWERED, (100, "01", WAY), (100, "2", WAY, {"process": ProcessState(pid=7)})], {}, True),
    "its health answers": ([ANSWERED, (100, "01", WAY), (100, "2", WAY, {"health": OK})], {}, False),
    "its health is silent, too": ([ANSWERED, (100, "01", WAY), (100, "2", WAY, {"health": NO_ANSWER})], {}, True),
    "it answers with an error": ([ANSWERED, (100, "01", WAY), (100, "2", "http")], {}, False),
    "it is disconnected": ([ANSWERED, (100, "01", WAY), (100, "2", "disconnected")], {}, True),
    "the watcher could not ask meanwhile": ([ANSWERED, (100, "012", WAY), (105, "2", "watcher")], {}, True),
    "... but its health was heard": ([ANSWERED, (100, "012", WAY), (105, "2", "watcher", {"health": OK})], {}, False),
    "... nor was its health": ([ANSWERED, (100, "012", WAY), (105, "2", "watcher", {"health": NO_ANSWER})], {}, True),
    "others silent for long, whom the watcher could not ask meanwhile": (
        [(0, "345", ""), (5, "345", WAY), (490, "012", ""), (500, "345", "watcher"), (505, "345", WAY), (590, "012", WAY)],
        {"at": 650}, True),
    "it answers itself": ([ANSWERED, (100, "123", WAY)], {"way": ""}, False),
    "its silence is explained": ([ANSWERED, (100, "012", WAY)], {"explained": {"t2"}}, False),
    "others answered ten minutes before": ([(0, "345", ""), (490, "012", ""), (590, "012", WAY)], {"at": 600}, False),
    "others answered longer before": ([(0, "345", ""), (490, "012", ""), (590, "012", WAY)], {"at": 601}, True),
    "others have never answered": ([(0, "012", ""), (100, "345", "refused"), (100, "012", WAY)], {}, True),
    "they have never answered": ([(100, "012", WAY)], {"at": 300}, True),
    "... and many others answer": ([(290, "345", ""), (100, "012", WAY)], {"at": 300}, False),
    "... and fewer others answer": ([(290, "34", ""), (100, "012", WAY)], {"at": 300}, True),
    "... but refused from the start": ([(100, "012", "refused")], {"way": "refused"}, False),
    "... and one in another way": ([(100, "01", WAY), (100, "2", "connect_timeout")], {}, False),
    "... and one of them more than a minute later": ([(100, "01", WAY), (161, "2", WAY)], {"at": 170}, False),
    "... and one of them a minute later": ([(100, "01", WAY), (160, "2", WAY)], {"at": 170}, True),
    "... but one of them has": ([(0, "2", ""), (100, "012", WAY)], {}, False),
    "it has never answered, the others have": ([(0, "12", ""), (100, "012", WAY)], {}, False),
    "nobody could ever ask it": ([(0, "123", ""), (100, "123", WAY)], {"way": "watcher"}, False),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "how", "suspected"), COUNTED.values(), ids=COUNTED)
def test_who_is_counted_with_those_that_fell_silent(looks, how, suspected):
    """More than half of those that answered lately, three at least, within a minute, and for no reason that is known."""
    hand = Hand()
    for second, names, way, *fields in looks:
        hand.look(second, names, way, **dict(*fields))
    events = hand.fall(how.get("at", 110), "0", how.get("way", WAY), explained=how.get("explained", ()))  # fmt: skip
    assert bool(commons(events)) is suspected
    assert brief([each for each in events if each["target"] == "t0"]) == [
        ("opened", "t0", "ticket" if suspected else "page")
    ]


def fallen(count=4, **settings):
    """So many fall at second 100, each called down at 105."""
    hand, names = Hand(**settings), "".join(map(str, range(count)))
    hand.look(0, names)
    hand.look(100, names, WAY)
    hand.fall(105, names)
    return hand


def test_what_was_told_before_the_third_is_told_anew_as_milder():
    """In this order: the common trouble, those that had paged by themselves, then the one that showed it."""
    hand = Hand()
    hand.look(0, "0123")
    hand.look(100, "0123", WAY)
    assert brief(hand.fall(105, "0")) == [
        ("opened", WATCHER, "page"), ("opened", "t0", "ticket")]  # fmt: skip
    assert brief(hand.fall(105, "1")) == [
        ("opened", "t1", "ticket"), ("updated", WATCHER, "page")]  # fmt: skip
    later = Hand()
    later.look(0, "0123")
    for number, expected in ("0", [("opened", "t0", "page")]), ("1", [("opened", "t1", "page")]):
        assert brief(later.fall(100, number)) == expected
    events = later.fall(105, "2")
    assert brief(events) == [
        ("opened", WATCHER, "page"), ("updated", "t0", "ticket"), ("updated", "t1", "ticket"),
        ("opened", "t2", "ticket"),
    ]  # fmt: skip
    assert events[0]["related"] == ["down-0-1", "down-1-1", "down-2-1"]
    assert {tuple(each["related"]) for each in events[1:]} == {(events[0]["id"],)}


def test_who_was_down_before_for_a_reason_of_his_own_is_not_held():
    """Its server answered, and badly: the others that fall silent do not excuse it."""
    hand = Hand()
    hand.look(0, "01234")
    hand.look(50, "4", "http", down(4, 50, cause="engine_dead"))
    hand.look(100, "0123", WAY)
    events = hand.fall(105, "0123")
    assert "t4" not in {each["target"] for each in events}
    assert commons(events)[-1]["related"] == ["down-0-1", "down-1-1", "down-2-1", "down-3-1"]
    assert hand.shown(4).severity == "page"


def test_who_has_never_answered_is_not_held_with_those_that_had():
    """It fell silent within the minute, but perhaps it was never there."""
    hand = fallen()
    hand.look(110, "5", WAY)
    assert brief(hand.fall(115, "5")) == [("opened", "t5", "page")]


def test_it_is_over_when_the_last_of_their_troubles_is():
    """Not with the first: until then the common trouble may come again."""
    hand = fallen()
    hand.look(110, "0123")
    assert hand.ends(150, "012")[-1]["target"] == "t2"
    assert hand.fleet.incidents != ()
    ended, common = hand.ends(160, "3")
    assert (ended["event"], ended["target"], ended["severity"]) == ("resolved", "t3", "ticket")
    assert (common["event"], common["target"], common["resolution"]) == ("resolved", WATCHER, "healthy")  # fmt: skip
    assert hand.fleet.incidents == ()


def test_who_stays_silent_is_let_go_whoever_was_first():
    """One whose trouble is over and one that is back stand before it, and one that refuses is judged anew."""
    hand = fallen(6)
    hand.look(110, "012")
    hand.ends(111, "0")
    lost = down(2, 112, event="updated", cause="unreachable")
    hand.look(112, "2", "refused", lost)
    hand.look(115, "1345", "")
    hand.look(120, "5", WAY)
    assert hand.look(149, "5", WAY) == []
    assert brief(hand.look(150, "2", "refused")) == [("updated", "t5", "page")]
    assert hand.look(155, "5", WAY) == []


RELEASED = {  # what t3 is called, how it is silent → is it told by itself?
    "a hang that times out": ("hang", WAY, True),
    "a hang that refuses": ("hang", "refused", True),
    "a lost way that times out": ("unreachable", WAY, True),
    "a lost way, and now it refuses": ("unreachable", "refused", False),
}


@pytest.mark.parametrize(("cause", "way", "told_alone"), RELEASED.values(), ids=RELEASED)
def test_who_is_let_go_when_most_are_back(cause, way, told_alone):
    """Where it was only the way to it that was lost, a refusal says that it is reached, and it is judged anew."""
    hand = fallen()
    hand.look(110, "3", way, down(3, 110, event="updated", cause=cause))
    hand.look(110, "012")
    assert hand.look(139, "3", way) == []
    events = hand.look(140, "3", way)
    assert brief(events) == ([("updated", "t3", "page")] if told_alone else [])


def test_most_must_be_back_for_half_a_minute_at_a_stretch():
    """A short return does not count."""
    hand = fallen()
    hand.look(110, "123")
    hand.look(130, "123", WAY)
    hand.look(135, "123")
    assert hand.look(160, "0", WAY) == []
    assert brief(hand.look(165, "0", WAY)) == [("updated", "t0", "page")]


def test_who_was_released_stays_so():
    """A later word of it is told as judged, while the common incident still waits for the others."""
    hand = fallen()
    hand.look(110, "123")
    assert brief(hand.look(140, "0", WAY)) == [("updated", "t0", "page")]
    assert hand.fleet.incidents != ()
    (now,) = hand.look(145, "0", WAY, down(0, 145, event="updated", restart_advised=True))
    assert (now["severity"], now["restart_advised"]) == ("page", True)


def test_one_look_without_an_answer_releases_nobody():
    """Of those that are back one may miss a look: half a minute of silence is asked of it too."""
    hand = fallen()
    hand.look(110, "0123")
    assert hand.look(155, "1", WAY) == []
    hand.look(160, "0123")
    hand.look(205, "1", WAY)
    assert hand.look(230, "1", WAY) == []
    assert brief(hand.look(235, "1", WAY)) == [("updated", "t1", "page")]


DELAYS = {  # (second, by how much a look was late) → what is said of it as they fall at second 205
    "none": ([], None),
    "one that is worth a word": ([(200, 2.04)], 2.0),
    "too little": ([(200, 1.96)], None),
    "the larger of two": ([(195, 3.0), (200, 7.0)], 7.0),
    "the larger of two, earlier": ([(195, 7.0), (200, 3.0)], 7.0),
    "as large again, and later": ([(140, 7.0), (180, 7.0)], 7.0),
    "a larger one that is over for long": ([(100, 7.0), (190, 3.0)], 3.0),
    "one a minute before": ([(145, 7.0)], 7.0),
    "one more than a minute before": ([(144, 7.0)], None),
}  # fmt: skip


@pytest.mark.parametrize(("delays", "said_s"), DELAYS.values(), ids=DELAYS)
def test_which_delay_of_our_own_is_told(delays, said_s):
    """The largest within the last minute, if it is one of seconds."""
    hand = Hand()
    hand.look(0, "0123")
    for second, late_s in delays:
        hand.look(second, "0", late_s=late_s)
    hand.look(205, "0123", WAY)
    (common, _) = hand.fall(205, "0")
    late = [each for each in common["evidence"]["for"] if each["name"] == "watcher_late"]
    assert [each["value"] for each in late] == ([] if said_s is None else [said_s])


def test_whether_those_that_answer_share_a_host_with_the_silent():
    """Only who has answered lately and is not silent speaks against us; who fell with them does not, though back."""
    hand = Hand(share=0.3)
    hand.look(0, "8", host="a")
    hand.look(1000, "012345", host="a")
    hand.look(1000, "67", host="b")
    hand.look(1100, "0123", WAY, host="a")
    hand.look(1100, "7", WAY, process=ProcessState(pid=7, alive=False), host="b")
    hand.fall(1105, "0123", host="a")
    against = commons(hand.told)[-1]["evidence"]["against"]
    assert [(each["name"], each["value"]) for each in against] == [("targets_answering", 3.0)]
    assert against[0]["text"] == "3 targets still answer, some of them on the same hosts (a)"
    hand.look(1110, "0", host="a")
    hand.look(1110, "5", WAY, host="b")
    (_, common) = hand.fall(1115, "5", host="b")
    assert common["evidence"]["against"][0]["value"] == 2.0
    assert common["summary"].startswith("5 of 8 targets fell silent")
    where = {each["name"]: each["text"] for each in common["evidence"]["for"]}["hosts"]
    assert where == "they are on 2 hosts, which share only the network to them"


def test_one_that_joins_is_waited_for():
    """It fell within the minute, after the common trouble was told: that is not over while most are silent with it."""
    hand = Hand()
    hand.look(0, "0123456")
    hand.look(100, "0123", WAY)
    hand.fall(105, "0123")
    hand.look(110, "456", WAY)
    joined = hand.fall(115, "456")
    assert brief(joined) == [
        each for number in "456" for each in (("opened", f"t{number}", "ticket"), ("updated", WATCHER, "page"))
    ]  # fmt: skip
    hand.look(120, "012")
    assert hand.look(160, "3456", WAY) == []  # four of seven
    hand.look(165, "3")
    assert {each["target"] for each in hand.look(195, "456", WAY)} == {"t4", "t5", "t6"}


class TestForgotten:
    """A target that is no longer watched."""

    def test_it_is_not_counted_any_more(self):
        """Half of those that answered are more than half of those that are left."""
        hand = Hand()
        hand.look(0, "012345")
        hand.look(100, "012", WAY)
        hand.fleet.forget("t5", T)
        assert commons(hand.fall(105, "0"))

    def test_only_its_own_incident_goes(self):
        """The others stay held, and whoever joins later is told of them alone."""
        hand = Hand()
        hand.look(0, "01234")
        hand.look(100, "0123", WAY)
        hand.fall(105, "0123")
        hand.fleet.forget("t0", T)
        assert hand.shown(0) == made(down(0))[0].incident
        assert hand.shown(1).severity == "ticket"
        hand.look(110, "4", WAY)
        (_, common) = hand.fall(115, "4")
        assert common["related"] == ["down-1-1", "down-2-1", "down-3-1", "down-4-1"]
        assert common["summary"].startswith("4 of ")

    def test_what_comes_under_its_name_later_begins_anew(self):
        """Its old incident is told no more."""
        hand = Hand()
        hand.look(0, "0123")
        hand.fall(50, "0")
        hand.fleet.forget("t0", T)
        hand.look(60, "0")
        hand.look(100, "0123", WAY)
        events = hand.look(105, "1", WAY, down(1, 105))
        assert brief(events) == [("opened", WATCHER, "page"), ("opened", "t1", "ticket")]

    def test_without_a_common_trouble_nothing_else_happens(self):
        """Also of one that was never looked at."""
        hand = Hand()
        hand.look(0, "0123")
        hand.fleet.forget("t9", T)
        hand.fleet.forget("t0", T)
        assert (hand.fleet.incidents, hand.told) == ((), [])
