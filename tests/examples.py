"""How many examples a property test tries: what it asks for in a test run, 20 times as many in a hunt.

`make test` tries the same examples each time, so that its verdict is of the code and not of the day's luck.
`make hunt` looks for new ones; what it finds is mended and pinned with @example.
"""

from typing import Any

from hypothesis import settings

TEST, HUNT = "test", "hunt"

_USUAL = 100
"""Examples where a test asks for nothing: Hypothesis' own default."""

_HUNT_FACTOR = 20

# A time limit on each generated case says more about the machine than about the code. What an earlier run
# found is in no database: another machine would not have it.
settings.register_profile(TEST, max_examples=_USUAL, deadline=None, derandomize=True, database=None)
settings.register_profile(
    HUNT, max_examples=_HUNT_FACTOR * _USUAL, deadline=None, database=None, print_blob=True
)


def examples(count: int, **others: Any) -> settings:
    """Decorate a test with this where it is to try more or fewer examples than usual; `others`: see settings."""
    return settings(max_examples=count * settings.default.max_examples // _USUAL, **others)
