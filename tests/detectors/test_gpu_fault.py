"""GPU faults: lost, Xid and ECC, by NVIDIA's advice; what heals is over."""

from dataclasses import replace

import pytest

from vllm_watch.detectors.base import HostServer, HostView
from vllm_watch.detectors.gpu_fault import GpuRoster, HostDetector, Settings
from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.signals.scales import KEPT_MAX

ENGINE = (ProcessSample(pid=7, name="VLLM::EngineCor", cmdline=("VLLM::EngineCore",)),)
NOTEBOOK = (ProcessSample(pid=8, cmdline=("python3", "-m", "ipykernel_launcher")),)


def gpu(index=0, processes=ENGINE, **fields):
    return GpuSample(index=index, uuid=f"GPU-{index}", processes=processes, **fields)


def server(name="a", *gpus, up=False):
    return HostServer(name=name, up=up, gpus=dict.fromkeys(gpus, ""))


SERVES = server(up=True)


def said(*looks, servers=(SERVES,), step=5):
    """The verdict of the last look at these GPUs, one tuple each; `servers` as they are at all of them."""
    detector = HostDetector(Settings())
    for number, gpus in enumerate(looks):
        view = HostView(at_s=number * step, gpus=gpus, holders=(), servers=servers)
        verdict = detector.update(view)
    return verdict


FINE = (gpu(), gpu(1))
FAULTS = {
    "a page fault: the program's": ((gpu(xid_errors=(31,)),), "xid", "ticket"),
    "uncontained: drain and reset": ((gpu(xid_errors=(95,)),), "xid", "page"),
    "off the bus, by its code": ((gpu(xid_errors=(79,)),), "xid", "page"),
    "off the bus, as the driver says": ((gpu(lost=True),), "gpu_lost", "page"),
    "on a GPU without an engine nobody is woken": (
        (gpu(processes=NOTEBOOK, xid_errors=(95,)),), "xid", "ticket"),
    "a note, for the record": ((gpu(xid_errors=(63,)),), "xid", "info"),
    "a note on a GPU without an engine": ((gpu(processes=NOTEBOOK, xid_errors=(63,)),), "xid", "info"),
    "a code of a newer driver": ((gpu(xid_errors=(999,)),), "xid", "ticket"),
    "more memory errors": ((gpu(ecc_uncorrected=3),), "ecc", "ticket"),
    "spare rows used up": ((gpu(remapped_rows_failed=True),), "ecc", "ticket"),
    "rows wait for a reset": ((gpu(remapped_rows_pending=True),), "ecc", "ticket"),
    "the worst of several": ((gpu(xid_errors=(45, 95, 31), ecc_uncorrected=1),), "xid", "page"),
    "a lost GPU tells more than its code": (
        (gpu(xid_errors=(79,)), gpu(1, lost=True)), "gpu_lost", "page"),
}  # fmt: skip


@pytest.mark.parametrize(("now", "cause", "severity"), FAULTS.values(), ids=FAULTS)
def test_a_fault(now, cause, severity):
    """Told at the first look that shows it; no restart is advised while the engine answers."""
    verdict = said((gpu(ecc_uncorrected=0),), now)
    assert (verdict.state, verdict.cause, verdict.severity) == ("firing", cause, severity)
    assert not verdict.restart_advised
    assert "Do:" in verdict.evidence_for[0].text


NO_FAULTS = {
    "healthy": (FINE, FINE),
    "an engine that is slowed by heat": (FINE, (gpu(throttle_reasons=("hw_thermal_slowdown",)), gpu(1))),
    "old memory errors": ((gpu(ecc_uncorrected=12),), (gpu(ecc_uncorrected=12),)),
    "counters that began anew with the driver": ((gpu(ecc_uncorrected=12),), (gpu(ecc_uncorrected=0),)),
    "slices made anew, on a GPU that stays": (
        (gpu(), GpuSample(index=0, uuid="MIG-1", mig_parent_uuid="GPU-0")), (gpu(),), (gpu(),), (gpu(),)),
    "a slice that is made again, of which other errors are counted": (
        (gpu(), GpuSample(index=0, uuid="MIG-1", mig_parent_uuid="GPU-0", ecc_uncorrected=1)), (gpu(),),
        (gpu(), GpuSample(index=0, uuid="MIG-1", mig_parent_uuid="GPU-0", ecc_uncorrected=9))),
    "a machine without GPUs": ((), (), ()),
    "a code, a minute after its end": ((gpu(xid_errors=(31,)),), *[(gpu(),)] * 14),
}  # fmt: skip


