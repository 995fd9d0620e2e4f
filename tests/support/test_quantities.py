"""Counts and durations in words: one request runs, two run; and the units that fit."""

import pytest

from vllm_watch.support.quantities import cores, in_words, requests


@pytest.mark.parametrize(
    ("count", "said"),
    [(0.0, "0 requests"), (1.0, "1 request"), (1.2, "1 request"), (2.0, "2 requests")],
)
def test_one_is_singular(count: float, said: str) -> None:
    assert requests(count) == said


@pytest.mark.parametrize(("count", "said"), [(0.96, "1 CPU core"), (2.0, "2.0 CPU cores")])
def test_one_core_is_singular(count: float, said: str) -> None:
    assert cores(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (89.6, "90 s"),
        (90.0, "1 min 30 s"),
        (7050.0, "1 h 57 min"),
        (7230.0, "2 h"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_the_largest_units_that_count(seconds: float, said: str) -> None:
    assert in_words(seconds) == said
