"""What may be ended: tables of holders, judged by the real judge, and what is made of them."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import GIB, POD, core, gpu, kernel, look_on, process, works
from vllm_watch.reclaim.plan import (
    TREE_MAX,
    Plan,
    RefusalError,
    Sightings,
    ancestors,
    descendants,
    plan,
)

US = 900
PARENTS = {1: 0, 50: 1, 800: 50, US: 800, 4711: 1, 4712: 4711, 4713: 4712, 5000: 1}


def local(sample):
    """Of our own PID namespace."""
    return replace(sample, pid_local=sample.pid)


def orphan(pid=4711, **fields):
    return local(core(pid, ppid=1, ancestors=("systemd",), **fields))


def decide(pid, *gpus, seconds=600, parents=None):
    """Look on for so long at GPUs that may be functions of the second, then plan; or why there is no plan."""

    def shown(second):
        return tuple(each(second) if callable(each) else each for each in gpus)

    judged = look_on(shown, seconds=seconds)
    try:
        return plan(pid, judged, parents or PARENTS, US)
    except RefusalError as refusal:
        return refusal


def pids(found):
    assert isinstance(found, Plan), found
    return [each.pid for each in found.victims], [each.pid for each in found.left]


def test_an_orphan_is_planned():
    found = decide(4711, gpu(orphan(gib=3)), gpu(orphan(gib=50), index=1))
    assert pids(found) == ([4711], [])
    assert [part.gpu.index for part in found.victims[0].parts] == [1, 0]


def test_a_slice_is_counted_once():
    sliced = replace(gpu(orphan()), uuid="MIG-0", mig_parent_uuid="GPU-0")
    found = decide(4711, gpu(orphan()), sliced)
    assert [part.gpu.uuid for part in found.victims[0].parts] == ["MIG-0"]


def test_stale_workers_go_with_their_core():
    """At any depth; another orphan is no part of it."""
    found = decide(4711, gpu(orphan()), gpu(orphan(4713), orphan(5000), index=1))
    assert pids(found) == ([4711, 4713], [])
    assert [each.pid for each in found.others] == [5000]


def test_only_what_is_stale_too_is_named_beside_it():
    """An engine at work and a process that nobody has judged yet are nobody's to reclaim."""
    engine = local(core(5000, ancestors=("/usr/bin/vllm serve m",)))
    found = decide(4711, gpu(orphan(), engine, local(process(5001, "python3", "x.py"))))
    assert pids(found) == ([4711], [])
    assert found.others == ()


def test_a_gpu_whose_holders_the_driver_does_not_tell_hides_none_of_another():
    """As on some virtual GPUs: what the others show is planned all the same."""
    unsaid = replace(gpu(index=1), processes=None)
    assert pids(decide(4711, unsaid, gpu(orphan()))) == ([4711], [])


LEFT = {
    "it is not stale": process(4712, "python3", "unrelated.py", ppid=4711),
    "a zombie": process(4712, "python3", state="Z", ppid=4711),
}


@pytest.mark.parametrize("child", LEFT.values(), ids=LEFT)
def test_a_child_that_is_not_to_be_ended_is_left(child):
    """It is named, and nothing is sent to it; one of which nobody can be sure is not named."""
    unsure = replace(orphan(5000), pid_local=None), orphan(5001, create_time=None)
    found = decide(4711, gpu(orphan(), local(child), *unsure))
    assert (pids(found), found.others) == (([4711], [4712]), ())


def test_an_idle_process_whose_child_works_is_not_idle():
    """It may wait for its child."""

    def host(second):
        child = works(local(process(4712, "python3", "train.py", ppid=4711)), second, cpu=0.9)
        return gpu(local(kernel(4711)), child)

    found = decide(4711, host, seconds=2400)
    assert isinstance(found, RefusalError)
    assert "process 4712, which it started, works" in found.cause


def test_stale_on_one_gpu_and_at_work_on_another():
    """It is one process."""

    def second_gpu(second):
        return gpu(works(local(kernel(4711)), second, sm=0.5), index=1)

    found = decide(4711, gpu(local(kernel(4711))), second_gpu, seconds=2400)
    assert isinstance(found, RefusalError)
    assert "on GPU 1" in found.cause


HIDDEN = process(4711, name=None, cmdline=None, state=None, create_time=None, cpu_seconds=None, uid=None, cgroup=None)  # fmt: skip

