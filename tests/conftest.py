"""What holds for all tests."""

import pytest
from hypothesis import settings

from tests.examples import TEST

settings.load_profile(TEST)  # make hunt takes another, with --hypothesis-profile

# These wait for real time to pass, a minute each: begun first, they cost none.
WAITING = ("test_canary_live.py", "test_restarts.py", "test_fleet_live.py", "test_gpus_reclaim.py",
           "test_preflight.py", "test_page_live.py", "test_crash.py")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in WAITING)
