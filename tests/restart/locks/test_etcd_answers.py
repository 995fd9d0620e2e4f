"""The etcd lock against an etcd in memory, which fails when it is told to; test_etcd.py has real servers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.restart.locks.clock import Clock
from tests.restart.waits import Waits
from vllm_watch.clients.etcd import Change, Etcd, EtcdError, Kept
from vllm_watch.restart.locks import etcd as kind
from vllm_watch.restart.locks.etcd import Lock, Shared
from vllm_watch.restart.locks.record import Limits
from vllm_watch.state.attempt import Attempt

PREFIX = "vllm-watch/gpu/"


class Memory(Etcd):
    """Keys with leases; `before` and `after` are called at each call, and may raise."""

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}
        self.leases: dict[int, int] = {}  # seconds, by their number
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None
        self.slower: list[str] = []  # keys of puts for which somebody else is faster, once each
        self.ended: set[int] = set()  # leases that are said to have ended

    async def range(self, prefix: str) -> list[Kept]:
        self.before("range")
        return [self.kept[key] for key in sorted(self.kept) if key.startswith(prefix)]

    async def grant(self, lease_id: int, seconds: int) -> None:
        self.before("grant")
        assert 0 < lease_id < 1 << 63
        assert lease_id not in self.leases
        self.leases[lease_id] = seconds

    async def keep(self, lease_id: int) -> bool:
        self.before("keep")
        return lease_id in self.leases and lease_id not in self.ended

    async def revoke(self, lease_id: int) -> None:
        self.before("revoke")
        self.leases.pop(lease_id, None)
        self.kept = {key: each for key, each in self.kept.items() if each.lease_id != lease_id}

    async def put(self, changes: Sequence[Change]) -> bool:
        self.before("put")
        for _, new in changes:
            assert new.lease_id in {0, *self.leases}
            if new.key in self.slower:
                self.slower.remove(new.key)
                return False
        now = {key: each.value for key, each in self.kept.items()}
        if any(now.get(new.key) != old for old, new in changes):
            return False
        self.kept |= {new.key: new for _, new in changes}
        self.after("put")
        return True

    @property
    def keys(self) -> list[str]:
        return [key.removeprefix(PREFIX) for key in sorted(self.kept)]

    def seconds(self, key: str) -> int:
        """How long the lease of a key is."""
        return self.leases[self.kept[PREFIX + key].lease_id]

    def nothing_is_left_over(self) -> bool:
        """Has each lease a key? One that was to hold an hour may be left to end by itself."""
        used = {each.lease_id for each in self.kept.values()}
        return all(seconds > 3600 or lease_id in used for lease_id, seconds in self.leases.items())


def away(_: str) -> None:
    raise EtcdError("etcd cannot be asked", "check it")


def lock(
    etcd: Memory | Shared, *, slots: int = 1, per_hour: int | None = None, ttl_seconds: float = 60.0
) -> Lock:
    shared = Shared(etcd, "gpu") if isinstance(etcd, Memory) else etcd
    return Lock(shared, Limits(slots=slots, per_hour=per_hour), ttl_seconds)


def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is waited for between tries: nothing in truth, and each time as long as it may be."""

    def longest(least: float, most: float) -> float:
        assert least == 0
        return most

    monkeypatch.setattr(kind.random, "uniform", longest)
    return Waits(monkeypatch, kind).seconds


async def test_slot_and_hour_end_by_themselves() -> None:
    """The slot after three TTLs, the hour an hour later, where nobody is heard of again."""
    etcd = Memory()
    assert (await lock(etcd, per_hour=2, ttl_seconds=59.5).acquire("w1", "a1")).held is True
    assert etcd.keys == ["hour/0000", "slot/0000"]
    assert (etcd.seconds("slot/0000"), etcd.seconds("hour/0000")) == (179, 3779)


RELEASES = {
    # hours are limited, it rests, it was used: what is left, for how long
    "used": (None, 0.0, True, {}),
    "used, of an hour": (2, 0.0, True, {"hour/0000": 3600}),
    "used, it rests": (None, 0.2, True, {"slot/0000": 1}),
    "used, it rests longer": (2, 90.5, True, {"slot/0000": 91, "hour/0000": 3600}),
    "not used": (2, 90.0, False, {}),
    "not used, no hours": (None, 90.0, False, {}),
}


