"""What all who share a lock write down: what may be changed there, as stories told in virtual time."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.restart.locks import record as records
from vllm_watch.restart.locks.record import Limits, Now, Record, Sightings, Slot, Spent

TTL_SECONDS = 60.0
T = 1_800_000_000.0


@dataclass
class Watcher:
    """One who shares the lock; `clock` is how far its wall clock is off."""

    name: str
    clock: float = 0.0
    sightings: Sightings = field(default_factory=Sightings)

    def now(self, at: float) -> Now:
        return Now(1000.0 + at, T + at + self.clock)

    def see(self, record: Record, at: float) -> Record:
        self.sightings.see(record, self.now(at).monotonic_s)
        return record

    def take(self, record: Record, at: float, attempt_id: str, limits: Limits) -> records.Change:
        wanted = Slot(holder=self.name, attempt_id=attempt_id, ttl_seconds=TTL_SECONDS)
        self.see(record, at)
        return records.take(record, self.sightings, limits, self.now(at), wanted)


def taken(change: records.Change) -> Record:
    assert change.record is not None, change.text
    return change.record


def one_held(at: float = 0.0) -> Record:
    return taken(Watcher("w1").take(Record(), at, "a1", Limits(slots=1)))


def test_as_many_as_there_are_slots() -> None:
    """The next one is told who holds it."""
    one = one_held()
    two = taken(Watcher("w2").take(one, 1, "a2", Limits(slots=2)))
    refused = Watcher("w3").take(two, 2, "a3", Limits(slots=2))
    assert (refused.record, refused.text) == (None, "held by w1 (a1) and 1 more")


def test_taking_it_again_is_renewing_it() -> None:
    """An attempt has one slot and is spent once, however often it asks."""
    again = taken(Watcher("w1").take(one_held(), 5, "a1", Limits(slots=1, per_hour=1)))
    assert [(slot.attempt_id, slot.beat) for slot in again.slots] == [("a1", 1)]
    assert [each.attempt_id for each in again.spent] == ["a1"]


def test_ghost_is_free_after_three_ttls_of_silence_that_we_have_seen_ourselves() -> None:
    """Who comes late waits the whole time; who has looked since the beginning does not."""
    ghost, early, late = one_held(), Watcher("w2"), Watcher("w3")
    early.see(ghost, 0)
    assert early.take(ghost, 180, "a2", Limits(slots=1)).record is None
    assert late.take(ghost, 181, "a3", Limits(slots=1)).record is None
    assert taken(early.take(ghost, 181, "a2", Limits(slots=1))).held[0].holder == "w2"
    assert late.take(ghost, 360, "a3", Limits(slots=1)).record is None
    assert taken(late.take(ghost, 362, "a3", Limits(slots=1))).held[0].holder == "w3"


def test_silence_is_told() -> None:
    """A person reads how long it will take."""
    early, ghost = Watcher("w2"), one_held()
    early.see(ghost, 0)
    text = early.take(ghost, 90, "a2", Limits(slots=1)).text
    assert text == "held by w1 (a1), not renewed for 90 s; free in 90 s unless renewed"


def test_renewing_begins_the_three_ttls_anew() -> None:
    """Whatever wall clock the holder has."""
    watcher, held = Watcher("w2"), one_held()
    watcher.see(held, 0)
    renewed = taken(records.renew(held, "a1"))
    assert watcher.take(renewed, 181, "a2", Limits(slots=1)).record is None
    assert watcher.take(renewed, 361, "a2", Limits(slots=1)).record is None
    assert watcher.take(renewed, 362, "a2", Limits(slots=1)).record is not None


def test_who_was_taken_over_has_lost() -> None:
    """Renewing says so; giving back does not touch the new holder's slot."""
    early, ghost = Watcher("w2"), one_held()
    early.see(ghost, 0)
    theirs = taken(early.take(ghost, 200, "a2", Limits(slots=1)))
    assert records.renew(theirs, "a1").record is None
    given = records.give_back(theirs, "a1", early.now(201), rest_seconds=60, used=True)
    assert (given.record or theirs).held == theirs.held


