"""One listing of the host's processes serves all who ask at about the same time."""

import pytest

from tests.sources.test_processes import Row
from vllm_watch.sources.processes import FRESH_SECONDS, ProcessListing


@pytest.mark.parametrize(
    ("later_s", "seen"), [(0.0, {1}), (FRESH_SECONDS, {1}), (FRESH_SECONDS + 0.1, {1, 2})]
)
def test_a_listing_serves_while_it_is_fresh(tmp_path, later_s, seen):
    """Who asks later sees what began meanwhile."""
    listing = ProcessListing(tmp_path)
    Row(1, "init").write(tmp_path)
    assert set(listing.processes(100.0)) == {1}
    Row(2, "vllm").write(tmp_path)
    assert set(listing.processes(100.0 + later_s)) == seen


def test_a_tree_that_cannot_be_read_has_no_processes(tmp_path):
    """It may be hidden, or no procfs at all."""
    assert ProcessListing(tmp_path / "none").processes(0.0) == {}