@pytest.mark.parametrize(("per_hour", "rest", "used", "left"), RELEASES.values(), ids=RELEASES)
async def test_release(per_hour: int | None, rest: float, used: bool, left: dict[str, int]) -> None:
    """What is left of it ends by itself."""
    etcd = Memory()
    mine = lock(etcd, per_hour=per_hour)
    await mine.acquire("w1", "a1")
    await mine.release(rest, used=used)
    assert {key: etcd.seconds(key) for key in etcd.keys} == left
    assert etcd.nothing_is_left_over()
    assert not mine.still_ours()


@pytest.mark.parametrize(("per_hour", "rest", "used", "left"), RELEASES.values(), ids=RELEASES)
async def test_release_that_failed_is_made_up_for(
    per_hour: int | None, rest: float, used: bool, left: dict[str, int]
) -> None:
    """By this process's next asking: the slot is free, the hour counts where there was a restart; nothing is raised."""
    etcd = Memory()
    shared = Shared(etcd, "gpu")
    mine = lock(shared, per_hour=per_hour)
    await mine.acquire("w1", "a1", ATTEMPT)
    etcd.before = away
    await mine.release(rest, used=used, ended=replace(ATTEMPT, state="helped"))
    etcd.before = lambda _: None
    assert (await lock(etcd, per_hour=9).acquire("w2", "a2")).held is False
    answer = await lock(shared, per_hour=9).acquire("w1", "a3")
    assert answer.held is True
    assert [each.state for each in answer.others] == (["helped"] if used else [])
    hours = 1 + (used and per_hour is not None)
    assert [key for key in etcd.keys if "hour" in key] == [f"hour/{n:04}" for n in range(hours)]
    assert etcd.nothing_is_left_over()


async def test_hour_that_a_person_has_deleted_is_not_begun_anew() -> None:
    """Nor is anything left over of the try."""
    etcd = Memory()
    mine = lock(etcd, per_hour=2)
    await mine.acquire("w1", "a1")
    del etcd.kept[PREFIX + "hour/0000"]
    await mine.release()
    assert etcd.keys == []
    assert len(etcd.leases) == 1  # its own, which ends by itself


async def test_what_was_held_by_an_earlier_run_and_cannot_be_renewed_is_not_ours_yet() -> None:
    """It is taken up all the same, so that the next try renews it."""
    etcd = Memory()
    await lock(etcd, per_hour=2).acquire("w1", "a1")
    again = lock(etcd, per_hour=2)

    def no_renewal(what: str) -> None:
        if what == "keep":
            away(what)

    etcd.before = no_renewal
    answer = await again.acquire("w1", "a1")
    assert (answer.held, answer.text) == (None, "etcd cannot be asked; check it")
    assert not again.still_ours()
    etcd.before = lambda _: None
    assert ((await again.renew()).held, again.still_ours()) == (True, True)
    await again.release(used=False)
    assert etcd.keys == []


async def test_slot_that_rests_is_not_taken_up() -> None:
    """Also by the attempt that was under it."""
    etcd = Memory()
    mine = lock(etcd)
    await mine.acquire("w1", "a1")
    await mine.release(60)
    refused = await lock(etcd).acquire("w1", "a1")
    assert (refused.held, refused.text) == (False, "it rests after a1")


async def test_another_attempt_takes_a_slot_of_its_own() -> None:
    """One attempt's lease is not another's."""
    etcd = Memory()
    mine = lock(etcd, slots=2)
    for attempt_id in ("a1", "a2"):
        assert (await mine.acquire("w1", attempt_id)).held is True
    assert etcd.keys == ["slot/0000", "slot/0001"]
    assert (await mine.acquire("w1", "a2")).held is True
    assert etcd.keys == ["slot/0000", "slot/0001"]


async def test_what_was_lost_is_not_taken_anew_under_the_same_attempt() -> None:
    """It may be half done: its holder is told, and acts no more."""
    etcd = Memory()
    mine = lock(etcd)
    await mine.acquire("w1", "a1")
    etcd.kept.clear()
    answer = await mine.acquire("w1", "a1")
    assert (answer.held, answer.text[:11], mine.still_ours()) == (False, "it was lost", False)


