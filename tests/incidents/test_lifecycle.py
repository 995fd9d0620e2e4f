"""From verdicts to incidents: opened once, sharpened, subsumed, linked and ended."""

import json
from dataclasses import replace

import pytest

from tests.told import said
from vllm_watch.detectors.base import Evidence, Verdict
from vllm_watch.incidents.incident import Incident, identity
from vllm_watch.incidents.lifecycle import Lifecycle, Moment

T = 1_700_000_000.0
MOMENT = Moment(t=T, at_s=0.0, up=True, process_start_time=1.0, restarts={"0": 0})
RESTARTED = replace(MOMENT, process_start_time=2.0)
SILENT = replace(MOMENT, up=False)


def verdict(kind, state="firing", *, engine="0", cause="unknown", severity="page", **fields):
    return Verdict(
        state=state, kind=kind, engine=engine, cause=cause, severity=severity, summary="s", **fields
    )


def collapse(state="firing", **fields):
    return verdict("throughput_collapse", state, **fields)


def stall(state="firing", **fields):
    return verdict("engine_stalled", state, cause="hang", **fields)


def down(state="firing", **fields):
    return verdict("engine_down", state, engine=None, **{"cause": "crash", **fields})


def overload(state="firing", **fields):
    return verdict("overload", state, cause="demand", severity="ticket", **fields)


def gpu_fault(state="firing", severity="page"):
    return verdict("gpu_fault", state, engine=None, cause="xid", severity=severity)


class Story:
    """One lifecycle, looked at every `step` seconds."""

    def __init__(self, step=5.0):
        self.lifecycle = Lifecycle("x")
        self.step = step
        self.now = 0.0
        self.events = []

    def look(self, *verdicts, times=1, moment=MOMENT, beside=()):
        for _ in range(times):
            now = replace(moment, t=T + self.now, at_s=self.now)
            self.events += said(self.lifecycle.update(now, verdicts, beside))
            self.now += self.step
        return self

    @property
    def told(self):
        """(second, event, kind) and, at the end, the resolution; an update to recovering is called that."""
        return [
            (
                round(each["t"] - T),
                "recovering"
                if each["event"] == "updated" and each["phase"] == "recovering"
                else each["event"],
                each["kind"],
                *([each["resolution"]] if "resolution" in each else []),
            )
            for each in self.events
        ]


def test_an_event_is_what_was_published():
    """Exactly the keys of the contract, and numbers that JSON knows."""
    evidence = Evidence(name="n", value=float("nan"), unit="s", expected=1.0, text="t")
    found = stall(evidence_for=(evidence,), restart_advised=True)
    (event,) = Story().look(found).events

    assert json.loads(json.dumps(event, allow_nan=False)) == {
        "t": T,
        "event": "opened",
        "id": identity("x", "0", "engine_stalled", T),
        "target": "x",
        "engine": "0",
        "kind": "engine_stalled",
        "cause": "hang",
        "severity": "page",
        "summary": "s",
        "evidence": {
            "for": [{"name": "n", "value": None, "unit": "s", "expected": 1.0, "text": "t"}],
            "against": [],
        },
        "restart_advised": True,
        "phase": "active",
        "began": T,
        "ended": None,
        "worst": None,
        "requests_lost": None,
    }


def test_one_problem_is_one_incident():
    """It opens once, however long it lasts, and ends when it was quiet for half a minute."""
    story = Story().look(stall(), times=10).look(stall("clear"), times=20)
    assert story.told == [
        (0, "opened", "engine_stalled"),
        (50, "recovering", "engine_stalled"),
        (80, "resolved", "engine_stalled", "healthy"),
    ]
    assert story.lifecycle.incidents == ()


def test_what_comes_and_goes_is_one_incident():
    """A sign within the quiet time goes on with the same incident."""
    story = Story().look(stall(), times=2)
    for _ in range(5):
        story.look(stall("clear"), times=5).look(stall())
    assert {event for _, event, _ in story.told[1:]} == {"recovering", "updated"}
    assert len({each["id"] for each in story.events}) == 1