@pytest.mark.parametrize("looks", NO_FAULTS.values(), ids=NO_FAULTS)
def test_no_fault(looks):
    assert said(*looks).state == "clear"


def test_a_gpu_that_is_not_listed_must_be_missing_twice():
    """One list may be cut short; a poll that failed is none."""
    assert said(FINE, FINE[:1]).state == "unknown"
    assert said(FINE, FINE[:1], FINE).state == "clear"
    verdict = said(FINE, FINE[:1], FINE[:1])
    assert (verdict.cause, verdict.severity) == ("gpu_lost", "page")
    assert verdict.summary.startswith("GPU 1: lost")


def test_where_no_server_is_watched_nobody_is_woken():
    """The watcher's own host may have GPUs that are none of its engines'."""
    assert said(FINE, FINE[:1], FINE[:1], servers=()).severity == "ticket"


def test_all_gpus_gone_is_lost_too():
    """The list is empty where there were two."""
    assert said(FINE, (), ()).summary.startswith("GPU 0 (and 1 more GPUs): lost")


BROKEN = gpu(xid_errors=(31,))
HIT = {  # the faulty look and the servers of the host → whom it hits, whom to restart
    "on the GPU of a server that is down": ((BROKEN,), [server("a", "GPU-0")], ("a",), ("a",)),
    "it has survived": ((BROKEN,), [server("a", "GPU-0", up=True)], ("a",), ()),
    "a GPU that must be reset": ((gpu(xid_errors=(95,)),), [server("a", "GPU-0")], ("a",), ()),
    "a code of a newer driver": ((gpu(xid_errors=(999,)),), [server("a", "GPU-0")], ("a",), ()),
    "another's GPU": (
        (BROKEN, gpu(1)), [server("a", "GPU-0"), server("b", "GPU-1")], ("a",), ("a",)),
    "one of several that it runs on": (
        (gpu(), gpu(1, xid_errors=(31,))), [server("a", "GPU-0", "GPU-1"), server("b", "GPU-2")],
        ("a",), ("a",)),
    "shared by two, of whom one has survived": (
        (BROKEN,), [server("a", "GPU-0"), server("b", "GPU-0", up=True)], ("a", "b"), ("a",)),
    "nobody knows who of two runs there": ((BROKEN,), [server("a"), server("b")], (), ()),
    "the only server, whose GPU is not known": ((BROKEN,), [server("a")], ("a",), ()),
    "the only server runs on another GPU": ((BROKEN, gpu(1)), [server("a", "GPU-1")], (), ()),
    "a note on the GPU of one that is down for reasons of its own": (
        (BROKEN, gpu(1, xid_errors=(63,))), [server("a", "GPU-0"), server("b", "GPU-1")],
        ("a", "b"), ("a",)),
    "no server at all": ((BROKEN,), [], (), ()),
}  # fmt: skip


@pytest.mark.parametrize(("now", "servers", "hit", "restarted"), HIT.values(), ids=HIT)
def test_whom_it_hits_and_whose_restart_is_advised(now, servers, hit, restarted):
    """The servers on that GPU; of them those that died of their own program's error."""
    verdict = said(now, servers=tuple(servers))
    assert (verdict.concerns, verdict.restart_targets) == (hit, restarted)
    assert verdict.restart_advised is bool(restarted)
    assert (f"; used by {', '.join(hit)}" in verdict.summary) is bool(hit)


