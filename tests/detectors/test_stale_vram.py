"""Stale GPU memory becomes one ticket that names the holder and the engine it hurts."""

import pytest

from tests.detectors.looks import T, judge, last, seen, silent
from vllm_watch.detectors.stale_vram import Detector, Settings
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.process import ProcessSample

GIB = 2**30


def core(pid, ppid, *, gib=30, start=T - 80_000, **fields):
    known = {
        "state": "S",
        "sm_utilization_ratio": 0.0,
        "cgroup": "/system.slice/vllm.service",
        "uid": 1001,
    }
    return ProcessSample(
        pid=pid, name="VLLM::EngineCor", cmdline=("VLLM::EngineCore",), ppid=ppid,
        used_bytes=gib * GIB, create_time=start, cpu_seconds=1.0, type="compute", **(known | fields),
    )  # fmt: skip


def gpu(*processes, index=0):
    used = sum(p.used_bytes or 0 for p in processes)
    return GpuSample(
        index=index, uuid=f"GPU-{index}", memory_total_bytes=80 * GIB, memory_used_bytes=used,
        processes=processes,
    )  # fmt: skip


def story(seconds, settings=None):
    """The API server is killed at 60 s; its successor comes at 90 s and answers at 120 s."""
    looks = []
    for second in range(0, seconds, 5):
        if second < 60:
            looks.append(seen(second, gpus=(gpu(core(99, 98)),), process_start_time=T - 80_060))
            continue
        old = core(99, 1)
        gpus = (gpu(old) if second < 90 else gpu(old, core(200, 199, start=T + 90)),)
        up = second >= 120
        looks.append(
            seen(second, gpus=gpus, process_start_time=T + 80) if up else silent(second, gpus=gpus)
        )
    return judge(Detector(settings or Settings()), looks)


def test_an_orphan_is_named_with_the_engine_that_it_hurts():
    """Who, where, how much; why; what to do; and no restart, for it would not cure it."""
    verdict = last(story(300))
    assert (verdict.state, verdict.cause, verdict.severity) == (
        "firing",
        "orphaned_worker",
        "ticket",
    )
    assert not verdict.restart_advised
    assert verdict.summary == (
        "30.0 GiB of GPU 0 are held by an orphaned worker (VLLM::EngineCore, process 99, vllm.service), "
        "where this engine runs (VLLM::EngineCore, process 200)"
    )
    assert "its parent, process 98, died" in verdict.evidence_for[0].text
    assert "kill 99" in verdict.evidence_for[0].text
    assert verdict.evidence_for[0].value == 30 * GIB


def test_it_is_told_a_minute_after_the_parent_died():
    """Sooner it may be ending."""
    assert last(story(115)).state == "clear"
    assert last(story(130)).state == "firing"


def test_little_memory_keeps_no_engine_from_starting():
    """Below a limit there is no ticket; the holder is stale all the same."""
    settings = Settings(bytes_min=31 * GIB)
    assert last(story(300, settings)).state == "clear"


def test_without_gpus_nothing_is_known():
    """No GPU, no answer, or nobody asked: not clear."""
    looks = [seen(0), seen(5, gpus=()), seen(10, gpus=None)]
    said = judge(Detector(Settings()), looks)
    assert {verdict.state for _, verdicts in said for verdict in verdicts} == {"unknown"}


def test_who_holds_the_memory_may_be_hidden():
    """A list that NVML does not give is unknown."""
    blind = GpuSample(index=0, uuid="GPU-0", memory_used_bytes=30 * GIB)
    assert last(judge(Detector(Settings()), [seen(0, gpus=(blind,))])).state == "unknown"


@pytest.mark.parametrize(
    ("where", "state"),
    [("ours", "firing"), ("nobody's", "firing"), ("another engine's", "clear")],
)
def test_a_host_with_two_engines(where, state):
    """What is stale on a GPU of another engine's is that engine's ticket."""
    zombie = core(9, 1, state="Z")
    ours = core(1, 10, start=T - 990, cgroup="/system.slice/a.service")
    theirs = core(2, 20, start=T - 5000, cgroup="/system.slice/b.service")

    def gpus():
        return (
            gpu(ours, *([zombie] if where == "ours" else []), index=0),
            gpu(theirs, *([zombie] if where == "another engine's" else []), index=1),
            gpu(*([zombie] if where == "nobody's" else []), index=2),
        )

    looks = [seen(s, gpus=gpus(), process_start_time=T - 1000) for s in range(0, 100, 5)]
    assert last(judge(Detector(Settings()), looks)).state == state


def test_a_group_of_workers_is_one_ticket():
    """Four ranks, each on its GPU."""

    def gpus(second):
        parent = 98 if second < 20 else 1
        return tuple(gpu(core(100 + i, parent), index=i) for i in range(4))

    looks = [seen(s, gpus=gpus(s)) if s < 20 else silent(s, gpus=gpus(s)) for s in range(0, 120, 5)]
    verdict = last(judge(Detector(Settings()), looks))
    assert "120.0 GiB in all" in verdict.summary
    assert len(verdict.evidence_for) == 4
