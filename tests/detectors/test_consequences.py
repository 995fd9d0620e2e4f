"""How loud a finding is, and why it is not louder."""

from math import log

import pytest

from vllm_watch.detectors.consequences import (
    FORMER,
    OWN_PAST,
    SIBLINGS,
    Shift,
    explained,
    fulfilled,
)  # fmt: skip

SLOW = {
    "yardstick": OWN_PAST,
    "log_ratio": log(2.0),
    "seconds": 150.0,
    "harmed": True,
    "curable": True,
}
CASES = {
    "all of it": (SLOW, ["page", "restart"]),
    "too little": (SLOW | {"log_ratio": log(1.6)}, []),
    "too short for a page": (SLOW | {"seconds": 30.0}, []),
    "too short for a restart": (SLOW | {"seconds": 60.0}, ["page"]),
    "nobody feels it": (SLOW | {"harmed": False}, []),
    "a cause outside": (SLOW | {"curable": False}, ["page"]),
    "beside siblings, no restart": (SLOW | {"yardstick": SIBLINGS, "seconds": 600.0}, ["page"]),
    "beside siblings, where nobody waits": (SLOW | {"yardstick": SIBLINGS, "seconds": 600.0, "harmed": False}, []),
    "beside the process before": (SLOW | {"yardstick": FORMER, "log_ratio": log(3.5), "seconds": 200.0}, ["page"]),
}  # fmt: skip


@pytest.mark.parametrize(("shift", "reached"), CASES.values(), ids=CASES)
def test_what_follows_from_a_shift(shift, reached):
    assert fulfilled(Shift(**shift)) == reached


def test_a_mean_beside_siblings_is_called_a_mean():
    """It is smoothed over that time, and not held for it."""
    shift = Shift(**SLOW | {"yardstick": SIBLINGS, "seconds": 600.0})
    assert explained(shift, fulfilled(shift))[0].text == "steps take 2 times as long as those of the other engines on average over 10 min"  # fmt: skip
