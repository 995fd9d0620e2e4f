"""Memory that grows: a leak goes on as it began, everything else levels off."""

import math

import pytest

from tests.detectors.looks import T, first_firing, judge, last, seen, silent
from vllm_watch.detectors.host_memory_growth import Detector, Settings

MIB = 2**20
HOURS = 3600


def growths(resident, *, end=2 * HOURS, step=15, fds=lambda s: 50.0, **server):
    looks = [
        seen(s, fds=fds(s), process_resident_memory_bytes=resident(s) * MIB, **server)
        for s in range(0, end, step)
    ]
    return judge(Detector(Settings()), looks)


def noise(second):
    """A wave of some MiB, as requests come and go."""
    return 10 * math.sin(second / 40)


STORIES = {
    "a leak of 2 GiB an hour": (lambda s: 3000 + s * 2048 / 3600 + noise(s), True),
    "a leak of 700 MiB an hour": (lambda s: 3000 + s * 700 / 3600 + noise(s), True),
    "too slow to tell from usual drift": (lambda s: 3000 + s * 300 / 3600 + noise(s), False),
    "steady": (lambda s: 3000 + noise(s), False),
    "levels off within 10 minutes": (lambda s: 5300 - 2600 * math.exp(-s / 600), False),
    "levels off within half an hour": (lambda s: 6200 - 2100 * math.exp(-s / 1600), False),
    "levels off within an hour and a half": (lambda s: 9000 - 6000 * math.exp(-s / 5400), False),
    "one jump": (lambda s: 3000 + (1000 if s > 3000 else 0), False),
    "two jumps": (lambda s: 3000 + 500 * (s > 3000) + 500 * (s > 4000), False),
    "spikes between which it is as before": (lambda s: 3000 + 2000 * (s % 60 < 15), False),
}


@pytest.mark.parametrize(("resident", "leaks"), STORIES.values(), ids=STORIES)
def test_a_story(resident, leaks):
    """Resident MiB by second of two hours."""
    assert (first_firing(growths(resident)) is not None) == leaks


def test_half_an_hour_is_needed():
    """Growth is compared over half an hour; a restart in the next window cures it."""
    second, verdict = first_firing(growths(lambda s: 3000 + s))
    assert 1800 <= second <= 1900
    assert (verdict.cause, verdict.severity, verdict.restart_advised) == ("leak", "ticket", True)
    assert "grows by 3.52 GiB an hour" in verdict.summary


def test_the_hundred_gib_of_offloaded_weights_move_by_more():
    """Growth counts in proportion to what is held."""
    assert first_firing(growths(lambda s: 100_000 + s)) is None
    assert first_firing(growths(lambda s: 100_000 + 2 * s)) is not None


def test_waiting_clients_explain_their_memory():
    """A queue of ever more connections is no leak of the server's."""
    growing = {"resident": lambda s: 3000 + s / 6}
    assert first_firing(growths(**growing)) is not None
    assert first_firing(growths(**growing, fds=lambda s: 50.0 + s)) is None


def test_what_a_young_process_allocates_is_not_counted():
    """The first ten minutes after its start are left out."""
    said = growths(lambda s: 3000 + s, end=2350, process_start_time=T)
    assert first_firing(said) is None
    said = growths(lambda s: 3000 + s, end=2600, process_start_time=T)
    assert first_firing(said) is not None


def test_a_restart_ends_it():
    """Another process starts with its memory empty."""
    looks = [seen(s, process_resident_memory_bytes=(3000 + s) * MIB) for s in range(0, 3000, 15)]
    looks += [silent(3000), silent(3015)]
    looks.append(seen(3030, process_resident_memory_bytes=3000 * MIB, process_start_time=T + 3020))
    said = judge(Detector(Settings()), looks)
    assert [verdict.state for _, (verdict,) in said[-4:]] == [
        "firing", "unknown", "unknown", "clear",
    ]  # fmt: skip


def test_while_it_slows_down_the_leak_is_not_over():
    """Between the slope that opens and half of it nothing new is said; below, it is over."""
    said = growths(lambda s: 3000 + min(s, 4000), end=3 * HOURS)
    states = [verdict.state for _, (verdict,) in said]
    order = [state for n, state in enumerate(states) if n == 0 or states[n - 1] != state]
    assert order == ["unknown", "firing", "unknown", "clear"]


def test_lost_time_begins_anew():
    """Across a step of the clock no slope is known."""
    looks = [seen(s, process_resident_memory_bytes=(3000 + s) * MIB) for s in range(0, 1500, 15)]
    looks += [
        seen(s, process_resident_memory_bytes=(3000 + s) * MIB) for s in range(90_000, 90_600, 15)
    ]
    assert first_firing(judge(Detector(Settings()), looks)) is None


def test_a_server_that_does_not_tell_is_unknown():
    """Several API server processes share no memory series."""
    assert (
        last(judge(Detector(Settings()), [seen(s) for s in range(0, 300, 15)])).state == "unknown"
    )
