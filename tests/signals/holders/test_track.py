"""What counts as work of a holder, when a PID is another process, and where it lives: each sign alone."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import GIB, POD, SESSION, gpu, process
from vllm_watch.signals.holders import track
from vllm_watch.signals.holders.track import begin, follow, is_same

UNREAD = {"cpu_seconds": None, "sm_utilization_ratio": None}


def followed(now, *, before=None, passed=5.0, alone=False, busy=0.0):
    """A track after a second look, `passed` seconds after the first, at which the GPU is `busy`."""
    first = process(7, "python3", "train.py", **(before or {}))
    track = begin(100.0, first)
    then = replace(first, **now)
    follow(track, 100.0 + passed, then, gpu(then, utilization_ratio=busy), alone=alone)
    return track


WORK = {  # (what the second look shows, how it is looked at) → (idle, GPU idle, worked, is work known)
    "nothing": ({}, {}, (5, 5, False, True)),
    "what prepares data": ({"cpu_seconds": 100.15}, {}, (0, 5, True, True)),
    "CPU time alone is read": (
        {"sm_utilization_ratio": None}, {"before": {"sm_utilization_ratio": None}}, (5, 5, False, True),
    ),
    "a loop that launches kernels": ({"cpu_seconds": 100.25}, {}, (0, 5, True, True)),
    "a clock that stood still": ({"cpu_seconds": 101.0}, {"passed": 0.0}, (0, 0, False, True)),
    "a clock that stood still, and no GPU": (
        {"cpu_seconds": 101.0, "sm_utilization_ratio": None}, {"passed": 0.0}, (0, 0, False, False),
    ),
    "GPU work": ({"sm_utilization_ratio": 0.1}, {}, (0, 0, True, True)),
    "none of the GPU's work": ({}, {"alone": True, "busy": 0.9}, (5, 5, False, True)),
    "a GPU that works for it alone": (UNREAD, {"before": UNREAD, "alone": True, "busy": 0.9}, (0, 0, True, True)),
    "a GPU that rests, and it is alone": (UNREAD, {"before": UNREAD, "alone": True}, (5, 5, False, True)),
    "a GPU that works for one of several": (UNREAD, {"before": UNREAD, "busy": 0.9}, (5, 5, False, False)),
    "a GPU of which nothing is read": (UNREAD, {"before": UNREAD, "alone": True, "busy": None}, (5, 5, False, False)),
    "more memory": ({"used_bytes": 21 * GIB}, {}, (0, 5, True, True)),
    "memory that is not told any more": ({"used_bytes": None}, {}, (5, 5, False, True)),
    "a gap": ({"cpu_seconds": None}, {"passed": 300.0}, (300, 300, False, True)),
    "a gap in which it may have worked": ({"cpu_seconds": None}, {"passed": 301.0}, (0, 0, False, True)),
}  # fmt: skip


@pytest.mark.parametrize(("now", "how", "expected"), WORK.values(), ids=WORK)
def test_what_is_work(now, how, expected):
    """Only a sign that can be read is one; a gap without any is neither work nor idleness."""
    track = followed(now, **how)
    found = (track.idle_for_s(), track.gpu_idle_for_s(), track.worked, track.work_known)
    assert found == expected


def test_what_it_did_once_is_remembered():
    """It worked, rested, and then could not be read: that it worked, and could be read, stays known."""
    track = followed({"sm_utilization_ratio": 0.5})
    rests = process(7, "python3", "train.py")
    follow(track, 115.0, rests, gpu(rests), alone=False)
    silent = replace(rests, **UNREAD)
    follow(track, 120.0, silent, gpu(silent), alone=False)
    assert (track.worked, track.work_known, track.cpu_share) == (True, True, None)
    assert (track.idle_s, track.last_s) == (105.0, 120.0)


LIVES = {  # before, now → (since when in this state, when re-parented)
    "as it was": ({}, {}, (100, None)),
    "stopped": ({}, {"state": "T"}, (105, None)),
    "a state that is not read": ({}, {"state": None}, (100, None)),
    "a state that was not read before": ({"state": None}, {"state": "T"}, (100, None)),
    "its parent died": ({"ppid": 700}, {"ppid": 1}, (100, 105)),
    "its parent is not read": ({"ppid": 700}, {"ppid": None}, (100, None)),
    "it died itself": ({"ppid": 700}, {"ppid": 1, "state": "Z"}, (105, None)),
    "its parent died, its state is not read": ({"ppid": 700}, {"ppid": 1, "state": None}, (100, 105)),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "expected"), LIVES.values(), ids=LIVES)
def test_when_its_life_changed(before, now, expected):
    """Its state and its parent change only between two looks that both tell them."""
    track = followed(now, before=before)
    assert (track.state_s, track.reparented_s) == expected


def test_who_it_is_follows_its_title_and_outlives_it():
    """vLLM sets a title after the start; a process that dies has no command line any more, nor a group."""
    track = followed({"name": "VLLM::EngineCor", "cmdline": ("VLLM::EngineCore",), "cgroup": POD})
    assert (track.role, track.outside) == ("vllm_core", False)
    here = track.place
    dead = replace(track.process, name=None, cmdline=None, cgroup=None, state="Z")
    follow(track, 110.0, dead, gpu(dead), alone=False)
    assert (track.role, track.place, track.outside) == ("vllm_core", here, False)
    out = replace(dead, cgroup=SESSION)
    follow(track, 115.0, out, gpu(out), alone=False)
    assert (track.place == here, track.outside) == (False, True)


KERNEL = {"name": "python3", "cmdline": ("python3", "-m", "ipykernel_launcher")}
CORE = {"name": "VLLM::EngineCor", "cmdline": ("VLLM::EngineCore",)}
NAMED = {  # what was told of it, what is told now → what it is
    "a command line alone": ({}, {"name": None, "cmdline": CORE["cmdline"]}, "vllm_core"),
    "a name alone": ({}, {"name": CORE["name"], "cmdline": None}, "vllm_core"),
    "the command line is not told any more": (KERNEL, {"name": "python3.11", "cmdline": None}, "notebook"),
    "the name is not told any more": (CORE, {"name": None, "cmdline": ("python3",)}, "vllm_core"),
    "neither is": (CORE, {"name": None, "cmdline": None}, "vllm_core"),
    "it is another by now": (CORE, {"name": "python3", "cmdline": ("python3", "x.py")}, None),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "role"), NAMED.values(), ids=NAMED)
def test_who_it_is_by_what_is_told(before, now, role):
    """What is not told any more is as it was."""
    assert followed(now, before=before).role == role


SAME = {  # before, now → the same process?
    "a clock that was set by a second": ({}, {"create_time": process(7).create_time + 1.5}, True),
    "a start three seconds later": ({}, {"create_time": process(7).create_time + 3.0}, False),
    "the same start, another unit": ({}, {"cgroup": POD, "cpu_seconds": 1.0}, True),
    "a start that was not read before": ({"create_time": None}, {"create_time": process(7).create_time}, True),
    "no start, another unit": ({"create_time": None}, {"cgroup": POD}, False),
    "no start, another user": ({"create_time": None}, {"uid": 0}, False),
    "a start that is not read any more, another user": ({}, {"create_time": None, "uid": 0}, False),
    "no start, a user that is not read any more": ({"create_time": None}, {"uid": None}, True),
    "no start, a unit that was not read": ({"create_time": None, "cgroup": None}, {"cgroup": POD}, True),
    "no start, less CPU time": ({"create_time": None}, {"cpu_seconds": 99.0}, False),
    "no start, no CPU time": ({"create_time": None}, {"cpu_seconds": None}, True),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "expected"), SAME.values(), ids=SAME)
def test_who_has_the_pid(before, now, expected):
    """By its start; where that is not known, by its user, unit and CPU time as far as they are."""
    first = process(7, "python3", "train.py", **before)
    assert is_same(first, replace(first, **now)) is expected


ID = "0123456789abcdef" * 4
UUID = "3f1c2a9e_1b2c_4d5e_8f90_a1b2c3d4e5f6"
GROUPS = {
    # cgroup → in words, in a user's session, shown to be outside any container
    "/system.slice/vllm.service": ("vllm.service", False, True),
    f"/system.slice/docker-{ID}.scope": ("container 0123456789ab", False, False),
    f"/docker/{ID}": ("container 0123456789ab", False, False),
    f"/machine.slice/libpod-{ID}.scope": ("container 0123456789ab", False, False),
    f"/kubepods/burstable/pod{UUID}/{ID}": (
        f"pod {UUID.replace('_', '-')}, container 0123456789ab", False, False),
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UUID}.slice/cri-containerd-{ID}.scope": (
        f"pod {UUID.replace('_', '-')}, container 0123456789ab", False, False),
    f"/kubepods.slice/kubepods-pod{UUID}.slice/crio-{ID}.scope": (
        f"pod {UUID.replace('_', '-')}, container 0123456789ab", False, False),
    "/kubepods.slice/kubepods-pod3f1c.slice/cri-containerd-7c1e.scope": ("pod 3f1c, container 7c1e", False, False),
    "/user.slice/user-1003.slice/session-4.scope": ("session of user 1003", True, True),
    "/user.slice/user-1003.slice/user@1003.service/app.slice/tmux.scope": ("session of user 1003", True, True),
    "/user.slice/user-1003.slice/user@1003.service/app.slice/jupyter.service": ("jupyter.service", False, True),
    f"/user.slice/user-1003.slice/user@1003.service/user.slice/libpod-{ID}.scope": (
        "container 0123456789ab", False, False),
    "/user.slice": ("a user's session", True, True),
    "/": (None, False, False),
    None: (None, False, False),
}  # fmt: skip


@pytest.mark.parametrize("cgroup", GROUPS, ids=str)
def test_a_control_group(cgroup):
    """Version 1 and 2, with and without systemd, of each runtime."""
    assert (
        track.place_of(cgroup),
        track.in_user_session(cgroup),
        track.is_outside(cgroup),
    ) == GROUPS[cgroup]


def test_a_group_that_was_removed():
    """The kernel says so itself."""
    gone = f"/docker/{ID} (deleted)"
    assert track.is_deleted(gone)
    assert track.place_of(gone) == "container 0123456789ab"
    assert not track.is_deleted(f"/docker/{ID}")
