"""The units that fit."""

import pytest

from vllm_watch.support.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (89.6, "90 s"),
        (90.0, "1 min 30 s"),
        (119.6, "2 min"),
        (1800.0, "30 min"),
        (7050.0, "1 h 57 min"),
        (7230.0, "2 h"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_the_largest_units_that_count(seconds: float, said: str) -> None:
    assert in_words(seconds) == said
