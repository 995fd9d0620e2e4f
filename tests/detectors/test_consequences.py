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
    "beside siblings, where nobody waits": (
        SLOW | {"yardstick": SIBLINGS, "seconds": 600.0, "harmed": False},
        [],
    ),
    "beside the process before": (
        SLOW | {"yardstick": FORMER, "log_ratio": log(3.5), "seconds": 200.0},
        ["page"],
    ),
}


@pytest.mark.parametrize(("shift", "reached"), CASES.values(), ids=CASES)
def test_what_follows_from_a_shift(shift, reached):
    assert fulfilled(Shift(**shift)) == reached


def test_a_ticket_names_what_a_page_lacks():
    shift = Shift(OWN_PAST, log(1.4), 0.0, harmed=False)
    spoke, lacks = explained(shift, fulfilled(shift))
    assert (spoke.name, spoke.value, lacks.name, lacks.value) == (
        "rule",
        "ticket",
        "next_rule",
        "page",
    )
    assert spoke.text == "steps take 1.4 times as long as usual"
    assert lacks.text.startswith(
        "becomes critical when steps take 1.7 times as long and it has lasted 40 s and users wait longer"
    )


def test_the_loudest_lacks_nothing():
    """For all that time steps took at least what the rule asks for."""
    shift = Shift(**SLOW)
    (spoke,) = explained(shift, fulfilled(shift))
    assert spoke.text == "steps have taken at least 1.7 times as long as usual for 2 min 30 s"


def test_a_restart_that_cannot_help_is_no_next_rule():
    shift = Shift(**SLOW | {"curable": False})
    reached = fulfilled(shift)
    assert [each.value for each in explained(shift, reached)] == ["page", "restart"]
    assert [each.value for each in explained(shift, reached, curable=False)] == ["page"]


def test_a_mean_beside_siblings_is_called_a_mean():
    """It is smoothed over that time, and not held for it."""
    shift = Shift(**SLOW | {"yardstick": SIBLINGS, "seconds": 600.0})
    assert explained(shift, fulfilled(shift))[0].text == "steps take 2 times as long as those of the other engines on average over 10 min"  # fmt: skip