REFUSED = {
    # PID, holder: cause, and whether to look on would change nothing
    "a living engine": (4711, local(core(4711, ancestors=("/usr/bin/vllm serve m",))), "not stale but vllm", False),
    "of another PID namespace": (4711, HIDDEN, "not stale but unknown: /proc does not show this process", False),
    "named, and not in our namespace": (4711, replace(orphan(), pid_local=None), "another PID namespace", False),
    "whose start is unknown": (4711, orphan(create_time=None), "cannot be identified from here", False),
    "a sibling container's number": (4711, local(process(4711, "python3", "x.py", cgroup=POD)), "not stale but unknown", False),
    "a zombie": (4711, local(process(4711, "python3", state="Z")), "cannot be ended", False),
    "stuck in the kernel": (4711, local(process(4711, "python3", state="D")), "cannot be ended", False),
    "process 1": (1, orphan(1), "process 1", True),
    "a container's process 1": (4711, replace(orphan(), pid_local=1), "process 1", True),
    "ourselves": (US, orphan(US), "this command itself", True),
    "what we run under": (800, orphan(800), "a parent of this command", True),
    "ourselves by the host's number": (4711, replace(orphan(), pid_local=US), "this command itself", True),
    "who holds nothing": (50, orphan(5000), "process 50 is a parent of this command", True),
    "who holds nothing yet": (4712, orphan(5000), "process 4712 holds no GPU memory", False),
    "nobody": (77777, orphan(5000), "there is no process 77777 here", True),
    "who holds nothing, and its child does": (4712, orphan(4713), "holds no GPU memory; its children do: 4713", False),
}  # fmt: skip


@pytest.mark.parametrize(("pid", "holder", "cause", "final"), REFUSED.values(), ids=REFUSED)
def test_refused(pid, holder, cause, final):
    found = decide(pid, gpu(holder))
    assert isinstance(found, RefusalError), found
    assert cause in found.cause
    assert found.remedy
    assert found.final is final


def test_memory_of_nobody():
    found = decide(77777, gpu(orphan(5000), extra_gib=40))
    assert isinstance(found, RefusalError)
    assert "40.0 GiB on GPU 0 belong to no process" in found.cause
    assert "nvidia-smi --gpu-reset -i 0" in found.remedy


def test_only_what_was_seen_twice_is_certain():
    """A few seconds apart, the same in between: the process, its start, its reason."""
    same, other = decide(4711, gpu(orphan())), decide(4711, gpu(orphan(create_time=1.0)))
    looks = Sightings()
    told = [looks.take(at_s, found) for at_s, found in (
        (0, same), (1, same), (2, None), (3, same), (4, same), (4.5, other), (5.5, same),
        (6.5, same), (7.5, same),
    )]  # fmt: skip
    assert told == [False] * 8 + [True]
    assert same.key == decide(4711, gpu(orphan(gib=3))).key
    assert same.key != decide(4711, gpu(orphan()), gpu(orphan(4713), index=1)).key
    looks = Sightings()
    assert [looks.take(at_s, same) for at_s in (10.0, 11.9, 12.0, 13.0)] == [False, False, True, True]  # fmt: skip


def test_trees():
    """Up and down, through loops that a race of two readings may make."""
    assert descendants(4711, PARENTS) == (4712, 4713)
    assert ancestors(US, PARENTS) == (800, 50, 1)
    loop = {2: 3, 3: 2}
    assert ancestors(2, loop) == (3, 2)
    assert descendants(2, loop) == (3,)


def test_a_weight_daemon_is_refused_with_the_reason():
    """Engines map its memory: it is told to stop those first, and no signal is planned."""
    session = "/user.slice/user-1003.slice/session-4.scope"
    daemon = local(process(7, "vllm", "preload", "m", cgroup=session))
    engine = local(core(ancestors=("vllm serve m --load-format ipc_cache",)))
    found = decide(7, gpu(daemon, engine), seconds=7200)
    assert isinstance(found, RefusalError)
    assert (found.cause, found.remedy, found.final) == (
        "process 7 is not stale but active: it holds GPU memory that engines map: "
        "ending it ends all of these engines",
        "stop the engines that map its memory first, then stop it where it was started",
        False,
    )


def test_an_idle_process_goes_though_its_idle_child_is_left():
    """Only one that works may be waited for; and an orphaned core is stale whatever its child does."""
    idle = gpu(local(kernel(4711)), local(process(4712, "sleep", ppid=4711)))
    found = decide(4711, idle, seconds=2400)
    assert pids(found) == ([4711], [4712])

    def host(second):
        child = works(local(process(4712, "python3", "train.py", ppid=4711)), second, cpu=0.9)
        return gpu(orphan(), child)

    assert pids(decide(4711, host)) == ([4711], [4712])


def test_a_process_that_has_gone_is_not_there_though_its_child_still_names_it():
    """Two readings of /proc that are not of one moment."""
    gone = {pid: parent for pid, parent in PARENTS.items() if pid != 4712}
    found = decide(4712, gpu(orphan(4713)), parents=gone)
    assert isinstance(found, RefusalError)
    assert (found.cause, found.final) == ("there is no process 4712 here", True)


def test_what_a_victim_holds():
    """On all its GPUs; nothing is said where the driver does not say it of one."""
    (victim,) = decide(4711, gpu(orphan(gib=3)), gpu(orphan(gib=50), index=1)).victims
    assert victim.bytes == 53 * GIB
    (unsaid,) = decide(4711, gpu(orphan(used_bytes=None))).victims
    assert unsaid.bytes is None


def test_a_deep_tree_is_read_to_a_bound():
    chain = {pid: pid - 1 for pid in range(2, 3 * TREE_MAX)}
    assert TREE_MAX <= len(descendants(1, chain)) <= TREE_MAX + 1
    assert descendants(1, {2: 1, 3: 1, 4: 3, 5: 2}) == (2, 3, 5, 4)
