"""An engine beside its siblings, who are the same hardware with the same model."""

import pytest

from tests.detectors.made_up_engine import Engine, view
from vllm_watch.detectors.collapse_siblings import SIBLINGS_MAX
from vllm_watch.detectors.throughput_collapse import Detector, Settings

FRESH = {"running": 40.0, "kv": 0.3}
LOOK_S = 5.0


def said(count, slow, *, from_s=0.0, until_s=2400.0, waiting=0.0):
    """Verdicts on engine 0 of so many at every look; it is `slow` times slower from then on."""
    detector, engines, verdicts = Detector(Settings()), [Engine(str(n)) for n in range(count)], []
    for look in range(int(until_s / LOOK_S)):
        now = slow if look * LOOK_S >= from_s else 1.0
        samples = [
            each.run(LOOK_S, **FRESH, **({"slow": 1.0} if n else {"slow": now, "waiting": waiting}))
            for n, each in enumerate(engines)
        ]
        seen = detector.update(view((look + 1) * LOOK_S, *samples))
        assert all(each.state != "firing" for each in seen[1:])
        verdicts.append(seen[0])
    return verdicts


@pytest.mark.parametrize("from_s", [0.0, 900.0])
def test_one_of_eight_that_is_a_fifth_slower_is_a_ticket(from_s):
    """Were it so from the first look or not; its own past would not have told."""
    verdicts = said(8, 1.2, from_s=from_s)
    found = next(n * LOOK_S for n, each in enumerate(verdicts) if each.state == "firing")
    assert found - from_s <= 900.0
    last = verdicts[-1]
    assert (last.cause, last.severity, last.restart_advised) == ("slow_engine", "ticket", False)
    assert "7 sibling engines" in last.summary


@pytest.mark.parametrize(("waiting", "severity"), [(0.0, "ticket"), (3.0, "page")])
def test_one_that_takes_twice_as_long_from_the_first_scrape_pages_where_requests_wait(
    waiting, severity
):
    """Ranks whose tenants differ are as slow for good, and nobody waits."""
    last = said(4, 2.0, until_s=1200.0, waiting=waiting)[-1]
    assert (last.state, last.severity, last.restart_advised) == ("firing", severity, False)


@pytest.mark.parametrize(("count", "slow"), [(8, 1.05), (2, 1.15), (2, 1.5), (1, 2.0)])
def test_what_is_no_loss_or_cannot_be_told(count, slow):
    """A twentieth; one of two, of whom either may be the slow one; and one without siblings."""
    assert all(each.state != "firing" for each in said(count, slow, until_s=1500.0))


def test_one_of_many_is_compared_with_some_of_all_nodes():
    """As many questions for each rank of 64 as for one of nine, and no look grows with their square."""
    last = said(64, 1.5, until_s=900.0)[-1]
    assert (last.state, last.cause) == ("firing", "slow_engine")
    assert f"{SIBLINGS_MAX} sibling engines" in last.summary
