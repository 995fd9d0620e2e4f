"""What the tests of detectors have in common: each cause that a detector gives must have words."""

from collections.abc import Iterator
from typing import Any

import pytest

from vllm_watch.detectors.base import FIRING, Verdict
from vllm_watch.story.kinds import KINDS, STORIES


@pytest.fixture(scope="module", autouse=True)
def causes_without_words() -> Iterator[None]:
    """Hear every verdict that is made in a module's tests; a cause that no story knows fails it."""
    unknown: set[tuple[str, str]] = set()
    make = Verdict.__init__

    def heard(self: Verdict, *values: Any, **named: Any) -> None:
        make(self, *values, **named)
        told = (*STORIES[self.kind].causes, "unknown") if self.kind in KINDS else (self.cause,)
        if self.state == FIRING and self.cause not in told:
            unknown.add((self.kind, self.cause))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Verdict, "__init__", heard)
        yield
    assert unknown == set(), "these causes have no words in vllm_watch/story"
