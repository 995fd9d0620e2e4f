"""The docker hook against an Engine API on a real unix socket; test_podman.py has it against Podman's own."""

import asyncio
from datetime import datetime

import pytest

from tests.restart.hooks.calls import CALL, call
from tests.restart.hooks.fake_docker import ID, answer, docker
from vllm_watch.restart.hooks import base
from vllm_watch.restart.hooks import docker as docker_hook
from vllm_watch.settings.hooks import DockerHook

STARTED = datetime.fromisoformat("2026-11-21T11:04:02.942836+00:00").timestamp()


@pytest.fixture
async def daemon(tmp_path):
    async with docker(tmp_path / "docker.sock") as daemon:
        daemon.path = tmp_path / "docker.sock"
        yield daemon


def hook(path, container="vllm", **more):
    settings = DockerHook(name="a", container=container, socket=path, **more)
    return docker_hook.Hook(settings, base.Tools())


async def test_container_is_restarted_by_its_id(daemon):
    """The container that was looked at is restarted, also when its name goes to another one."""
    result = await hook(daemon.path, stop_seconds=7.0).restart(CALL)
    assert (result.outcome, result.text) == ("done", "the daemon has restarted container vllm")
    assert daemon.asked == [f"/containers/{ID}/restart?t=7"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(204, "done"), (304, "failed"), (403, "refused"), (404, "refused"), (409, "failed"), (500, "uncertain"), (503, "uncertain")],
)  # fmt: skip
async def test_status_is_the_outcome(daemon, status, outcome):
    """409 and 304 did nothing; a container that is gone is refused; 500 may have stopped it."""

    async def behave(_):
        return answer(status, "what the daemon says")

    daemon.behaviour = behave
    result = await hook(daemon.path).restart(CALL)
    assert result.outcome == outcome
    if status not in (204, 304):
        assert (
            result.text == f"the daemon answered for container vllm: {status} what the daemon says"
        )
    assert len(daemon.asked) == 1


async def test_daemon_that_does_not_answer_is_uncertain(daemon):
    """Once asked it may act, at its own time."""

    async def hang(_):
        await asyncio.sleep(60)

    daemon.behaviour = hang
    settings = DockerHook(name="a", container="vllm", socket=daemon.path)
    impatient = settings.model_copy(update={"timeout_seconds": 1.5})
    result = await docker_hook.Hook(impatient, base.Tools()).restart(CALL)
    assert (result.outcome, result.text) == (
        "uncertain",
        "the daemon has not answered within 1.5 s",
    )


async def test_daemon_that_breaks_off_is_uncertain(daemon):
    """A daemon that dies over the request may have acted."""

    async def die(request):
        request.transport.abort()
        await asyncio.sleep(0.1)

    daemon.behaviour = die
    result = await hook(daemon.path).restart(CALL)
    assert result.outcome == "uncertain"
    assert "was cut off" in result.text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"Status": "exited"}, "does not run: it is exited"),
        ({"Status": "paused"}, "does not run: it is paused"),
        ({"Status": "restarting"}, "about to restart container vllm itself"),
    ],
)
async def test_container_that_does_not_run_is_left_alone(daemon, state, words):
    """What a person stopped or paused, and what the daemon is about to start, is not started by us."""
    daemon.container["State"] |= state
    asking = hook(daemon.path)
    assert words in await asking.refusal(CALL)
    assert (await asking.restart(CALL)).outcome == "refused"
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("seconds", "refused"),
    [
        (0.0, False),
        (1.0, False),
        (-1.0, False),
        (-3.0, True),
    ],
)
async def test_container_started_since_is_spared(daemon, seconds, refused):
    """A server cannot be older than its container; one that is was observed before the last restart."""
    asking = hook(daemon.path)
    said = await asking.refusal(call(process_start_time=STARTED + seconds))
    assert (said is not None) is refused
    if refused:
        assert said == "container vllm was started after the observed server: it is a different one"


async def test_daemon_that_is_not_there_did_nothing(daemon, tmp_path):
    """No socket, a file that is none, an unknown container: surely nothing was done, and it is said why."""
    (tmp_path / "file").touch()
    cases = {
        hook(tmp_path / "none.sock"): "none.sock cannot be reached: No such file or directory",
        hook(tmp_path / "file"): "file cannot be reached: Connection refused",
        hook(daemon.path, "../x"): "answered for ../x: 404",
        hook(daemon.path, "other"): "answered for other: 404 No such container: other",
    }
    for asking, words in cases.items():
        assert words in await asking.refusal(CALL)
        result = await asking.restart(CALL)
        assert (result.outcome, words in result.text) == ("failed", True)


async def test_what_is_no_engine_api_is_refused(daemon):
    """An answer that is JSON and nothing of a container is not trusted."""
    daemon.container = ["what"]
    assert "does not serve the Engine API" in await hook(daemon.path).refusal(CALL)


@pytest.mark.parametrize("policy", ["", "no", "on-failure", "always", "unless-stopped"])
async def test_rehearsal_says_whether_docker_starts_it_again(daemon, policy):
    """This hook starts the container itself, so a policy that leaves a dead engine dead is a finding."""
    daemon.container["HostConfig"]["RestartPolicy"]["Name"] = policy
    findings = await hook(daemon.path).rehearse(CALL)
    assert findings[0].text == f"container vllm ({ID[:12]}) is running"
    assert [finding.ok for finding in findings] == [True, policy in ("always", "unless-stopped")]
    assert daemon.asked == []


async def test_rehearsal_says_what_is_wrong(daemon, tmp_path):
    """And what to do about it."""
    [container, _] = await hook(daemon.path).rehearse(CALL)
    assert (container.ok, container.remedy) == (True, None)
    daemon.container["State"]["Status"] = "exited"
    [container, _] = await hook(daemon.path).rehearse(CALL)
    assert (container.ok, container.text) == (
        False,
        "container vllm does not run: it is exited",
    )
    assert container.remedy == "name the container of this server, and check that it is running"
    [unreachable] = await hook(tmp_path / "none.sock").rehearse(CALL)
    assert not unreachable.ok
    assert "docs/hooks/docker.md" in unreachable.remedy
