"""Stale GPU memory becomes one ticket that names the holder and the engine it hurts."""

from dataclasses import replace

import pytest

from tests.detectors.looks import T
from vllm_watch.detectors.base import HostServer, HostView
from vllm_watch.detectors.stale_vram import HostDetector, Settings
from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.signals.holders.gpu_users import GpuUsers, Server
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.holders.records import GpuHolders, Holder, Judged
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.signals.state import sleep_level
from vllm_watch.watch.host_watch import HostWatch, ServerScrape

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
        answering = [frozenset() for each in starts.values() if each is not None]
        holders = judge.look(float(second), T + second, at(second), answering=answering)
        places = users.look(holders, {n: Server(start_time=s) for n, s in starts.items()})
        view = HostView(
            at_s=float(second), gpus=at(second), holders=holders,
            servers=tuple(
                HostServer(name=name, up=start is not None, gpus=places[name])
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
        "an orphaned worker (VLLM::EngineCore, PID 99, vllm.service) holds 30.0 GiB of GPU 0, "
        "which a (VLLM::EngineCore, process 200) uses"
    )
    assert "its parent, process 98, died" in verdict.evidence_for[0].text
    assert "kill 99" in verdict.evidence_for[0].text
    assert verdict.evidence_for[0].value == 30 * GIB


def test_of_a_server_that_is_down_nothing_is_said_to_run():
    """Its worker may be the very process that is stale."""
    servers = {0: T - 80_060, 60: None}
    verdict = last(
        lambda second: (gpu(core(99, 98 if second < 60 else 1)),),
        lambda second: {"a": servers[0 if second < 60 else 60]},
        300,
    )
    assert (verdict.cause, verdict.concerns) == ("orphaned_worker", ("a",))
    assert verdict.summary.startswith(
        "an orphaned worker (VLLM::EngineCore, PID 99, vllm.service) holds"
    )
    assert verdict.summary.endswith(", which a used when last scraped")


def test_little_memory_keeps_no_engine_from_starting():
    """Below a limit there is no ticket; the holder is stale all the same."""
    settings = Settings(bytes_min=31 * GIB)
    assert story(300, settings).state == "clear"


def no_servers(second):
    return {}


def test_without_gpus_nothing_is_known():
    """A list without a GPU is not clear."""
    assert last(lambda _: (), no_servers, 10).state == "unknown"


STARTED = {"a": T - 1000, "b": T - 5010}
WHERE = {  # GPU of what is stale → whom it concerns, and what is said of them
    0: (("a",), ", which a (VLLM::EngineCore, process 1) uses"),
    1: (("b",), ", which b (VLLM::EngineCore, process 2) uses"),
    2: ((), " of GPU 2"),
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


FINE = Judged(verdict="active")


def orphan(pid=99, *, gib=30, age=None, place=None, remedy="kill it", **fields):
    used = None if gib is None else gib * GIB
    judged = Judged(
        verdict="stale", reason="orphaned_worker", evidence=("nobody", "waits"), remedy=remedy
    )
    process = ProcessSample(pid=pid, used_bytes=used, **fields)
    return Holder(process=process, judged=judged, age_seconds=age, place=place)


def held(*holders, index=0, uuid=None, parent=None, unaccounted=FINE, gib=0, hidden=False):
    sample = GpuSample(index=index, uuid=uuid or f"GPU-{index}", mig_parent_uuid=parent)
    return GpuHolders(
        gpu=sample, holders=None if hidden else holders, unaccounted_bytes=gib * GIB, unaccounted=unaccounted
    )  # fmt: skip


def told(*gpus):
    view = HostView(at_s=0.0, gpus=tuple(each.gpu for each in gpus), holders=gpus)
    return HostDetector(Settings()).update(view)


KNOWN = {
    "nobody": ((held(), held(index=1)), "clear"),
    "hidden on one of two": ((held(), held(index=1, hidden=True)), "unknown"),
    "hidden on one, and stale on the other": (
        (held(hidden=True), held(orphan(), index=1)),
        "firing",
    ),
}


@pytest.mark.parametrize(("gpus", "state"), KNOWN.values(), ids=KNOWN)
def test_all_gpus_must_be_seen_into_to_be_clear(gpus, state):
    assert told(*gpus).state == state


ONCE = {
    "on a GPU and on its slice": ((held(orphan()), held(orphan(), uuid="MIG-1", parent="GPU-0")), 1),
    "on two slices of one GPU": (
        (held(orphan(), uuid="MIG-1", parent="GPU-0"), held(orphan(), uuid="MIG-2", parent="GPU-0")), 1),
    "on two GPUs": ((held(orphan()), held(orphan(), index=1)), 2),
    "two on one GPU": ((held(orphan(), orphan(100)),), 2),
}  # fmt: skip


@pytest.mark.parametrize(("gpus", "count"), ONCE.values(), ids=ONCE)
def test_a_process_is_counted_once_on_each_gpu(gpus, count):
    verdict = told(*gpus)
    assert len(verdict.evidence_for) == count
    assert ("; 60.0 GiB in all" in verdict.summary) is (count == 2)


def test_the_largest_come_first_and_eight_are_named():
    """Of equal ones that of the first GPU; what is not known to be large is told last."""
    sizes = (3, 9, None, 9, 1, 2, 4, 5, 6)
    verdict = told(*(held(orphan(n, gib=gib), index=n) for n, gib in enumerate(sizes)))
    assert [each.value // GIB for each in verdict.evidence_for] == [9, 9, 6, 5, 4, 3, 2, 1]
    assert verdict.summary.startswith("an orphaned worker (PID 1) holds 9.0 GiB of GPU 1")
    assert "39.0 GiB in all" in verdict.summary


def test_a_holder_of_which_the_driver_tells_no_size_is_told():
    verdict = told(held(orphan(gib=None)))
    assert (verdict.state, verdict.evidence_for[0].value) == ("firing", 0)


WHO = {
    "(python3, PID 99, user 7)": {
        "cmdline": ("/usr/bin/python3", "serve.py"),
        "name": "py",
        "uid": 7,
    },
    "(serve, PID 99, user 0)": {"name": "serve", "uid": 0},
    "(serve, PID 99, pod a)": {"name": "serve", "uid": 7, "place": "pod a"},
    "(PID 99)": {},
}


@pytest.mark.parametrize(("words", "fields"), WHO.items(), ids=WHO)
def test_by_what_a_holder_is_named(words, fields):
    """Its program, its number, and where it is or whose."""
    assert told(held(orphan(**fields))).summary.startswith(f"an orphaned worker {words} holds ")


TEXTS = {
    "GPU 0: PID 99: nobody; waits. Do: kill it": held(orphan()),
    "GPU 0: PID 99, 5 min old: nobody; waits. Do: kill it": held(orphan(age=300.0)),
    "GPU 0: PID 99: nobody; waits": held(orphan(remedy=None)),
    "GPU 0: nobody has it. Do: reset it": held(
        gib=5, unaccounted=Judged(verdict="stale", reason="unaccounted", evidence=("nobody has it",), remedy="reset it")
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "gpu"), TEXTS.items(), ids=TEXTS)
def test_why_it_is_called_stale_and_what_to_do(text, gpu):
    """Each with its kind, and what is to be hoped for: nothing held."""
    (evidence,) = told(gpu).evidence_for
    assert evidence.text == text
    assert evidence.name == ("unaccounted" if gpu.holders == () else "orphaned_worker")
    assert (evidence.unit, evidence.expected) == ("bytes", 0)


def asleep(
    held, *, from_second=300, seconds=600, level=1, others=(), watched_from=0, total=80 * GIB
):
    """The last verdict on a host whose one engine goes to sleep at `from_second` and holds `held(second)` GiB."""
    host, events = HostWatch("h"), []
    for second in range(watched_from, seconds, 5):
        slept = second >= from_second
        states = {"awake": float(not slept), "weights_offloaded": float(slept and level == 1)}
        engine = EngineSignals(
            engine="0",
            state="idle",
            sleeping=slept,
            sleep_level=sleep_level(states, sleeping=slept),
        )
        signals = TargetSignals(
            target="a", t=T + second, up=True, outcome="ok", state="idle", state_text="", engines={"0": engine},
            process_start_time=T - 80_060,
        )  # fmt: skip
        seen = (gpu(core(99, 98, gib=held(second)), *others), gpu(core(100, 98, gib=held(second)), index=1))  # fmt: skip
        seen = tuple(replace(each, memory_total_bytes=total) for each in seen)
        events += host.look(T + second, float(second), seen, {"a": ServerScrape.of(signals, ())})
    return host, [each for each in events if each.incident.kind == "stale_vram"]


def test_an_engine_that_sleeps_and_keeps_its_memory_is_a_ticket():
    """Two GPUs of 75 GiB each: one ticket, whose restart nobody advises."""
    host, (opened,) = asleep(lambda _: 75)
    one = opened.incident
    assert (one.cause, one.severity, one.restart_advised) == ("sleeping_engine", "ticket", False)
    assert one.summary.startswith("an engine that sleeps (VLLM::EngineCore, PID ")  # fmt: skip
    assert "150.0 GiB in all" in one.summary
    assert one.concerns == ("a",)
    assert opened.t >= T + 300 + 120
    assert host.incidents[0].firing


@pytest.mark.parametrize(
    "healthy",
    [
        {
            "held": lambda second: 75 if second < 310 else 5
        },  # it gave all but contexts and graphs back
        {"held": lambda _: 75, "from_second": 700},  # awake and idle
        {"held": lambda _: 75, "seconds": 400},  # asleep for less than two minutes
        {"held": lambda _: 75, "level": 0},  # level 0 only pauses its scheduler
        {"held": lambda _: 3, "watched_from": 400},  # asleep since before the watcher began
        {"held": lambda _: 75, "watched_from": 400, "total": None},  # ... of a GPU of unknown size
    ],
)
def test_a_sleep_as_it_should_be_is_none(healthy):
    assert asleep(**healthy)[1] == []


def test_a_small_engine_is_measured_by_what_it_held_awake():
    """It asked for a third of the GPU, and keeps that."""
    assert [each.incident.cause for each in asleep(lambda _: 26)[1]] == ["sleeping_engine"]


def test_one_that_was_never_seen_awake_is_measured_by_its_gpu():
    """It has slept since before the watcher began, and keeps nearly all of the GPU."""
    (opened,) = asleep(lambda _: 75, watched_from=400)[1]
    assert "holds 75.0 GiB of 80.0 GiB" in opened.incident.evidence_for[0].text


def test_of_several_processes_of_one_that_sleeps_the_largest_is_named():
    others = core(101, 98, gib=2), replace(core(102, 98), used_bytes=None)
    (opened,) = asleep(lambda _: 70, others=others)[1]
    assert "PID 99," in opened.incident.summary


def test_it_is_over_when_it_wakes_or_gives_the_memory_back():
    events = asleep(lambda second: 75 if second < 600 else 4, seconds=900)[1]
    assert [each.event for each in events] == ["opened", "updated", "resolved"]