RESTS = {
    # how far the asker's clock is off, seconds after the release, is it free (rest: 100 s)?
    "before it is over": (0.0, 99.0, False),
    "within what clocks may differ": (0.0, 101.0, False),
    "after it": (0.0, 103.0, True),
    "a clock two seconds ahead gains nothing": (2.0, 99.9, False),
    "a clock an hour behind waits for what it has seen itself": (-3600.0, 99.0, False),
    "... and no longer": (-3600.0, 111.0, True),
}


@pytest.mark.parametrize(("clock", "at", "free"), RESTS.values(), ids=RESTS)
def test_rest_after_a_restart(clock: float, at: float, free: bool) -> None:
    """The next one waits that long, by its own clock."""
    given = records.give_back(one_held(), "a1", Watcher("w1").now(0), rest_seconds=100, used=True)
    assert given.record is not None
    asker = Watcher("w2", clock)
    asker.see(given.record, 10)  # it first looks a little later
    change = asker.take(given.record, at, "a2", Limits(slots=1))
    assert (change.record is not None) is free, change.text
    if not free:
        assert f"it rests for {max(0.0, 100 - at - clock):.0f} s more after a1" in change.text


def test_what_was_not_used_neither_rests_nor_counts() -> None:
    """An attempt that was given up before its hook leaves nothing behind."""
    given = records.give_back(one_held(), "a1", Watcher("w1").now(9), rest_seconds=100, used=False)
    assert given.record == Record()


def spend(count: int, per_hour: int, at: float = 0.0) -> Record:
    """So many restarts, one after another, each of ten seconds."""
    record, watcher = Record(), Watcher("w1")
    for number in range(count):
        begun = at + 10 * number
        record = taken(
            watcher.take(record, begun, f"a{number}", Limits(slots=1, per_hour=per_hour))
        )
        now = watcher.now(begun + 9)
        given = records.give_back(record, f"a{number}", now, rest_seconds=0, used=True)
        record = taken(given)
    return record


HOURS = {
    # seconds after the first began (they ended at 9 and 19), may a third begin?
    "the hour is full": (30.0, False),
    "an hour after the first began it may just have acted": (3602.0, False),
    "an hour after it ended": (3612.0, True),
}


@pytest.mark.parametrize(("at", "may"), HOURS.values(), ids=HOURS)
def test_so_many_in_an_hour(at: float, may: bool) -> None:
    """Counted from when a restart was over, so that no sixty minutes hold more hook calls than allowed."""
    change = Watcher("w2").take(spend(2, per_hour=2), at, "next", Limits(slots=1, per_hour=2))
    assert (change.record is not None) is may, change.text
    if not may:
        assert change.text == "2 of 2 restarts per hour are spent by all users of the lock"


def test_hour_of_what_is_under_way_has_not_begun() -> None:
    """A restart of over an hour counts until an hour after its end."""
    record, limits = one_held(), Limits(slots=2, per_hour=1)
    for at in range(20, 7200, 20):
        record = taken(records.renew(record, "a1"))
        assert Watcher("w2").take(record, at, "a2", limits).record is None


def test_hour_of_a_ghost_begins_when_it_is_found() -> None:
    """It may have acted until then."""
    early, limits = Watcher("w2"), Limits(slots=1, per_hour=2)
    ghost = one_held()
    early.see(ghost, 0)
    at = 5000.0
    found = taken(early.take(ghost, at, "a2", limits))
    found = taken(records.give_back(found, "a2", early.now(at), rest_seconds=0, used=True))
    assert Watcher("w3").take(found, at + 3000, "a3", limits).record is None
    assert Watcher("w3").take(found, at + 3603, "a3", limits).record is not None


def test_hour_written_by_a_clock_of_next_year_passes() -> None:
    """It counts until we have seen it for an hour."""
    record = Record(spent=(Spent(attempt_id="a0", t=T + 365 * 86400),))
    watcher, limits = Watcher("w1"), Limits(slots=1, per_hour=1)
    assert watcher.take(record, 0, "a1", limits).record is None
    assert watcher.take(record, 3601, "a1", limits).record is not None


