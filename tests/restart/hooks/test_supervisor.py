"""Who would start a server again, told by its cgroup, systemd and the Engine API; anything else is not known."""

import pytest

from tests.restart.hooks.calls import systemctl
from tests.restart.hooks.fake_docker import ID, docker
from vllm_watch.restart.hooks import base, supervisor
from vllm_watch.restart.hooks.server_process import Server
from vllm_watch.sources.processes import ProcessFacts

UNIT = "0::/system.slice/vllm.service"
DOCKER = f"/system.slice/docker-{ID}.scope"
PODS = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + ID + ".scope"


def server(cgroup, *above):
    """A server, process 100, below others of the same cgroup, the nearest first."""
    found = [
        ProcessFacts(pid=1, name="systemd", ppid=0, cgroup="/init.scope"),
        ProcessFacts(pid=50, name="containerd-shim", ppid=1, cgroup="/system.slice/containerd.service"),
        ProcessFacts(
            pid=100, name="vllm", ppid=99 if above else 50, cgroup=cgroup, pids=(100,) if above else (100, 1)),
    ]  # fmt: skip
    for i, name in enumerate(above, 1):
        ppid = 1 if i == len(above) else 99 - i
        found.append(ProcessFacts(pid=100 - i, name=name, ppid=ppid, cgroup=cgroup, pids=(100 - i,)))  # fmt: skip
    all_ = {each.pid: each for each in found}
    return Server(facts=all_[100], all=all_)


@pytest.fixture
def systemd(tmp_path):
    """Make a systemd that has this vllm.service; return the environment that finds it."""

    def make(**unit):
        loaded = {
            "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": "100",
        }  # fmt: skip
        dead = unit.get("dead", False)
        systemctl(tmp_path, {"vllm.service": loaded | unit}, dead=dead)
        return base.Tools(environ={"PATH": str(tmp_path)})

    return make


@pytest.mark.parametrize(
    ("unit", "relaunches", "words"),
    [
        ({"Restart": "always"}, True, "Restart=always"),
        ({"Restart": "on-failure"}, False, "vLLM ends with status 0, so systemd would leave it dead"),
        ({"Restart": "always", "MainPID": "99"}, None, "it is not the main process of vllm.service"),
        ({"Restart": "always", "dead": True}, None, "systemd does not answer"),
    ],
)  # fmt: skip
async def test_systemd_must_restart_always(systemd, unit, relaunches, words):
    """Only Restart=always starts again what ended with status 0, and only when it was the main process."""
    found = await supervisor.of(systemd(**unit), server(UNIT.removeprefix("0::")))
    assert found.relaunches is relaunches
    assert words in found.text


@pytest.mark.parametrize(
    ("policy", "relaunches"),
    [("always", True), ("unless-stopped", True), ("on-failure", False)],
)
async def test_container_must_restart_always(tmp_path, policy, relaunches):
    """The daemon is asked for the policy of the container that the server's cgroup names."""
    path = tmp_path / "docker.sock"
    async with docker(path) as daemon:
        daemon.container["HostConfig"]["RestartPolicy"]["Name"] = policy
        for cgroup in (DOCKER, f"/docker/{ID}", f"/libpod_parent/libpod-{ID}"):
            found = await supervisor.of(base.Tools(environ={}), server(cgroup), (path,))
            assert (found.relaunches, policy in found.text) == (relaunches, True)


async def test_container_whose_daemon_cannot_be_asked_is_not_known(tmp_path):
    """Docker's default is to start nothing again: what cannot be asked is no yes."""
    found = await supervisor.of(base.Tools(environ={}), server(DOCKER), (tmp_path / "none.sock",))
    assert found.relaunches is None
    assert "its restart policy is unknown" in found.text


@pytest.mark.parametrize(
    ("above", "relaunches"),
    [((), True), (("tini",), True), (("bash", "tini"), None), (("sleep",), None)],
)
async def test_end_of_the_server_must_end_the_container(above, relaunches):
    """A script around it may go on, and then nobody sees that the server is gone."""
    found = await supervisor.of(base.Tools(environ={}), server(PODS, *above))
    assert found.relaunches is relaunches
    assert "restartPolicy is Always" in found.text
    if relaunches is None:
        assert f"{next(name for name in above if name != 'tini')} (" in found.text


@pytest.mark.parametrize(
    ("cgroup", "relaunches", "words"),
    [
        ("/user.slice/user-0.slice/session-3.scope", False, "a login session"),
        ("/", None, "no supervisor was found (its cgroup is /)"),
        (None, None, "its cgroup is not known"),
    ],
)
async def test_what_nobody_looks_after(cgroup, relaunches, words):
    """A server from somebody's shell is started again by nobody; what is not known is said so."""
    found = await supervisor.of(base.Tools(environ={}), server(cgroup), ())
    assert found.relaunches is relaunches
    assert words in found.text


async def test_user_unit_is_not_taken_for_its_manager(systemd):
    """A unit below user@1000.service is asked for, and not the manager that is above it."""
    cgroup = "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service"
    found = await supervisor.of(systemd(Restart="always"), server(cgroup))
    assert found.relaunches is True
