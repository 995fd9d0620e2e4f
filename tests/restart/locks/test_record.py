"""What all who share a lock write down: what may be changed there, as stories told in virtual time."""

import json
from dataclasses import asdict, dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.restart.locks import record as records
from vllm_watch.restart.locks.record import (
    PAST_MAX,
    TARGET_PAST_MAX,
    Limits,
    Now,
    Past,
    Record,
    Release,
    Sightings,
    Slot,
    Spent,
)
from vllm_watch.state.attempt import Attempt

TTL_SECONDS = 60.0
T = 1_800_000_000.0


@dataclass
class Watcher:
    """One who shares the lock; `clock` is how far its wall clock is off."""

    name: str
    clock: float = 0.0
    sightings: Sightings = field(default_factory=Sightings)

    def now(self, at):
        return Now(1000.0 + at, T + at + self.clock)

    def see(self, record, at):
        self.sightings.see(record, self.now(at).monotonic_s)
        return record

    def take(self, record, at, attempt_id, limits):
        wanted = Slot(holder=self.name, attempt_id=attempt_id, ttl_seconds=TTL_SECONDS)
        self.see(record, at)
        return records.take(record, self.sightings, limits, self.now(at), wanted)


def taken(change):
    assert change.record is not None, change.text
    return change.record


def one_held(at=0.0):
    return taken(Watcher("w1").take(Record(), at, "a1", Limits(slots=1)))


def test_ghost_is_free_after_three_ttls_of_silence_that_we_have_seen_ourselves():
    """Who comes late waits the whole time; who has looked since the beginning does not."""
    ghost, early, late = one_held(), Watcher("w2"), Watcher("w3")
    early.see(ghost, 0)
    assert early.take(ghost, 180, "a2", Limits(slots=1)).record is None
    assert late.take(ghost, 181, "a3", Limits(slots=1)).record is None
    assert taken(early.take(ghost, 181, "a2", Limits(slots=1))).held[0].holder == "w2"
    assert late.take(ghost, 360, "a3", Limits(slots=1)).record is None
    assert taken(late.take(ghost, 362, "a3", Limits(slots=1))).held[0].holder == "w3"


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
def test_rest_after_a_restart(clock, at, free):
    """The next one waits that long, by its own clock."""
    given = records.give_back(one_held(), Watcher("w1").now(0), Release("a1", 100))
    assert given.record is not None
    asker = Watcher("w2", clock)
    asker.see(given.record, 10)  # it first looks a little later
    change = asker.take(given.record, at, "a2", Limits(slots=1))
    assert (change.record is not None) is free, change.text
    if not free:
        assert change.text == f"it rests for {max(0.0, 100 - at - clock):.0f} s more after a1"


def test_of_a_slot_that_is_held_and_one_that_rests_the_held_one_is_named():
    record, limits = one_held(), Limits(slots=2)
    record = taken(Watcher("w2").take(record, 0, "a2", limits))
    record = taken(records.give_back(record, Watcher("w1").now(0), Release("a1", 100)))
    rested = Record(slots=record.slots[::-1], spent=record.spent)
    for each in (record, rested):
        refused = Watcher("w3").take(each, 0, "a3", limits)
        assert refused.text == "held by w2 (a2) and 1 more"


def test_hour_of_what_is_under_way_has_not_begun():
    """A restart of over an hour counts until an hour after its end."""
    record, limits = one_held(), Limits(slots=2, per_hour=1)
    for at in range(20, 7200, 20):
        record = taken(records.renew(record, "a1"))
        assert Watcher("w2").take(record, at, "a2", limits).record is None


def test_hour_of_a_ghost_begins_when_it_is_found():
    """It may have acted until then."""
    early, limits = Watcher("w2"), Limits(slots=1, per_hour=2)
    ghost = one_held()
    early.see(ghost, 0)
    at = 5000.0
    found = taken(early.take(ghost, at, "a2", limits))
    found = taken(records.give_back(found, early.now(at), Release("a2")))
    assert Watcher("w3").take(found, at + 3000, "a3", limits).record is None
    assert Watcher("w3").take(found, at + 3603, "a3", limits).record is not None


def test_hour_written_by_a_clock_of_next_year_passes():
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
    "text for a number of renewals": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "beat": "two"}], "spent": []}),
    "text for the begin of a rest": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "rest_t": "soon"}], "spent": []}),
    "a TTL of nothing": {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 0}], "spent": []},
    "a TTL of a year": {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 3e7}], "spent": []},
    "a holder that is a number": (
        {"slots": [{"holder": 1, "attempt_id": "a", "ttl_seconds": 9}], "spent": []}),
    "more slots than anybody may have": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9}] * 101, "spent": []}),
    "a rest of a year": (
        {"slots": [{"holder": "w", "attempt_id": "a", "ttl_seconds": 9, "rest_t": 1, "rest_seconds": 3e7}], "spent": []}),
    "more than anybody wrote": {"slots": [], "spent": [{"attempt_id": "a", "t": 1}] * 1001},
    "null": None,
}  # fmt: skip


@pytest.mark.parametrize("document", DAMAGED.values(), ids=DAMAGED)
def test_what_nobody_of_us_wrote_is_not_read(document):
    """It is an error and never an empty record."""
    with pytest.raises(ValueError, match="."):
        Record.from_json(document)