def test_what_comes_back_stays_open_for_longer_each_time():
    """Until it was away for four minutes in the end; then the next times are of the same incident."""
    story = Story()
    for _ in range(6):
        story.look(stall(), times=9).look(stall("clear"), times=24)
    story.look(stall("clear"), times=60)
    assert [event for _, event, *_ in story.told].count("opened") == 3
    last = story.events[-1]
    assert (last["event"], last["times"]) == ("resolved", 6)
    assert last["t"] - last["ended"] == 240


def test_after_a_quiet_day_it_is_a_first_time_again():
    story = Story(step=30.0)
    for _ in range(3):
        story.look(stall()).look(stall("clear"), times=2900)
    assert [event for _, event, *_ in story.told] == ["opened", "recovering", "resolved"] * 3
    assert {each.get("times", 1) for each in story.events} == {1}


def test_at_slow_scrapes_three_looks_must_be_quiet():
    """One look in 30 s: half a minute would be a single one."""
    story = Story(step=30.0).look(stall(), times=3).look(stall("clear"), times=10)
    assert story.told[-1] == (180, "resolved", "engine_stalled", "healthy")


def test_unknown_changes_nothing():
    """Neither does it open, nor does time without knowledge count as quiet."""
    assert Story().look(stall("unknown"), times=99).told == []
    story = Story().look(stall()).look(stall("unknown"), times=99)
    assert story.told == [(0, "opened", "engine_stalled")]
    story.look(stall("clear"), times=3).look(stall("unknown"), times=99)
    assert story.told[1:] == [(500, "recovering", "engine_stalled")]


def test_another_process_means_restarted():
    """The end says how it came about."""
    story = Story().look(stall()).look(stall("clear"), times=9, moment=RESTARTED)
    assert story.told[-1][-1] == "restarted"


def test_what_an_older_release_kept_of_an_incident_is_read():
    """It knew of another process since; nobody asks that any more."""
    lifecycle = Story().look(stall()).lifecycle
    state = json.loads(json.dumps(lifecycle.export_state()))
    (followed,) = state["followed"]
    followed["found_life"], followed["incident"]["outlived"] = [1.0, 0], True
    again = Lifecycle("x")
    again.restore(state, ("engine_stalled",))
    assert again.export_state() == lifecycle.export_state()


def test_an_engine_that_the_server_no_longer_has():
    """A scale-down ends the incidents of what is gone, once it is sure."""
    without = replace(MOMENT, restarts={"1": 0})
    story = Story().look(stall()).look(times=9, moment=without)
    assert story.told[-1] == (35, "resolved", "engine_stalled", "target_gone")


def test_a_server_that_is_silent_has_not_lost_its_engines():
    """What is not heard is unknown."""
    story = Story().look(stall()).look(times=99, moment=replace(SILENT, restarts={}))
    assert len(story.told) == 1


def test_a_target_that_is_no_longer_watched():
    """All that is open ends with it."""
    story = Story().look(stall())
    (event,) = said(story.lifecycle.close(T + 5))
    assert (event["event"], event["resolution"]) == ("resolved", "target_gone")


SUBSUMED = {
    "a queue before a collapse": (collapse(), overload()),
    "a queue before a stall": (stall(), overload()),
    "nothing generated in a stall": (stall(), collapse()),
    "a queue when it went down": (down(), overload()),
}


@pytest.mark.parametrize(("cause", "effect"), SUBSUMED.values(), ids=SUBSUMED)
def test_an_effect_opens_nothing(cause, effect):
    """Whichever verdict of a look comes first; and if the effect was first, it closes."""
    assert [kind for _, _, kind in Story().look(effect, cause).told] == [cause.kind]
    story = Story().look(effect).look(cause, effect, times=20)
    first, superseded, opened = story.events[:3]
    assert story.told[1][1:] == ("resolved", effect.kind, "superseded")
    assert (opened["kind"], opened["related"]) == (cause.kind, [first["id"]])
    assert superseded["id"] == first["id"]
    assert len(story.events) == 3