LOST = {
    "the slot has ended": lambda etcd: etcd.ended.add(etcd.kept[PREFIX + "slot/0000"].lease_id),
    "the hour has ended": lambda etcd: etcd.ended.add(etcd.kept[PREFIX + "hour/0000"].lease_id),
    "the slot was deleted": lambda etcd: etcd.kept.pop(PREFIX + "slot/0000"),
    "another has the slot": lambda etcd: etcd.kept.update(
        {PREFIX + "slot/0000": Kept(PREFIX + "slot/0000", "{}", 5)}
    ),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
async def test_lost(lose: Callable[[Memory], object]) -> None:
    """Whatever of it: without its hour it would not count."""
    etcd = Memory()
    mine = lock(etcd, per_hour=2)
    await mine.acquire("w1", "a1")
    lose(etcd)
    assert mine.still_ours()
    renewed = await mine.renew()
    assert (renewed.held, renewed.text[:11], mine.still_ours()) == (False, "it was lost", False)


async def test_lease_is_of_the_time_before_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By our own clock, when it is taken and when it is renewed."""
    etcd, clock = Memory(), Clock(monkeypatch, kind)
    mine = lock(etcd)
    etcd.after = lambda _: clock.passes(59)
    assert (await mine.acquire("w1", "a1")).held is True
    assert mine.still_ours()
    clock.passes(2)
    assert not mine.still_ours()
    etcd.before = lambda what: clock.passes(59 if what == "keep" else 0)
    assert (await mine.renew()).held is True
    assert mine.still_ours()
    clock.passes(2)
    assert not mine.still_ours()


async def test_who_was_told_of_fewer_slots_counts_those_of_others() -> None:
    """Whatever their numbers are."""
    etcd = Memory()
    first = lock(etcd, slots=2)
    for number, each in enumerate((first, lock(etcd, slots=2))):
        assert (await each.acquire(f"w{number}", f"a{number}")).held is True
    await first.release()
    assert etcd.keys == ["slot/0001"]
    refused = await lock(etcd).acquire("w2", "a2")
    assert (refused.held, refused.text) == (False, "held by w1 (a1)")


async def test_who_holds_it_is_named_before_what_rests() -> None:
    """It is he whom a person can ask."""
    etcd = Memory()
    first, second = lock(etcd, slots=2), lock(etcd, slots=2)
    await first.acquire("w1", "a1")
    await second.acquire("w2", "a2")
    await first.release(60)
    refused = await lock(etcd, slots=2).acquire("w3", "a3")
    assert refused.text == "held by w2 (a2) and 1 more"
    await second.release(60)
    refused = await lock(etcd, slots=2).acquire("w3", "a3")
    assert refused.text == "it rests after a1 and 1 more"


@pytest.mark.parametrize(("slower", "waited"), [(0, []), (1, [0.2]), (5, [0.2, 0.4, 0.8, 1.6, 3.2]), (6, [0.2, 0.4, 0.8, 1.6, 3.2])])  # fmt: skip
async def test_who_was_slower_tries_six_times(
    monkeypatch: pytest.MonkeyPatch, slower: int, waited: list[float]
) -> None:
    """Each time later; in the end nothing is left over of them."""
    etcd, seconds = Memory(), waits(monkeypatch)
    etcd.slower = [PREFIX + "slot/0000"] * slower
    answer = await lock(etcd, per_hour=2).acquire("w1", "a1")
    assert answer.held is (slower < 6)
    assert seconds == pytest.approx(waited)
    assert etcd.nothing_is_left_over()
    if slower == 6:
        assert (answer.text, etcd.keys) == ("others were faster 6 times", [])


async def test_it_is_waited_for_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all its tries; that is said."""
    limits: list[float] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        limits.append(seconds)
        return asyncio.timeout(0)

    Waits(monkeypatch, kind, timeout=timeout)
    etcd = Memory()
    etcd.slower = [PREFIX + "slot/0000"] * 9
    answer = await lock(etcd).acquire("w1", "a1")
    assert (answer.held, answer.text) == (None, "etcd: no answer within 20 s")
    assert limits == [20.0]


async def test_what_was_cancelled_or_not_answered_leaves_nothing() -> None:
    """The next asking of this process ends it, and at first it is left in peace."""

    def lost(_: str) -> None:
        raise EtcdError("no answer", "wait")

    def cancelled(_: str) -> None:
        raise asyncio.CancelledError

    for unheard, raised in ((lost, None), (cancelled, asyncio.CancelledError)):
        etcd = Memory()
        shared = Shared(etcd, "gpu")
        etcd.after = unheard
        mine = lock(shared, per_hour=1)
        if raised is None:
            assert (await mine.acquire("w1", "a1")).text == "no answer; wait"
        else:
            with pytest.raises(raised):
                await mine.acquire("w1", "a1")
        etcd.after = lambda _: None
        assert (etcd.keys, mine.still_ours()) == (["hour/0000", "slot/0000"], False)
        assert (await lock(shared, per_hour=1).acquire("w1", "a2")).held is True
        assert (await lock(shared, slots=2, per_hour=2).acquire("w1", "a3")).held is True
        assert etcd.keys == ["hour/0000", "hour/0001", "slot/0000", "slot/0001"]
        assert etcd.nothing_is_left_over()


@pytest.mark.parametrize(("others", "forgotten"), [(99, False), (100, True)])
async def test_so_many_that_were_left_are_remembered(others: int, forgotten: bool) -> None:
    """A hundred; what was left before expires by itself."""
    etcd = Memory()
    shared = Shared(etcd, "gpu")
    for lease_id in range(1, others + 2):
        await etcd.grant(lease_id, 180)
        shared.leave(lease_id)
    await shared.tidy()
    assert list(etcd.leases) == ([1] if forgotten else [])


ATTEMPT = Attempt(
    id="a1", target="chat-0", group="chat", trigger="incident", hook="h", reason="no step", actor="w",
    state="calling", began_t=10.0, called_t=12.0, address="10.0.0.1:8000",
)  # fmt: skip


async def known(etcd: Memory) -> list[tuple[str, str]]:
    """What another watcher is told of the attempts, when it takes a slot."""
    other = lock(etcd, slots=9)
    answer = await other.acquire("w9", "a9")
    await other.release(used=False)
    return [(each.id, each.state) for each in answer.others]


async def test_attempts_of_others_are_known() -> None:
    """How they stand while they have a slot, how they ended, and that it is not known where neither is."""
    etcd = Memory()
    assert await known(etcd) == []
    mine = lock(etcd, slots=9, per_hour=9)
    await mine.acquire("w1", "a1", replace(ATTEMPT, state="intent"))
    assert await known(etcd) == [("a1", "intent")]
    renewed = await mine.renew(ATTEMPT)
    assert (renewed.held, renewed.others) == (True, ())
    assert await known(etcd) == [("a1", "calling")]
    await mine.release(60, ended=replace(ATTEMPT, state="helped"))
    assert await known(etcd) == [("a1", "helped")]


@pytest.mark.parametrize("rest", [0.0, 60.0], ids=["an hour is left", "it rests"])
async def test_attempt_that_has_no_slot_and_no_end_is_uncertain(rest: float) -> None:
    """Its hour and its rest are not its slot."""
    etcd = Memory()
    mine = lock(etcd, slots=9, per_hour=9)
    await mine.acquire("w1", "a1", ATTEMPT)
    await mine.release(rest)
    assert [key.split("/")[0] for key in etcd.keys] == ["hour", "past", *(["slot"] if rest else [])]
    assert await known(etcd) == [("a1", "uncertain")]


@pytest.mark.parametrize(("slower", "put_down"), [(2, True), (6, False)])
async def test_end_is_put_down_against_others_or_later(
    monkeypatch: pytest.MonkeyPatch, slower: int, put_down: bool
) -> None:
    """Where others are faster each time, the slot stays held until this process's next asking."""
    etcd, seconds = Memory(), waits(monkeypatch)
    shared = Shared(etcd, "gpu")
    mine = lock(shared)
    await mine.acquire("w1", "a1", ATTEMPT)
    etcd.slower = [PREFIX + "past"] * slower
    await mine.release(ended=replace(ATTEMPT, state="helped"))
    assert seconds == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2][: min(slower, 5)])
    assert (etcd.keys == ["past"]) is put_down
    answer = await lock(shared).acquire("w1", "a2")
    assert [(each.id, each.state) for each in answer.others] == [("a1", "helped")]


async def test_past_that_nobody_of_us_wrote_is_never_a_yes() -> None:
    """Nor is a lease left over for it."""
    etcd = Memory()
    etcd.kept[PREFIX + "past"] = Kept(PREFIX + "past", '[{"id": 1}]', 0)
    answer = await lock(etcd).acquire("w1", "a1")
    assert (answer.held, answer.text[:23]) == (None, "what answers is no etcd")
    assert etcd.leases == {}


async def test_release_that_was_answered_is_over() -> None:
    """The next asking has nothing to make up for."""
    etcd = Memory()
    shared = Shared(etcd, "gpu")
    mine = lock(shared)
    await mine.acquire("w1", "a1", ATTEMPT)
    await mine.release(ended=replace(ATTEMPT, state="helped"))
    asked: list[str] = []
    etcd.before = asked.append
    assert (await lock(shared).acquire("w1", "a2")).held is True
    assert asked == ["range", "grant", "grant", "put"]
