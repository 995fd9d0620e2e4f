"""Stale GPU memory becomes one ticket that names the holder and the engine it hurts."""

import pytest

from tests.detectors.looks import T
from vllm_watch.detectors.base import HostServer, HostView
from vllm_watch.detectors.stale_vram import HostDetector, Settings
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals.holders.gpu_users import GpuUsers, Server
from vllm_watch.signals.holders.judge import HolderJudge

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


def last(at, servers, seconds, settings=None):
    """The verdict of the last look: every 5 s at what `at(second)` gives; `servers(second)`: name → its start, or None."""
    settings = settings or Settings()
    judge, users, detector = HolderJudge(settings.limits()), GpuUsers(), HostDetector(settings)
    for second in range(0, seconds, 5):
        starts = servers(second)
        served = any(each is not None for each in starts.values())
        holders = judge.look(float(second), T + second, at(second), served=served)
        places = users.look(holders, {n: Server(start_time=s) for n, s in starts.items()})
        view = HostView(
            at_s=float(second), gpus=at(second), holders=holders,
            servers=tuple(
                HostServer(name=name, up=start is not None, gpus=places[name].gpus, workers=places[name].workers)
                for name, start in starts.items()
            ),
        )  # fmt: skip
        verdict = detector.update(view)
    return verdict


def story(seconds, settings=None):
    """The API server is killed at 60 s; its successor comes at 90 s and answers at 120 s."""

    def at(second):
        if second < 60:
            return (gpu(core(99, 98)),)
        old = core(99, 1)
        return (gpu(old) if second < 90 else gpu(old, core(200, 199, start=T + 90)),)

    def servers(second):
        return {"a": T - 80_060 if second < 60 else T + 80 if second >= 120 else None}

    return last(at, servers, seconds, settings)


def test_an_orphan_is_named_with_the_engine_that_it_hurts():
    """Who, where, how much; why; what to do; and no restart, for it would not cure it."""
    verdict = story(300)
    assert (verdict.state, verdict.cause, verdict.severity) == (
        "firing",
        "orphaned_worker",
        "ticket",
    )
    assert not verdict.restart_advised
    assert verdict.summary == (
        "30.0 GiB of GPU 0 are held by an orphaned worker (VLLM::EngineCore, process 99, vllm.service), "
        "where a (VLLM::EngineCore, process 200) runs"
    )
    assert "its parent, process 98, died" in verdict.evidence_for[0].text
    assert "kill 99" in verdict.evidence_for[0].text
    assert verdict.evidence_for[0].value == 30 * GIB


def test_it_is_told_a_minute_after_the_parent_died():
    """Sooner it may be ending."""
    assert story(115).state == "clear"
    assert story(130).state == "firing"


def test_little_memory_keeps_no_engine_from_starting():
    """Below a limit there is no ticket; the holder is stale all the same."""
    settings = Settings(bytes_min=31 * GIB)
    assert story(300, settings).state == "clear"


def no_servers(second):
    return {}


def test_without_gpus_nothing_is_known():
    """A list without a GPU is not clear."""
    assert last(lambda _: (), no_servers, 10).state == "unknown"


def test_who_holds_the_memory_may_be_hidden():
    """A list that NVML does not give is unknown."""
    blind = GpuSample(index=0, uuid="GPU-0", memory_used_bytes=30 * GIB)
    assert last(lambda _: (blind,), no_servers, 5).state == "unknown"


STARTED = {"a": T - 1000, "b": T - 5010}
WHERE = {  # GPU of what is stale → whom it concerns, and what is said of them
    0: (("a",), ", where a (VLLM::EngineCore, process 1) runs"),
    1: (("b",), ", where b (VLLM::EngineCore, process 2) runs"),
    2: ((), ")"),
}


@pytest.mark.parametrize(("index", "said"), WHERE.items(), ids=["a's", "b's", "nobody's"])
def test_a_host_with_two_servers(index, said):
    """What is stale concerns the servers on that GPU, and no others; on nobody's it is told all the same."""
    zombie = core(9, 1, state="Z")
    a = core(1, 10, start=T - 990, cgroup="/system.slice/a.service")
    b = core(2, 20, start=T - 5000, cgroup="/system.slice/b.service")
    gpus = tuple(
        gpu(*own, *([zombie] if number == index else []), index=number)
        for number, own in enumerate(([a], [b], []))
    )
    verdict = last(lambda _: gpus, lambda _: STARTED, 100)
    concerns, words = said
    assert (verdict.state, verdict.concerns) == ("firing", concerns)
    assert verdict.summary.endswith(words)


def test_the_only_server_is_concerned_though_its_gpu_is_not_known():
    """Its processes are in a container of their own, say; of two nobody is."""
    zombie = (gpu(core(9, 1, state="Z")),)
    assert last(lambda _: zombie, lambda _: {"a": T - 1000}, 100).concerns == ("a",)
    assert last(lambda _: zombie, lambda _: STARTED, 100).concerns == ()


def test_a_group_of_workers_is_one_ticket():
    """Four ranks, each on its GPU."""

    def gpus(second):
        parent = 98 if second < 20 else 1
        return tuple(gpu(core(100 + i, parent), index=i) for i in range(4))

    verdict = last(gpus, lambda second: {"a": T - 80_060 if second < 20 else None}, 120)
    assert "120.0 GiB in all" in verdict.summary
    assert len(verdict.evidence_for) == 4
    assert verdict.concerns == ("a",)


@pytest.mark.parametrize(
    ("count", "words"), [(1, ""), (2, "; 60.0 GiB in all"), (3, "; 90.0 GiB in all")]
)
def test_all_that_is_stale_is_summed_up(count, words):
    """The largest is named; of several it is said what they hold together."""

    def at(second):
        return tuple(gpu(core(99 + i, 98 if second < 60 else 1), index=i) for i in range(count))

    verdict = last(at, lambda second: {"a": T - 80_060 if second < 60 else None}, 300)
    assert verdict.state == "firing"
    assert ("in all" in verdict.summary) is bool(words)
    assert words in verdict.summary