DAMAGED = {
    "a list": [],
    "no hours": {"slots": []},
    "an unknown field": {"slots": [], "spent": [{"attempt_id": "a", "t": 1, "x": 2}]},
    "text for a number": {"slots": [], "spent": [{"attempt_id": "a", "t": "soon"}]},
    "a TTL of nothing": {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 0}], "spent": []},
    "a TTL of a year": {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 3e7}], "spent": []},
    "a beat in words": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "beat": "one"}], "spent": []}),
    "a holder that is a number": (
        {"slots": [{"holder": 1, "attempt_id": "a", "ttl_seconds": 9}], "spent": []}),
    "a TTL of over a day": {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 86401}], "spent": []},
    "an attempt that is a number": (
        {"slots": [{"holder": "w", "attempt_id": 1, "ttl_seconds": 9}], "spent": []}),
    "a rest of over a day": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "rest_t": 1, "rest_seconds": 86401}], "spent": []}),
    "a rest that began in words": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "rest_t": "soon", "rest_seconds": 1}], "spent": []}),
    "an hour of an attempt that is a number": {"slots": [], "spent": [{"attempt_id": 1, "t": 1}]},
    "more slots than anybody may have": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9}] * 101, "spent": []}),
    "a rest of a year": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "rest_t": 1, "rest_seconds": 3e7}], "spent": []}),
    "more than anybody wrote": {"slots": [], "spent": [{"attempt_id": "a", "t": 1}] * 1001},
    "null": None,
}  # fmt: skip


@pytest.mark.parametrize("document", DAMAGED.values(), ids=DAMAGED)
def test_what_nobody_of_us_wrote_is_not_read(document: object) -> None:
    """It is an error and never an empty record."""
    with pytest.raises(ValueError, match="."):
        Record.from_json(document)


def test_it_is_read_as_it_was_written() -> None:
    """With rests and hours."""
    record = records.give_back(spend(3, 9), "a2", Now(0, T), rest_seconds=50, used=True).record
    record = record or spend(3, 9)
    resting = taken(Watcher("w").take(record, 99, "a9", Limits(slots=3)))
    resting = taken(records.give_back(resting, "a9", Now(0, T), rest_seconds=50, used=True))
    assert Record.from_json(json.loads(json.dumps(resting.to_json()))) == resting


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["take", "renew", "give", "look"]), st.integers(1, 90)),
    max_size=60,
)  # fmt: skip


@given(STEPS, st.integers(1, 3), st.integers(1, 4))
def test_limits_hold_whatever_is_done_in_whatever_order(
    steps: list[tuple[int, str, int]], slots: int, per_hour: int
) -> None:
    """Of all who believe in their lease there are never more than slots, nor more hours than allowed."""
    record, at = Record(), 0.0
    limits = Limits(slots=slots, per_hour=per_hour)
    watchers = [Watcher(f"w{number}", clock=number * 0.4 - 1) for number in range(6)]
    believed: dict[str, float] = {}  # attempt: until when
    began: list[float] = []
    for number, what, seconds in steps:
        at += seconds
        attempt_id, watcher = f"a{number}", watchers[number]
        watcher.see(record, at)
        now = watcher.now(at)
        if what == "take":
            fresh = record.of(attempt_id) is None
            change = watcher.take(record, at, attempt_id, limits)
            if change.record is not None:
                record, believed[attempt_id] = change.record, at + TTL_SECONDS
                began += [at] if fresh else []
        elif what == "renew":
            change = records.renew(record, attempt_id)
            if change.record is not None:
                record, believed[attempt_id] = change.record, at + TTL_SECONDS
        elif what == "give":
            believed.pop(attempt_id, None)
            change = records.give_back(record, attempt_id, now, rest_seconds=0, used=True)
            record = change.record or record
        assert sum(until > at for until in believed.values()) <= slots
        assert sum(each > at - 3600 for each in began) <= per_hour


