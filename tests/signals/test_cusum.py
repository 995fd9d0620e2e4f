"""Evidence adds up in time, not in looks."""

import pytest

from vllm_watch.signals.baseline import CEILING, Cusum


def alarm_after(score, seconds, limit=100):
    """Seconds until the alarm at this score in blocks of so many seconds; None: never."""
    cusum = Cusum(alarm_seconds=7.0, drain_seconds=40.0)
    for block in range(1, limit):
        if cusum.add(score, seconds):
            return block * seconds
    return None


@pytest.mark.parametrize(("seconds", "found"), [(1.0, 7.0), (2.0, 8.0), (5.0, 10.0), (30.0, 60.0)])
def test_the_loudest_evidence_takes_seven_seconds_and_two_blocks(seconds, found):
    assert alarm_after(1000.0, seconds) == found


@pytest.mark.parametrize(
    ("score", "blocks"), [(4.0, 2), (1.0, 8), (0.1, 80), (0.0, None), (-1.0, None)]
)
def test_weak_evidence_takes_longer(score, blocks):
    """Scores of 8 in sum, less than the limit of a block each."""
    found = alarm_after(score, 30.0)
    assert found == (None if blocks is None else blocks * 30.0)


def test_an_all_clear_cancels_as_fast_before_an_alarm_and_slowly_after():
    cusum = Cusum(alarm_seconds=7.0, drain_seconds=40.0)
    cusum.add(1000.0, 5.0)
    assert cusum.level > 0.5
    cusum.add(-1000.0, 5.0)
    assert cusum.level == 0.0
    for _ in range(9):
        cusum.add(1000.0, 5.0)
    assert cusum.level == CEILING
    looks = 0
    while cusum.add(-1000.0, 5.0):
        looks += 1
    assert 8 <= looks <= 10


def test_an_alarm_holds_between_its_level_and_a_quarter_of_it():
    cusum = Cusum(alarm_seconds=7.0, drain_seconds=40.0)
    while not cusum.add(4.0, 30.0):
        pass
    assert cusum.add(-4.0, 30.0)
    assert cusum.level < 1.0


def test_silence_halves_a_suspicion_and_leaves_an_alarm():
    cusum = Cusum(alarm_seconds=7.0, drain_seconds=40.0)
    cusum.add(1000.0, 5.0)
    before = cusum.level
    cusum.silence(60.0)
    assert cusum.level == pytest.approx(before / 2)
    for _ in range(3):
        cusum.add(1000.0, 5.0)
    before = cusum.level
    cusum.silence(60.0)
    assert cusum.level == before