def words(verdict):
    return [each.text for each in verdict.evidence_for]


def looked(*looks, step=10, **settings):
    """What was said at each of these looks."""
    detector = HostDetector(Settings(**settings))
    return [
        detector.update(HostView(at_s=number * step, gpus=gpus, holders=(), servers=(SERVES,)))
        for number, gpus in enumerate(looks)
    ]


def test_a_code_is_told_for_a_while_after_it_was_last_reported():
    """Each for itself, and from its last report on."""
    looks = [(gpu(xid_errors=codes),) for codes in ((31, 45), (), (45,), (), (), (), ())]
    told = looked(*looks, xid_seconds=30.0)
    codes = [sorted(int(e.value) for e in each.evidence_for) for each in told]
    assert codes == [[31, 45], [31, 45], [31, 45], [31, 45], [45], [45], []]
    assert told[-1].state == "clear"


def test_memory_errors_are_told_by_how_many_came_and_for_how_long():
    """From the last that came; a counter that is not told for a look changes nothing."""
    counts = (3, 5, None, 6, 6, 6, 6, 6)
    told = looked(*[(gpu(ecc_uncorrected=each),) for each in counts], ecc_seconds=30.0)
    texts = [" ".join(words(each)) for each in told]
    assert ["2 more memory errors" in each for each in texts] == [False, True, True] + [False] * 5
    assert ["1 more memory errors" in each for each in texts] == [False] * 3 + [True] * 4 + [False]
    assert [each.state for each in told[-2:]] == ["firing", "clear"]


def test_of_many_gpus_the_worst_come_first_and_eight_are_told():
    host = [gpu(index, ecc_uncorrected=0) for index in range(20)]
    ill = [gpu(index, xid_errors=(95 if index == 17 else 31,)) for index in range(20)]
    (_, verdict) = looked(tuple(host), tuple(ill))
    assert verdict.summary.startswith("GPU 17 (and 19 more GPUs): Xid 95")
    assert [text.split()[1] for text in words(verdict)] == ["17", *map(str, range(7))]
    assert (verdict.severity, len(verdict.evidence_for)) == ("page", 8)


def test_spare_rows_that_are_used_up_tell_more_than_rows_that_wait():
    (verdict,) = looked((gpu(remapped_rows_failed=True, remapped_rows_pending=True),))
    assert len(verdict.evidence_for) == 1
    assert "used up" in verdict.summary


@pytest.mark.parametrize("processes", [(), None])
def test_who_ran_on_a_gpu_is_remembered_while_nobody_is_listed(processes):
    """A fault takes its processes with it; what ran there is what was hurt."""
    for before, severity in ((ENGINE, "page"), (NOTEBOOK, "ticket")):
        told = looked((gpu(processes=before),), (gpu(processes=processes, xid_errors=(95,)),))
        assert told[-1].severity == severity


def test_a_lost_gpu_that_comes_back_must_be_missing_twice_again():
    cut = FINE[:1]
    states = [each.state for each in looked(FINE, cut, FINE, cut, cut, FINE)]
    assert states == ["clear", "unknown", "clear", "unknown", "firing", "clear"]


def test_what_ran_beside_an_engine_does_not_make_its_gpu_one_without():
    """A notebook on the same GPU: somebody waits for the engine all the same."""
    (verdict,) = looked((gpu(processes=(*NOTEBOOK, *ENGINE), xid_errors=(95,)),))
    assert verdict.severity == "page"


def test_of_more_devices_than_are_followed_the_first_are():
    """What is new of one that is followed is learnt all the same."""
    roster, many = GpuRoster(), tuple(gpu(index) for index in range(KEPT_MAX + 1))
    roster.look(many)
    assert roster.lost == ()
    roster.look((replace(many[0], name="as it was last seen"), *many[1:]))
    roster.look(())
    assert len(roster.lost) == KEPT_MAX
    assert roster.lost[0].name == "as it was last seen"
