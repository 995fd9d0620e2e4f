"""Xid codes: what NVIDIA advises, and how long one stands."""

import pytest

from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.signals import xid
from vllm_watch.signals.xid import RecentXids

BUCKETS = {
    # NVIDIA's immediate action, of the codes that engines meet most
    xid.APPLICATION: (13, 31, 32, 69, 94),
    xid.RESET: (46, 48, 62, 64, 95, 109, 119, 120, 140, 143),
    xid.REBOOT: (79,),
    xid.LINK: (74, 144, 150),
    xid.NOTE: (43, 45, 63, 92, 154),
}


@pytest.mark.parametrize(("action", "codes"), BUCKETS.items())
def test_the_advice_is_nvidias(action, codes):
    """By the published catalogue; some of its buckets are one of ours."""
    assert {xid.lookup(code).action for code in codes} == {action}


def test_a_code_that_nobody_knows_is_said_to_be():
    """A newer driver's: not guessed, and no reason to restart anything."""
    assert xid.lookup(999).text == "not in our table of codes"
    assert not xid.needs_hands(999)


HELD = (ProcessSample(pid=7),)


def standing(code, after_s, processes=HELD, **fields):
    """The codes that are shown so long after one was told."""
    watch = RecentXids()
    watch.look(0.0, reading((code,), HELD))
    return watch.look(after_s, reading((), processes, **fields)).gpus[0].xid_errors


def reading(codes, processes, **fields):
    gpu = GpuSample(index=0, uuid="a", xid_errors=codes, processes=processes, **fields)
    return GpuReading(status="ok", gpus=(gpu,))


def test_a_code_stands_until_every_target_has_looked():
    """An application's error for a minute."""
    assert standing(31, 59.0) == (31,)
    assert standing(31, 61.0) == ()


def test_one_that_asks_for_a_reset_stands_until_the_gpu_is_empty():
    """Or for a day; a container that sees nobody does not take that for an empty GPU."""
    assert standing(95, 3600.0) == (95,)
    assert standing(95, 3600.0, ()) == ()
    assert standing(95, 3600.0, (), processes_complete=False) == (95,)
    assert standing(95, 90_000.0) == ()


def test_a_poll_that_failed_says_nothing_of_codes():
    """What stands, stands on."""
    watch = RecentXids()
    watch.look(0.0, reading((95,), HELD))
    hung = GpuReading(status="hung")
    assert watch.look(5.0, hung) is hung
    assert watch.look(10.0, reading((), HELD)).gpus[0].xid_errors == (95,)
