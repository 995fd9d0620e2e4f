"""What is stale, by which reason, and from when on."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import (
    GIB,
    SESSION,
    T,
    core,
    gpu,
    kernel,
    look_on,
    only,
    process,
    verdicts,
    works,
)
from vllm_watch.signals.holders.judge import HolderJudge

ORPHAN = ("stale", "orphaned_worker")


def reparented(at=60, to=1, **fields):
    """A core whose parent dies at that second."""
    return lambda second: gpu(core(ppid=4700 if second < at else to, **fields))


ORPHANS = {
    "its parent died, process 1 has it": reparented(),
    "it spins on a core": lambda s: gpu(
        works(core(ppid=4700 if s < 60 else 1, state="R"), s, cpu=1)
    ),
    "the load of just before is told just after": lambda s: gpu(
        core(ppid=4700 if s < 60 else 1, sm_utilization_ratio=0.9 if s < 65 else 0.0)
    ),
    "its load is not told, and its GPU idles": reparented(sm_utilization_ratio=None),
    "the server above its core died while we looked": lambda s: gpu(
        process(
            5,
            "VLLM::Worker_TP1",
            ppid=4,
            ancestors=("VLLM::EngineCore", "vllm serve m" if s < 60 else "systemd"),
            sm_utilization_ratio=0.9 if s < 60 else 0.0,
        )
    ),
}


@pytest.mark.parametrize("at", ORPHANS.values(), ids=ORPHANS)
def test_an_orphan(at):
    """Its server is gone: it is told a minute after, and not before."""
    assert only(look_on(at, seconds=50))[0] == "vllm"
    assert only(look_on(at, seconds=130)) == ORPHAN


def test_an_orphan_that_spins_on_its_gpu():
    """It waits in a collective for ranks that are gone: told after five minutes in which nothing answered."""

    def at(second):
        return gpu(core(ppid=4700 if second < 60 else 1, sm_utilization_ratio=1.0))

    assert only(look_on(at, seconds=350, served=False))[0] == "vllm"
    assert only(look_on(at, seconds=370, served=False)) == ORPHAN
    assert only(look_on(at, seconds=3600, served=None))[0] == "vllm"


def test_an_orphan_tells_who_when_and_what_to_do():
    """In words, with a command."""
    (one,) = look_on(reparented(), seconds=180)
    (holder,) = one.holders
    assert holder.judged.evidence == (
        "its parent, process 4700, died; it is now a child of process 1",
        "it has used no GPU time for 3 min",
    )
    assert holder.judged.remedy.startswith("end it: vllm-watch gpus --reclaim 4711, or kill 4711")
    assert (holder.age_seconds, holder.place) == (86580.0, "vllm.service")
    assert one.stale_bytes == 20 * GIB


def test_an_orphan_beside_its_successor_is_told_apart():
    """The old one is stale, the new one is not, though it is on the same GPU and answers."""

    def at(second):
        old = core(99, ppid=98 if second < 60 else 1)
        new = core(200, ppid=198, create_time=old.create_time + 86460)
        return gpu(old, new) if second > 70 else gpu(old)

    judged = look_on(at, seconds=200, served=True)
    assert verdicts(judged) == {99: ORPHAN, 200: ("vllm", None)}


DEAD = ("stale", "zombie_context")
OTHERS = {
    "a zombie": (lambda s: gpu(process(7, "python3", "eval.py", state="Z")), 30, DEAD),
    "a zombie on a GPU that is busy with something": (
        lambda s: gpu(
            process(7, "python3", state="Z", sm_utilization_ratio=None), utilization_ratio=0.9
        ),
        30,
        DEAD,
    ),
    "a process that the host no longer has": (lambda s: gpu(process(7, state="X")), 30, DEAD),
    "stuck in the kernel": (lambda s: gpu(process(7, "python3", "eval.py", state="D")), 120, DEAD),
    "a kernel that nobody uses": (lambda s: gpu(kernel()), 1800, ("stale", "idle_notebook")),
    "a kernel that has drawn something": (lambda s: gpu(kernel(type="graphics")), 1800, ("stale", "idle_notebook")),
    "a kernel with a heartbeat": (lambda s: gpu(works(kernel(), s, cpu=0.008)), 1800, ("stale", "idle_notebook")),
    "stopped with Ctrl-Z": (
        lambda s: gpu(process(7, "python3", "train.py", state="T", cgroup=SESSION)),
        600,
        ("stale", "idle_process"),
    ),
    "a shell's program, left for an hour": (
        lambda s: gpu(process(7, "python3", "explore.py", cgroup=SESSION)),
        3600,
        ("stale", "idle_process"),
    ),
    "its container was removed": (
        lambda s: gpu(process(7, "python3", "x.py", cgroup="/docker/0123456789ab (deleted)")),
        60,
        ("stale", "container_gone"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("at", "patience", "expected"), OTHERS.values(), ids=OTHERS)
def test_stale_after_its_patience(at, patience, expected):
    """Not before, and within two polls after."""
    assert only(look_on(at, seconds=patience - 5))[0] != "stale"
    assert only(look_on(at, seconds=patience + 10)) == expected


@pytest.mark.parametrize(
    ("holder", "vllm"), [(process(7, "python3", "x.py"), False), (core(7), True)]
)
def test_what_outlived_its_container_says_whether_it_was_to_serve(holder, vllm):
    removed = replace(holder, cgroup="/docker/0123456789ab (deleted)")
    (one,) = look_on(lambda _: gpu(removed), seconds=70)
    judged = one.holders[0].judged
    assert judged.reason == "container_gone"
    assert judged.evidence[0].endswith("; no server can reach it") is vllm


def test_a_process_that_begins_after_the_clock_has_no_age():
    """The clock was set back."""
    (one,) = look_on(lambda _: gpu(core(create_time=T + 100.0)), seconds=0)
    assert one.holders[0].age_seconds is None


PARENTS = {  # of a process in such a state: is it to be ended?
    "a program": ("Z", 4700, True),
    "process 1": ("Z", 1, False),
    "one of another PID namespace": ("Z", 0, False),
    "not known": ("Z", None, False),
    "a program, of a process that the host no longer has": ("X", 4700, False),
}


@pytest.mark.parametrize(("state", "ppid", "named"), PARENTS.values(), ids=PARENTS)
def test_the_parent_of_a_zombie_is_to_be_ended(state, ppid, named):
    """It has not reaped it; an init does."""
    (one,) = look_on(lambda _: gpu(process(7, "python3", state=state, ppid=ppid)), seconds=60)
    (holder,) = one.holders
    assert holder.judged.remedy.startswith(f"end its parent, process {ppid}") is named


def gap(seconds, **fields):
    """A kernel idle for 25 minutes, then no look for so long: the first look after it."""
    judge = HolderJudge()
    at = lambda s: gpu(kernel(**fields))  # noqa: E731
    look_on(at, seconds=1500, judge=judge)
    return judge, look_on(at, seconds=0, start=1500 + seconds, judge=judge)


def test_nobody_knows_what_a_holder_did_in_a_long_gap_without_its_cpu_time():
    """Its idleness begins anew where no CPU time shows that it went on."""
    assert only(gap(305)[1]) == ("stale", "idle_notebook")
    assert only(gap(300, cpu_seconds=None)[1]) == ("stale", "idle_notebook")
    judge, first = gap(305, cpu_seconds=None)
    assert only(first)[0] != "stale"
    at = lambda s: gpu(kernel(cpu_seconds=None))  # noqa: E731
    assert only(look_on(at, seconds=1790, start=1810, judge=judge))[0] != "stale"
    assert only(look_on(at, seconds=20, start=3605, judge=judge)) == ("stale", "idle_notebook")


@pytest.mark.parametrize(("away", "expected"), [(60, "stale"), (65, "unknown")])
def test_what_was_not_listed_for_a_minute_is_another(away, expected):
    """It may have done anything meanwhile."""
    judge = HolderJudge()
    look_on(lambda s: gpu(kernel()), seconds=1700, judge=judge)
    look_on(lambda s: gpu(), seconds=away - 5, judge=judge, start=1705)
    back = 1705 + away
    judged = look_on(lambda s: gpu(kernel()), seconds=100, judge=judge, start=back)
    assert only(judged)[0] == expected


BESIDE = {  # who else is on a GPU that works → does it work for the kernel?
    "nobody": ((), "active"),
    "a zombie": ((process(9, "python3", state="Z", sm_utilization_ratio=None),), "active"),
    "one that computes": ((process(9, "python3", "x.py", sm_utilization_ratio=None),), "stale"),
}  # fmt: skip


@pytest.mark.parametrize(("others", "verdict"), BESIDE.values(), ids=BESIDE)
def test_a_gpu_that_works_works_for_the_only_one_that_computes(others, verdict):
    """Where the driver does not say for whom."""
    at = lambda s: gpu(kernel(sm_utilization_ratio=None), *others, utilization_ratio=0.9)  # noqa: E731
    assert verdicts(look_on(at, seconds=1810))[kernel().pid][0] == verdict


def test_a_process_is_stopped_since_its_last_work_or_its_state_whichever_came_later():
    """It was idle for long before somebody stopped it; or it worked for the last time as it was."""

    def at(second):
        return gpu(process(7, "python3", "train.py", state="T" if second >= 300 else "S", sm_utilization_ratio=1.0 if second == 320 else 0.0))  # fmt: skip

    assert only(look_on(at, seconds=915))[0] != "stale"
    (one,) = look_on(at, seconds=925)
    assert (one.holders[0].judged.verdict, one.holders[0].judged.since_s) == ("stale", 320.0)
    idle_before = lambda s: gpu(process(7, "python3", "train.py", state="T" if s >= 300 else "S"))  # noqa: E731
    (one,) = look_on(idle_before, seconds=905)
    assert (one.holders[0].judged.verdict, one.holders[0].judged.since_s) == ("stale", 300.0)