def test_another_engines_queue_is_its_own():
    """One engine's stall does not explain what another has."""
    two = replace(MOMENT, restarts={"0": 0, "1": 0})
    story = Story().look(stall(), overload(engine="1"), moment=two)
    assert [kind for _, _, kind in story.told] == ["engine_stalled", "overload"]


def test_a_pause_within_a_collapse_is_no_stall():
    """Few steps are what a collapse is; half a minute without any is more."""
    story = Story().look(collapse()).look(collapse(), stall(), times=4).look(collapse(), times=4)
    assert [kind for _, _, kind in story.told] == ["throughput_collapse"]
    story = Story().look(collapse()).look(collapse(), stall(), times=9)
    assert story.told[1:] == [
        (35, "resolved", "throughput_collapse", "superseded"),
        (35, "opened", "engine_stalled"),
    ]


def test_a_restart_while_collapsed_is_the_cure():
    """A server that goes is being restarted; only if it stays away it is down."""
    gone = (down(), collapse("unknown"))
    story = Story().look(collapse(), times=2).look(*gone, times=11, moment=SILENT)
    story.look(down("clear"), collapse("clear"), times=20, moment=RESTARTED)
    assert story.told[1:] == [
        (65, "recovering", "throughput_collapse"),
        (125, "resolved", "throughput_collapse", "restarted"),
    ]

    story = Story().look(collapse(), times=2).look(*gone, times=20, moment=SILENT)
    assert story.told[2] == (70, "opened", "engine_down")


def test_the_queue_that_an_incident_leaves_is_part_of_it():
    """Two minutes to drain; what still waits then is demand."""
    story = Story().look(stall()).look(stall("clear"), overload(), times=60)
    assert story.told[1:] == [
        (5, "recovering", "engine_stalled"),
        (35, "resolved", "engine_stalled", "healthy"),
        (150, "opened", "overload"),
    ]


def test_a_cause_may_sharpen():
    """From unknown at once; from one to another when it is said three times in a row."""
    story = Story().look(collapse()).look(collapse(cause="kv_leak"))
    assert [(e["event"], e["cause"]) for e in story.events] == [
        ("opened", "unknown"),
        ("updated", "kv_leak"),
    ]
    story.look(collapse(cause="kv_pinning"), times=2).look(collapse(cause="kv_leak"))
    story.look(collapse(cause="kv_pinning"), times=2).look(collapse(), times=9)
    assert len(story.events) == 2
    story.look(collapse(cause="kv_pinning"), times=3)
    assert (story.events[-1]["event"], story.events[-1]["cause"]) == ("updated", "kv_pinning")


def test_an_explanation_is_not_lost_as_it_ends():
    """Throttled steps are slow for some looks more than the clock is."""
    hot, slow = collapse(cause="thermal_throttle"), collapse(cause="slow_engine")
    story = Story().look(hot).look(slow, times=50)
    assert len(story.events) == 1
    story.look(slow, times=20)
    assert story.told[-1] == (305, "updated", "throughput_collapse")
    assert len(Story().look(slow).look(hot, times=3).events) == 2


def test_an_advice_comes_at_once_and_goes_slowly():
    """Who acts upon it shall not see it flicker."""
    advised = stall(restart_advised=True)
    story = Story().look(stall()).look(advised).look(stall(), times=2).look(advised)
    assert [e["restart_advised"] for e in story.events] == [False, True]
    story.look(stall(), times=3)
    assert [e["restart_advised"] for e in story.events] == [False, True, False]


def test_severity_only_grows():
    """Who was woken is not told that it was nothing; who was not, may be."""
    ticket = down(severity="ticket")
    story = Story().look(ticket, times=2).look(down()).look(ticket, times=5)
    assert [e["severity"] for e in story.events] == ["ticket", "page"]


def test_what_stands_beside_is_linked():
    """A GPU fault and the crash it causes are two incidents, and only the cause pages."""
    story = Story().look(gpu_fault()).look(gpu_fault(), down())
    fault, crash = story.events
    assert (crash["related"], crash["severity"]) == ([fault["id"]], "ticket")