def test_a_slot_that_rests_is_nobodys() -> None:
    """Whose it was does not hold it any more."""
    held = one_held()
    mine = held.of("a1")
    assert mine is not None
    assert mine.holder == "w1"
    given = records.give_back(held, "a1", Watcher("w1").now(0), rest_seconds=100, used=True)
    assert given.record is not None
    assert [slot.attempt_id for slot in given.record.slots] == ["a1"]
    assert given.record.of("a1") is None


def test_of_what_a_stranger_wrote_little_is_said() -> None:
    """A key of any length may stand there."""
    with pytest.raises(ValueError, match="TypeError") as raised:
        Record.from_json({"slots": [{"x" * 1000: 1}], "spent": []})
    assert len(str(raised.value)) == 200


LARGEST = {
    "a TTL below a second": {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 0.5}], "spent": []},
    "a TTL of a day": {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 86400}], "spent": []},
    "a rest of a day": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "rest_t": 1, "rest_seconds": 86400}], "spent": []}),
    "all slots and hours": {
        "slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9}] * 100, "spent": [{"attempt_id": "a", "t": 1}] * 1000,
    },
}  # fmt: skip


@pytest.mark.parametrize("document", LARGEST.values(), ids=LARGEST)
def test_all_that_settings_allow_is_read(document: dict[str, list[object]]) -> None:
    """And nobody is kept out by a colleague with other settings."""
    read = Record.from_json(document)
    assert [len(read.slots), len(read.spent)] == [len(document["slots"]), len(document["spent"])]


def test_who_holds_it_is_named_before_what_rests() -> None:
    """It is he whom a person can ask."""
    limits = Limits(slots=2)
    two = taken(Watcher("w2").take(one_held(), 0, "a2", limits))
    for back, named in (
        ("a1", "held by w2 (a2) and 1 more"),
        ("a2", "held by w1 (a1) and 1 more"),
    ):
        now = Watcher("w").now(1)
        resting = taken(records.give_back(two, back, now, rest_seconds=100, used=True))
        assert Watcher("w3").take(resting, 2, "a3", limits).text == named


GIVEN_BACK = {
    # rest, used: attempts whose slots are left, attempts whose hours are
    "it rests": (1.0, True, ["a1", "a2"], ["a1", "a2"]),
    "it need not rest": (0.0, True, ["a1"], ["a1", "a2"]),
    "it was not used": (100.0, False, ["a1"], ["a1"]),
}


@pytest.mark.parametrize(("rest", "used", "slots", "spent"), GIVEN_BACK.values(), ids=GIVEN_BACK)
def test_giving_back_leaves_what_is_others(
    rest: float, used: bool, slots: list[str], spent: list[str]
) -> None:
    """Their slots are held, and their hours began when they did."""
    two = taken(Watcher("w2").take(one_held(), 5, "a2", Limits(slots=2)))
    given = taken(records.give_back(two, "a2", Watcher("w2").now(9), rest_seconds=rest, used=used))
    assert [slot.attempt_id for slot in given.slots] == slots
    assert [slot.attempt_id for slot in given.held] == ["a1"]
    assert [each.attempt_id for each in given.spent] == spent
    assert [each.t - T for each in given.spent] == [0.0, 9.0][: len(spent)]


def test_what_nobody_knows_of_changes_nothing_when_it_is_given_back() -> None:
    """So nothing is written for it."""
    held = one_held()
    given = records.give_back(held, "a9", Watcher("w1").now(9), rest_seconds=9, used=True)
    assert given.record is None


def test_a_slot_that_rests_keeps_no_hour_from_passing() -> None:
    """Its restart is over."""
    limits = Limits(slots=2, per_hour=1)
    rests = records.give_back(one_held(), "a1", Watcher("w1").now(0), rest_seconds=9999, used=True)
    record = taken(rests)
    assert Watcher("w2").take(record, 3601, "a2", limits).record is None
    assert [
        slot.attempt_id for slot in taken(Watcher("w2").take(record, 3603, "a2", limits)).slots
    ] == ["a1", "a2"]
