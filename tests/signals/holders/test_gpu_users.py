"""Which GPUs each server of a host runs on: by its processes, else by the start that fits, else nobody's."""

import json

import pytest

from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.signals import stored
from vllm_watch.signals.holders import records, roles
from vllm_watch.signals.holders.gpu_users import GROUPS_MAX, GpuUsers, Server
from vllm_watch.signals.holders.records import GpuHolders, Holder, Judged

T = 1_770_000_000.0


def core(pid, parent, *, started=T + 10, verdict=records.VLLM, role=roles.CORE, **fields):
    """A process on a GPU, as it was judged; `started` by `parent`."""
    known = {"ppid": parent, "create_time": started, "cgroup": "/vllm.service"} | fields
    process = ProcessSample(pid=pid, cmdline=("VLLM::EngineCore",), **known)
    return Holder(process=process, judged=Judged(verdict=verdict), role=role)


def host(*gpus):
    """GPUs 0, 1, … with these holders; None: the driver does not say."""
    none = {"unaccounted_bytes": 0, "unaccounted": Judged(verdict=records.ACTIVE)}
    return [
        GpuHolders(gpu=GpuSample(index=index, uuid=f"GPU-{index}"), holders=holders, **none)
        for index, holders in enumerate(gpus)
    ]


def at(start=None, *pids):
    return Server(start_time=start, pids=frozenset(pids))


def by_target(places):
    return {name: sorted(place) for name, place in places.items()}


A, B = core(11, 10), core(21, 20, started=T + 110)  # each the core of a server of its own
STALE = core(31, 1, verdict=records.STALE)
STORIES = {  # GPUs with who is on them; the servers; where each is said to run
    "one server, on two GPUs": (host([A], [core(12, 10)]), {"a": at(T)}, {"a": ["GPU-0", "GPU-1"]}),
    "one server, and whatever died beside it": (host([A], [STALE]), {"a": at(T)}, {"a": ["GPU-0"]}),
    "one server that started after its workers, by its clock": (host([A]), {"a": at(T + 50)}, {"a": ["GPU-0"]}),
    "two that started at different times": (
        host([A], [B]), {"a": at(T), "b": at(T + 100)}, {"a": ["GPU-0"], "b": ["GPU-1"]}),
    "two whose starts fit the same group": (host([A], [B]), {"a": at(T + 5), "b": at(T + 4)}, {"a": [], "b": []}),
    "two, and no start is known": (
        host([core(11, 10, started=None)], [core(21, 20, started=None)]), {"a": at(T), "b": at(T)}, {"a": [], "b": []}),
    "its processes are known": (
        host([A], [B]), {"a": at(T, 10, 11), "b": at(T, 20, 21)}, {"a": ["GPU-0"], "b": ["GPU-1"]}),
    "... by their numbers in our own namespace": (
        host([core(4011, 4010, pid_local=11)], [B]), {"a": at(T, 10, 11)}, {"a": ["GPU-0"]}),
    "... though none of them is told to be vLLM": (
        host([core(11, 10, verdict=records.ACTIVE)]), {"a": at(T, 11)}, {"a": ["GPU-0"]}),
    "its processes are known, and none of them is on a GPU": (host([A]), {"a": at(T, 99)}, {"a": []}),
    "the only group is another's, by its processes": (
        host([A]), {"a": at(T, 10, 11), "b": at(T)}, {"a": ["GPU-0"], "b": []}),
    "what one's processes leave is the other's": (
        host([A], [B]), {"a": at(T, 10, 11), "b": at(T)}, {"a": ["GPU-0"], "b": ["GPU-1"]}),
    "the driver does not say who is there": (host(None), {"a": at(T)}, {"a": []}),
}  # fmt: skip


@pytest.mark.parametrize(("gpus", "servers", "expected"), STORIES.values(), ids=STORIES)
def test_where_each_server_runs(gpus, servers, expected):
    """Certain where its processes are seen; else by the one start that fits; never two servers by one group."""
    assert by_target(GpuUsers().look(gpus, servers)) == expected


def test_a_server_process_and_its_cores_are_one_group():
    """The API server may hold GPU memory itself."""
    api = core(10, 1, role=roles.SERVER)
    places = GpuUsers().look(host([api], [A], [B]), {"a": at(T), "b": at(T + 100)})
    assert by_target(places) == {"a": ["GPU-0", "GPU-1"], "b": ["GPU-2"]}


LATER = {
    "it is down": ((host([]), {"a": at(), "b": at(T + 100)}), ["GPU-0"]),
    "its successor loads and shows no process yet": ((host([], [B]), {"a": at(T + 900), "b": at(T + 100)}), ["GPU-0"]),
    "its processes are known now, and none is on a GPU": ((host([]), {"a": at(T, 77), "b": at(T + 100)}), ["GPU-0"]),
    "its successor runs on another": ((host([], [B], [core(41, 40, started=T + 910)]), {"a": at(T + 900), "b": at(T + 100)}), ["GPU-2"]),
}  # fmt: skip


@pytest.mark.parametrize(("look", "gpus"), LATER.values(), ids=LATER)
def test_a_server_keeps_its_last_gpus(look, gpus):
    """What is wrong there may be why it is down; where it runs anew is taken as soon as it shows."""
    users = GpuUsers()
    users.look(host([A], [B]), {"a": at(T), "b": at(T + 100)})
    assert sorted(users.look(*look)["a"]) == gpus


def test_what_may_be_a_hung_servers_is_not_its_neighbours():
    """Nobody could tell the two apart while both answered; that one of them falls silent proves nothing."""
    users, both = GpuUsers(), host([A], [core(21, 20)])
    users.look(both, {"a": at(T), "b": at(T)})
    assert by_target(users.look(both, {"a": at(), "b": at(T)})) == {"a": [], "b": []}
    assert by_target(users.look(both, {"a": at(), "b": at(T)})) == {"a": [], "b": []}
    gone = host([], [core(21, 20)])  # its processes have ended: what is left is the other's
    assert by_target(users.look(gone, {"a": at(), "b": at(T)})) == {"a": [], "b": ["GPU-1"]}


def test_what_is_remembered_is_bounded():
    """A driver that invents parents cannot take all memory, nor is the server that was met first lost for it."""
    many = [A, *(core(100 + n, 1000 + n, started=T + 500) for n in range(GROUPS_MAX + 10))]
    assert by_target(GpuUsers().look(host(many), {"a": at(T)})) == {"a": ["GPU-0"]}


def test_another_run_of_the_watcher_knows_where_they_ran():
    """Also of a server that is down when it begins."""
    users, again = GpuUsers(), GpuUsers()
    before = users.look(host([A], [B]), {"a": at(T), "b": at(T + 100)})
    again.restore(json.loads(json.dumps(users.export_state())))
    assert again.look(host([], []), {"a": at(), "b": at()}) == before


DAMAGES = {
    "no mapping": [],
    "a process that is no text": {"a": {"GPU-0": 7}},
}


@pytest.mark.parametrize("state", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_changes_nothing(state):
    """It raises, and what is known stays."""
    users = GpuUsers()
    known = users.look(host([A]), {"a": at(T)})
    with pytest.raises(stored.DAMAGE):
        users.restore(state)
    assert users.look(host([]), {"a": at()}) == known
