"""One request runs, two run."""

import pytest

from vllm_watch.support.counts import cores, requests


@pytest.mark.parametrize(
    ("count", "said"),
    [(0.0, "0 requests"), (1.0, "1 request"), (1.2, "1 request"), (2.0, "2 requests")],
)
def test_one_is_singular(count: float, said: str) -> None:
    assert requests(count) == said


@pytest.mark.parametrize(("count", "said"), [(0.96, "1 CPU core"), (2.0, "2.0 CPU cores")])
def test_one_core_is_singular(count: float, said: str) -> None:
    assert cores(count) == said
