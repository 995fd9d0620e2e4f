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
        assert result.text.endswith(f"for container vllm: {status} what the daemon says")
    assert len(daemon.asked) == 1


async def hang(_):
    await asyncio.sleep(60)


async def die(request):
    request.transport.abort()
    await asyncio.sleep(0.1)


@pytest.mark.parametrize(("behaviour", "words"), [(hang, "has not answered within 1.5 s"), (die, "was cut off")])  # fmt: skip
async def test_daemon_that_does_not_answer_is_uncertain(daemon, behaviour, words):
    """Once asked it may act, at its own time."""
    daemon.behaviour = behaviour
    settings = DockerHook(name="a", container="vllm", socket=daemon.path)
    impatient = settings.model_copy(update={"timeout_seconds": 1.5})
    result = await docker_hook.Hook(impatient, base.Tools()).restart(CALL)
    assert (result.outcome, words in result.text) == ("uncertain", True)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"Status": "exited"}, "does not run: it is exited"),
        ({"Status": "restarting"}, "about to restart container vllm itself"),
    ],
)
async def test_container_that_does_not_run_is_left_alone(daemon, state, words):
    """What a person stopped or paused, and what the daemon is about to start, is not started by us."""
    daemon.container["State"] |= state
    asking = hook(daemon.path)
    assert words in await asking.refusal(CALL)
    assert (await asking.restart(CALL)).outcome == "refused"
    [found, _] = await asking.rehearse(CALL)
    assert (found.ok, bool(found.remedy)) == (False, True)
    assert daemon.asked == []


@pytest.mark.parametrize(("seconds", "refused"), [(1.0, False), (-1.0, False), (-3.0, True)])
async def test_container_started_since_is_spared(daemon, seconds, refused):
    """A server cannot be older than its container; one that is was observed before the last restart."""
    said = await hook(daemon.path).refusal(call(process_start_time=STARTED + seconds))
    text = "container vllm was started after the observed server: it is a different one"
    assert said == (text if refused else None)


@pytest.mark.parametrize("name", ["../x", "other"])
async def test_container_that_is_not_there_did_nothing(daemon, name):
    result = await hook(daemon.path, name).restart(CALL)
    assert (result.outcome, f"answered for {name}: 404" in result.text) == ("failed", True)


async def test_what_is_no_engine_api_is_refused(daemon):
    daemon.container = ["what"]
    assert "does not serve the Engine API" in await hook(daemon.path).refusal(CALL)


@pytest.mark.parametrize("policy", [None, "", "on-failure", "always", "unless-stopped"])
async def test_rehearsal_says_whether_docker_starts_it_again(daemon, policy):
    """This hook starts the container itself, so a policy that leaves a dead engine dead is a finding."""
    named = None if policy is None else {"Name": policy}
    daemon.container["HostConfig"]["RestartPolicy"] = named
    findings = await hook(daemon.path).rehearse(CALL)
    assert findings[0].text == f"container vllm ({ID[:12]}) is running"
    assert [finding.ok for finding in findings] == [True, policy in ("always", "unless-stopped")]
    assert daemon.asked == []
