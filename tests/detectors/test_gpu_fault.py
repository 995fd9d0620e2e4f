"""GPU faults: lost, Xid and ECC, by NVIDIA's advice; what heals is over."""

import pytest

from tests.detectors.looks import judge, last, seen, silent
from vllm_watch.detectors.gpu_fault import Detector, Settings
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.process import ProcessSample
from vllm_watch.watch.watch import Watch

ENGINE = (ProcessSample(pid=7, name="VLLM::EngineCor", cmdline=("VLLM::EngineCore",)),)
NOTEBOOK = (ProcessSample(pid=8, cmdline=("python3", "-m", "ipykernel_launcher")),)


def gpu(index=0, processes=ENGINE, **fields):
    return GpuSample(index=index, uuid=f"GPU-{index}", processes=processes, **fields)


def said(*looks, step=5):
    """The verdict of the last look at these GPUs, one tuple each (None: not asked)."""
    return last(
        judge(Detector(Settings()), [seen(step * i, gpus=each) for i, each in enumerate(looks)])
    )


FINE = (gpu(), gpu(1))
FAULTS = {
    "a page fault: the program's": ((gpu(xid_errors=(31,)),), "xid", "ticket"),
    "uncontained: drain and reset": ((gpu(xid_errors=(95,)),), "xid", "page"),
    "off the bus, by its code": ((gpu(xid_errors=(79,)),), "xid", "page"),
    "off the bus, as the driver says": ((gpu(lost=True),), "gpu_lost", "page"),
    "on a GPU without an engine nobody is woken": (
        (gpu(processes=NOTEBOOK, xid_errors=(95,)),), "xid", "ticket"),
    "a note, for the record": ((gpu(xid_errors=(63,)),), "xid", "info"),
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
    assert "To do:" in verdict.evidence_for[0].text


NO_FAULTS = {
    "healthy": (FINE, FINE),
    "an engine that is slowed by heat": (FINE, (gpu(throttle_reasons=("hw_thermal_slowdown",)), gpu(1))),
    "old memory errors": ((gpu(ecc_uncorrected=12),), (gpu(ecc_uncorrected=12),)),
    "counters that began anew with the driver": ((gpu(ecc_uncorrected=12),), (gpu(ecc_uncorrected=0),)),
    "slices made anew, on a GPU that stays": (
        (gpu(), GpuSample(index=0, uuid="MIG-1", mig_parent_uuid="GPU-0")), (gpu(),), (gpu(),), (gpu(),)),
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
    assert said(FINE, None, None).state == "unknown"
    verdict = said(FINE, FINE[:1], FINE[:1])
    assert (verdict.cause, verdict.severity) == ("gpu_lost", "page")
    assert verdict.summary.startswith("GPU 1: lost")


def test_all_gpus_gone_is_lost_too():
    """The list is empty where there were two."""
    assert said(FINE, (), ()).summary.startswith("GPU 0 (and 1 more GPUs): lost")


def test_a_restart_is_advised_where_the_program_died_of_its_own_error():
    """... and not where the GPU must be reset."""
    for code, advised in ((31, True), (95, False), (999, False)):
        broken = (gpu(xid_errors=(code,)),)
        looks = [seen(0, gpus=FINE[:1]), seen(5, gpus=broken), silent(10, gpus=broken)]
        assert last(judge(Detector(Settings()), looks)).restart_advised is advised


def test_only_the_cause_pages():
    """A lost GPU takes its engine down: one page, two incidents that know of each other."""
    watch = Watch("x")
    events = []
    for second in range(0, 400, 5):
        gone = second >= 300
        gpus = () if gone else FINE[:1]
        events += watch.observe(silent(second, gpus=gpus) if gone else seen(second, gpus=gpus))
    open_ = {incident.kind: incident for incident in watch.incidents}
    assert {kind: each.severity for kind, each in open_.items()} == {
        "gpu_fault": "page",
        "engine_down": "ticket",
    }
    assert open_["gpu_fault"].id in open_["engine_down"].related or (
        open_["engine_down"].id in open_["gpu_fault"].related
    )
