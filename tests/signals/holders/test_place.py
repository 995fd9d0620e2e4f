"""Where a process lives, from what its control group is called."""

import pytest

from vllm_watch.signals.holders import track

ID = "0123456789abcdef" * 4
UUID = "3f1c2a9e_1b2c_4d5e_8f90_a1b2c3d4e5f6"
GROUPS = {
    # cgroup → in words, in a user's session, shown to be outside any container
    "/system.slice/vllm.service": ("vllm.service", False, True),
    "/system.slice/system-vllm.slice/vllm@0.service": ("vllm@0.service", False, True),
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
    "": (None, False, False),
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
