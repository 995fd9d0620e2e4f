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
    assert spoke.text == "warning: 1.4 times as long beside its own past"
    assert "1.7 times as long, 40 s of work like that, users who get less" in lacks.text


def test_the_loudest_lacks_nothing():
    shift = Shift(**SLOW)
    assert [each.name for each in explained(shift, fulfilled(shift))] == ["rule"]