def test_it_is_read_as_it_was_written():
    two = taken(Watcher("w").take(one_held(), 99, "a9", Limits(slots=3, per_hour=3)))
    resting = taken(records.give_back(two, Now(0, T), Release("a9", 50)))
    assert Record.from_json(json.loads(json.dumps(resting.to_json()))) == resting


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["take", "renew", "give", "look"]), st.integers(1, 90)),
    max_size=60,
)  # fmt: skip


@given(STEPS, st.integers(1, 3), st.integers(1, 4))
def test_limits_hold_whatever_is_done_in_whatever_order(steps, slots, per_hour):
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
            change = records.give_back(record, now, Release(attempt_id))
            record = change.record or record
        assert sum(until > at for until in believed.values()) <= slots
        assert sum(each > at - 3600 for each in began) <= per_hour


GIVEN_BACK = {
    # rest, used: attempts whose slots are left, attempts whose hours are
    "it rests": (1.0, True, ["a1", "a2"], ["a1", "a2"]),
    "it need not rest": (0.0, True, ["a1"], ["a1", "a2"]),
    "it was not used": (100.0, False, ["a1"], ["a1"]),
}


@pytest.mark.parametrize(("rest", "used", "slots", "spent"), GIVEN_BACK.values(), ids=GIVEN_BACK)
def test_giving_back_leaves_what_is_others(rest, used, slots, spent):
    """Their slots are held, and their hours began when they did."""
    two = taken(Watcher("w2").take(one_held(), 5, "a2", Limits(slots=2)))
    given = taken(records.give_back(two, Watcher("w2").now(9), Release("a2", rest, used=used)))
    assert [slot.attempt_id for slot in given.slots] == slots
    assert [slot.attempt_id for slot in given.held] == ["a1"]
    assert [each.attempt_id for each in given.spent] == spent
    assert [each.t - T for each in given.spent] == [0.0, 9.0][: len(spent)]


MADE = Attempt(
    id="a1", target="chat-0", group="chat", trigger="incident", hook="h", reason="no step", actor="w",
    state="calling", began_t=10.0, called_t=12.0, incident_id="i1", address="10.0.0.1:8000",
)  # fmt: skip


def one(attempt_id="a1", **changed):
    found = records.past_of(replace(MADE, id=attempt_id, **changed), "host-1")
    assert found is not None
    return found


def states(known, *held, host="host-1"):
    return [(each.id, each.state) for each in records.others(known, held, host, "mine")]


def test_it_comes_back_as_it_was():
    """Through JSON; and as an attempt that counts from its call."""
    (read,) = records.pasts_from_json([asdict(one())])
    assert read == one()
    (attempt,) = records.others([read], {"a1"}, "host-2", "mine")
    assert (attempt.acted_t, attempt.incident_id, attempt.state) == (12.0, "i1", "calling")


def test_local_address_is_of_its_host():
    """Every sidecar calls its engine localhost."""
    known = (one(address="localhost:8000"),)
    assert states(known, "a1") == [("a1", "calling")]
    assert states(known, "a1", host="host-2") == []


def test_who_has_no_slot_and_no_end_is_uncertain():
    """One that never came to its call has done nothing."""
    known = (one("a1"), one("a2", state="intent"), one("a3", state="helped"), one("mine"))
    assert states(known) == [("a1", "uncertain"), ("a3", "helped")]
    assert states(known, "a1", "a2") == [("a1", "calling"), ("a2", "intent"), ("a3", "helped")]
    assert [each.id for each in records.without_ghosts(known, ())] == ["a1", "a3", "mine"]


def test_it_begins_once_and_ends_once():
    """A further question does not take back that it was called; what touched nothing is forgotten."""
    known = records.first((), one(state="intent"))
    known = records.put(known, one())
    assert records.first(known, one(state="intent")) == known
    assert records.ended(known, "a1", one(state="helped"), used=True) == (one(state="helped"),)
    assert records.ended(known, "a1", None, used=True) == known
    assert records.ended(known, "a1", one(state="cancelled"), used=False) == ()


def test_it_is_bounded():
    """The oldest of a target goes first, then the oldest of all."""
    known: tuple[Past, ...] = (one("other", address="10.0.0.2:8000"),)
    for number in range(TARGET_PAST_MAX + 3):
        known = records.put(known, one(f"a{number}"))
    assert [each.id for each in known] == [
        "other",
        *(f"a{n}" for n in range(3, TARGET_PAST_MAX + 3)),
    ]
    for number in range(PAST_MAX):
        known = records.put(known, one(f"b{number}", address=f"10.0.1.1:{number}"))
    assert len(known) == PAST_MAX
    assert known[0].id == "b0"


NOT_OURS = {
    "no list": 5,
    "a word": ["x"],
    "a field too few": [{"id": "x"}],
    "a field too many": [asdict(one()) | {"more": 1}],
    "a state that there is not": [asdict(one()) | {"state": "fine"}],
    "a time in words": [asdict(one()) | {"began_t": "now"}],
    "too many": [asdict(one())] * (PAST_MAX + 1),
}


@pytest.mark.parametrize("document", NOT_OURS.values(), ids=NOT_OURS)
def test_what_is_not_ours_is_not_read(document):
    """It is a no."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        records.pasts_from_json(document)


def test_of_what_a_stranger_wrote_little_is_said():
    """A key of any length may stand there."""
    with pytest.raises(ValueError, match="TypeError") as raised:
        Record.from_json({"slots": [{"x" * 1000: 1}], "spent": []})
    assert len(str(raised.value)) == 200
