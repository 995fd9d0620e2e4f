"""Memory that no process explains: how much may be nobody's, and what speaks against it."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import GIB, core, gpu, process
from vllm_watch.signals.holders.judge import Account
from vllm_watch.signals.holders.records import Limits

MIB = 2**20


def looked(*gpus, account=None, host_seen=True, step=100.0):
    """An account, and what it says of the last of these looks."""
    account = account or Account()
    said = None
    for number, each in enumerate(gpus):
        said = account.look(step * number, each, Limits(), host_seen=host_seen, sliced=False)
    return account, said


UNKNOWN = {
    "a lost GPU": ({"lost": True}, "are unknown"),
    "who holds it is not told": ({"processes": None}, "are unknown"),
    "how much one holds is not told": ({"processes": (core(), replace(core(2), used_bytes=None))}, "does not report every"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "words"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_summed_up(fields, words):
    """Nothing is said of it; and what is seen after it begins anew."""
    over = gpu(core(), extra_gib=5)
    account, said = looked(over, replace(over, **fields))
    assert (said.verdict, account.unaccounted_bytes) == ("unknown", None)
    assert words in said.evidence[0]
    _, said = looked(over, replace(over, **fields), over, step=150.0)
    assert (said.verdict, said.evidence[-1]) == ("unknown", "the driver may be freeing it")


def test_a_process_that_is_listed_twice_holds_its_memory_once():
    """It computes and draws: the larger number is what it holds."""
    twice = gpu(core(gib=20), core(gib=18, type="graphics"), memory_used_bytes=25 * GIB)
    assert looked(twice)[0].unaccounted_bytes == 5 * GIB
    less = replace(twice, memory_used_bytes=10 * GIB)
    assert looked(less)[0].unaccounted_bytes == 0


EXACTLY = {  # bytes that may be nobody's
    "a GPU of unknown size that one holds": ((core(),), {"memory_total_bytes": None, "memory_reserved_bytes": None}, 320 * MIB),
    "... that is listed and holds nothing": ((core(gib=0),), {"memory_total_bytes": None, "memory_reserved_bytes": None}, 320 * MIB),
    "... with what is reserved": ((core(),), {"memory_total_bytes": None}, 832 * MIB),
    "one of 100 MiB": ((core(gib=0),), {"memory_total_bytes": 100 * MIB, "memory_reserved_bytes": None}, 322 * MIB),
}  # fmt: skip


@pytest.mark.parametrize(("holders", "fields", "most"), EXACTLY.values(), ids=EXACTLY)
def test_how_much_may_be_nobodys(holders, fields, most):
    """To the byte: what is more than that is somebody's."""
    held = sum(each.used_bytes for each in holders)
    for extra, verdict in ((most, "active"), (most + 1, "unknown")):
        account, said = looked(gpu(*holders, memory_used_bytes=held + extra, **fields))
        assert (said.verdict, account.unaccounted_bytes) == (verdict, extra)


def test_what_came_back_was_not_left_behind():
    """It went, nothing could be read for a while, and it is there again with its memory."""
    other, after = process(9, "python", gib=5), gpu(core(), extra_gib=5)
    silent, back = replace(after, memory_used_bytes=None), gpu(core(), other, extra_gib=5)
    looks = (gpu(core(), other), after, silent, back, back, back)
    assert looked(*looks, host_seen=False)[1].verdict == "unknown"
    _, said = looked(*looks, host_seen=True)
    assert (said.verdict, len(said.evidence)) == ("stale", 1)


LEFT = {  # who was there, how much nobody holds then → is it shown to be left behind by them?
    "all of what one held": ((process(9, "python", gib=5),), 5, "process 9 ended"),
    "half of it": ((process(9, "python", gib=10),), 5, "process 9 ended"),
    "less than half of it": ((process(9, "python", gib=11),), 5, None),
    "what two held": ((process(11, "python", gib=3), process(9, "python", gib=3)), 5, "process 9, 11 ended"),
    "nobody went": ((), 5, None),
}  # fmt: skip


@pytest.mark.parametrize(("others", "extra", "words"), LEFT.values(), ids=LEFT)
def test_what_was_left_behind(others, extra, words):
    """Where not everybody is seen, only what holders left behind is nobody's."""
    after = gpu(core(), extra_gib=extra)
    looks = (gpu(core(), *others), after, after, after)
    _, said = looked(*looks, host_seen=False)
    assert said.verdict == ("unknown" if words is None else "stale")
    assert any((words or "other containers may hold it") in each for each in said.evidence)
    assert looked(*looks, host_seen=True)[1].verdict == "stale"


def test_the_driver_knows_better_than_we_whether_all_are_listed():
    """Its word stands against what we see of the host."""
    over = gpu(core(), extra_gib=5)
    for complete, verdict in ((True, "stale"), (False, "unknown")):
        told = replace(over, processes_complete=complete)
        assert looked(*[told] * 3, host_seen=not complete)[1].verdict == verdict


@pytest.mark.parametrize("fields", [{"type": "mps"}, {"mps": True}])
def test_clients_of_mps_share_memory(fields):
    """What one of many holders does is enough to doubt it."""
    looks = [gpu(core(), core(2, **fields), extra_gib=5)] * 4
    assert looked(*looks)[1].verdict == "unknown"


def test_what_was_left_behind_is_forgotten_when_it_was_given_back():
    """What is there later is another's."""
    other, after = process(9, "python", gib=5), gpu(core(), extra_gib=5)
    looks = (gpu(core(), other), after, after, gpu(core()), after, after, after)
    assert looked(*looks, host_seen=False)[1].verdict == "unknown"
