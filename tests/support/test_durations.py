"""The units that fit."""

import pytest

from vllm_watch.support.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (89.6, "90 s"),
        (90.0, "2 min"),
        (3570.0, "1 h"),
        (7050.0, "1 h 58 min"),
        (7200.0, "2 h"),
    ],
)
def test_the_largest_units_that_count(seconds: float, said: str) -> None:
    assert in_words(seconds) == said