def test_a_cause_that_is_seen_later():
    """The effect learns of it, and pages no more."""
    story = Story().look(down()).look(down(), gpu_fault(), times=9)
    crash, fault, linked = story.events
    assert fault["related"] == [crash["id"]]
    assert (linked["event"], linked["id"]) == ("updated", crash["id"])
    assert (linked["related"], linked["severity"]) == ([fault["id"]], "ticket")


def test_a_cause_that_does_not_page_leaves_the_page_to_the_effect():
    """Somebody must be told that users suffer."""
    story = Story().look(gpu_fault(severity="ticket")).look(down())
    assert story.events[-1]["severity"] == "page"


def of_host(severity="page", *concerns):
    """What is open on the target's host."""
    return Incident(
        id="gpu_fault-h", target="host:h", engine=None, kind="gpu_fault", cause="gpu_lost", severity=severity,
        summary="s", concerns=concerns or ("x",), opened_t=T, began_t=T, updated_t=T,
    )  # fmt: skip


BESIDE = {  # what is open on the host → is the crash linked, and its severity
    "a lost GPU of its own": (of_host(), True, "ticket"),
    "one that does not page": (of_host("ticket"), True, "page"),
    "another server's": (of_host("page", "y"), False, "page"),
}


@pytest.mark.parametrize(("fault", "linked", "severity"), BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("later", [0, 3])
def test_what_is_open_on_its_host_is_linked_where_it_concerns_the_target(
    fault, linked, severity, later
):
    """Known before the crash or after it: then the crash is told anew, once."""
    story = Story().look(down(), times=later).look(down(), beside=[fault], times=5)
    (now,) = story.lifecycle.incidents
    assert now.related == ((fault.id,) if linked else ())
    assert now.severity == severity
    links = [e for e in story.events if fault.id in e.get("related", ())]
    assert len(links) == linked


def test_a_ticket_beside_its_cause_stays_one_when_the_watcher_is_restarted():
    """It pages when it is found without that cause."""
    story = Story().look(down(), beside=[of_host()], times=2)
    before, told = story.lifecycle, len(story.events)
    story.lifecycle = Lifecycle("x")
    story.lifecycle.restore(json.loads(json.dumps(before.export_state())), ("engine_down",))
    assert story.lifecycle.incidents == before.incidents
    story.look(down(), beside=[of_host()], times=3)
    assert story.events[told:] == []
    assert [e["severity"] for e in story.look(down()).events[told:]] == ["page"]


def test_a_hosts_incident_is_linked_with_what_it_leads_to_on_its_servers():
    """Told again each time that another server is hit; the cause's own severity is its own."""
    story = Story()
    story.lifecycle = Lifecycle("host:h")
    fault = replace(gpu_fault(), concerns=("a", "b"))
    crash = replace(of_host(), id="down-a", target="a", kind="engine_down", concerns=())
    others = (
        crash,
        replace(crash, id="down-b", target="b"),
        replace(crash, id="down-c", target="c"),
    )
    story.look(fault).look(fault, beside=others[:1]).look(fault, beside=others)
    assert [e.get("related", []) for e in story.events] == [[], ["down-a"], ["down-a", "down-b"]]
    assert {e["severity"] for e in story.events} == {"page"}


def test_whom_a_finding_concerns_follows_every_look():
    """The record says it, and what was kept of it; another server to restart is news."""
    story = Story().look(replace(gpu_fault(), concerns=("a",), restart_targets=("a",)))
    story.look(replace(gpu_fault(), concerns=("a", "b"), restart_targets=("b",)))
    (now,) = story.lifecycle.incidents
    assert (now.concerns, now.restart_targets, len(story.events)) == (("a", "b"), ("b",), 2)
    again = Lifecycle("x")
    again.restore(json.loads(json.dumps(story.lifecycle.export_state())), ("gpu_fault",))
    assert again.incidents == (now,)


def test_an_open_incident_shows_the_newest_numbers():
    """Events are few; the record follows every look."""
    story = Story().look(stall()).look(replace(stall(), summary="no step for 99 s"))
    assert len(story.events) == 1
    assert story.lifecycle.incidents[0].summary == "no step for 99 s"
    assert story.lifecycle.incidents[0].firing
    story.look(stall("clear"))
    assert [each.firing for each in story.lifecycle.incidents] == [False]


# --- troubles that follow each other


def test_at_the_first_good_look_it_recovers():
    """No advice, no page: whoever acts or is woken now would do it to a healthy engine."""
    story = Story().look(stall(restart_advised=True), times=4).look(stall("clear"))
    (now,) = story.lifecycle.incidents
    assert (now.phase, now.firing, now.restart_advised) == ("recovering", False, False)
    assert (now.began_t, now.ended_t) == (T, T + 20)
    story.look(stall(restart_advised=True))
    (now,) = story.lifecycle.incidents
    assert (now.phase, now.restart_advised, now.ended_t, now.times) == ("active", True, None, 1)


HIDDEN = {
    "a hang after a crash": (down(), stall()),
    "a slowdown after a hang": (stall(), collapse()),
    "a slowdown after a crash": (down(), collapse()),
    "a crash after a slowdown": (collapse(), down()),
}


@pytest.mark.parametrize(("first", "then"), HIDDEN.values(), ids=HIDDEN)
def test_what_only_recovers_hides_nothing(first, then):
    """Another trouble ends it and opens itself, once the first one's aftermath is over."""
    quiet = replace(first, state="clear")
    story = Story().look(first, times=3).look(quiet, times=5).look(quiet, then, times=3)
    assert [each.kind for each in story.lifecycle.incidents] == [then.kind]
    (end,) = [each for each in story.events if each["event"] == "resolved"]
    assert (end["kind"], end["resolution"], end["ended"]) == (first.kind, "superseded", T + 15)
    assert end["related"] == [story.lifecycle.incidents[0].id]


def test_a_finding_whose_own_numbers_are_normal_opens_nothing():
    """A detector may still hold to it; what it sees now is well."""
    over = replace(collapse(restart_advised=True), present=False)
    assert Story().look(over, times=80).told == []
    story = Story().look(collapse(restart_advised=True), times=3).look(over, times=80)
    assert story.told == [
        (0, "opened", "throughput_collapse"),
        (15, "recovering", "throughput_collapse"),
    ]
    assert [each["restart_advised"] for each in story.events] == [True, False]


def test_what_waited_opens_only_on_what_is_so_now():
    """A stall within a collapse that ends before its time is nothing; the card says what was seen meanwhile."""
    story = (
        Story()
        .look(collapse())
        .look(collapse(), replace(stall(), summary="no step for 8 s"), times=2)
    )
    assert story.lifecycle.incidents[0].meanwhile == "no step for 8 s"
    story.look(collapse(), stall("clear"), times=3)
    assert story.lifecycle.incidents[0].meanwhile == ""
    assert [kind for _, _, kind in story.told] == ["throughput_collapse"]


def test_the_worst_is_remembered_with_its_time():
    """Not the first number, and not the last."""

    def quiet(seconds):
        one = Evidence(name="quiet_seconds", value=seconds, unit="s")
        return stall(measure=seconds, evidence_for=(one,))

    story = (
        Story().look(quiet(10.0)).look(quiet(44.0)).look(quiet(20.0)).look(stall("clear"), times=9)
    )
    worst = story.events[-1]["worst"]
    assert (
        worst["t"],
        worst["measure"],
        worst["evidence"]["value"],
        worst["evidence"]["unit"],
    ) == (T + 5, 44.0, 44.0, "s")


def test_trouble_began_before_it_was_told():
    """A detector says since when it sees it."""
    story = Story().look(times=4).look(stall(since_seconds=12.0))
    assert story.events[0]["began"] == T + 20 - 12


def ranks(*engines, **fields):
    return [collapse(engine=each, **{"cause": "clock_locked", "family": "slow", **fields}) for each in engines]  # fmt: skip


FOUR = replace(MOMENT, restarts=dict.fromkeys("0123", 0))


def test_one_bad_clock_under_four_ranks_is_one_page():
    """They are tickets beside the one that pages, and know of it; while it recovers, too."""
    story = Story().look(*ranks(*"0123"), times=5, moment=FOUR)
    assert [each["severity"] for each in story.events if each["event"] == "opened"] == ["page", *["ticket"] * 3]  # fmt: skip
    first, *others = story.lifecycle.incidents
    assert all(first.id in each.related for each in others)
    story.look(*ranks("0", state="clear"), *ranks(*"123"), moment=FOUR)
    story.look(*ranks(*"0123", state="clear"), times=40, moment=FOUR)
    pages = {each["id"] for each in story.events if each["severity"] == "page"}
    assert pages == {first.id}


def test_a_rank_that_stays_ill_pages_when_the_one_that_paged_is_over():
    story = Story().look(*ranks("0", "1"), times=5, moment=FOUR)
    story.look(*ranks("0", state="clear"), *ranks("1"), times=40, moment=FOUR)
    (last,) = story.lifecycle.incidents
    assert (last.engine, last.severity) == ("1", "page")


def test_another_trouble_of_another_rank_pages_beside():
    """Another family, another kind, or another server: none of them is swallowed."""
    other = [collapse(engine="1", cause="kv_pinning"), stall(engine="2")]
    story = Story().look(*ranks("0"), moment=FOUR).look(*ranks("0"), *other, times=9, moment=FOUR)
    assert [each.severity for each in story.lifecycle.incidents] == ["page"] * 3


def slow(state="firing", **fields):
    return collapse(state, cause="slow_engine", severity="ticket", **fields)


@pytest.mark.parametrize("found", [{"cause": "kv_leak"}, {"family": "cache"}], ids=["leak", "not known yet"])  # fmt: skip
def test_another_family_of_causes_is_another_trouble(found):
    """It opens at once with its own begin and severity; the one that only recovers ends when it really ended."""
    story = Story().look(slow(), times=9).look(slow("clear"), times=9)
    story.look(collapse(since_seconds=10.0, **found))
    opened, _, ended, other = story.events
    assert (ended["event"], ended["resolution"], ended["ended"]) == (
        "resolved",
        "superseded",
        T + 45,
    )
    assert (other["event"], other["severity"], other["began"]) == ("opened", "page", T + 80)
    assert other["id"] != opened["id"] == other["related"][0] == ended["id"]
    assert "times" not in other


def test_a_trouble_that_fires_again_is_judged_anew_in_full():
    """Cause, severity, summary, begin, worst and advice are those of now, also where the cause is not known."""
    bad, mild = (Evidence(name="n", value=value, text="t") for value in (9.0, 2.0))
    story = Story().look(
        collapse(cause="kv_leak", restart_advised=True, measure=9.0, evidence_for=(bad,)), times=3
    )
    story.look(collapse("clear"), times=4)
    again = collapse(family="cache", severity="ticket", measure=2.0, evidence_for=(mild,))
    story.look(replace(again, summary="now", since_seconds=4.0))
    known = (story.events[0]["id"], "unknown", "ticket", "now", False, T + 31, 2)
    names = ("id", "cause", "severity", "summary", "restart_advised", "began", "times")
    assert tuple(story.events[-1][name] for name in names) == known
    assert story.events[-1]["worst"]["measure"] == 2.0


def test_what_a_release_without_families_kept_is_read():
    before = Story().look(slow(), times=9).look(slow("clear"), times=3)
    kept = json.loads(json.dumps(before.lifecycle.export_state()))
    del kept["followed"][0]["incident"]["family"]
    kept["recurrence"] = {"ended": [["throughput_collapse", "0", 45.0, 60.0]]}
    story = Story()
    story.now = 60.0
    story.lifecycle.restore(kept, ("throughput_collapse",))
    story.look(slow())
    (event,) = story.events
    assert (event["event"], event["phase"], event["id"]) == (
        "updated",
        "active",
        before.events[0]["id"],
    )
