"""The simulated fleet: limits hold inside the bounds, and a lock that is wrong is found out."""

from dataclasses import replace

import pytest

from benchmarks.fleet.fleet import Fleet, Seen, World
from vllm_watch.restart.locks import record
from vllm_watch.restart.locks.record import Limits

SMALL = World(
    "small", watchers=30, engines=300, hours=2.5, limits=Limits(slots=2, per_hour=15), ttl_s=60.0
)
BAD = replace(SMALL, limits=Limits(slots=2, per_hour=200), hook_s=59.0)


def play(world: World, seed: int) -> Seen:
    return Fleet(world, seed).run()


@pytest.mark.parametrize("seed", [1, 2])
def test_limits_hold_inside_the_bounds(seed: int) -> None:
    """Whatever pauses, crashes, is cut off or runs at other times; and work is done all the while."""
    seen = play(SMALL, seed)
    assert seen.acting_worst <= 2
    assert seen.hour_worst() <= 15
    assert len(seen.began) >= 25
    assert seen.twice == 0


def test_the_same_seed_is_the_same_run() -> None:
    """A failure can be looked at again."""
    assert play(SMALL, 3) == play(SMALL, 3)


def test_slots_that_are_free_after_one_ttl_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that is paused, or cut off while its servers load, is overtaken: that is seen."""
    honest = play(BAD, 4)
    assert (honest.acting_worst, honest.away_worst) <= (2, 2)
    monkeypatch.setattr(record, "EXPIRY_TTLS", 0.5)
    assert play(BAD, 4).away_worst > 2


def test_hour_that_is_short_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "HOUR_SECONDS", 3000.0)
    assert play(SMALL, 5).hour_worst() > 15


def test_clocks_that_are_an_hour_apart_pass_the_hour() -> None:
    """Outside of the bounds the excess is counted, not hidden."""
    assert play(replace(SMALL, skew_s=7200.0), 6).hour_worst() > 15
