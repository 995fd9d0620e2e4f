"""Incidents as Events of a pod, on an API server with the real one's refusals; a real kubectl describes the pod."""

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
import yaml

from tests.daemon_process import ROOT
from tests.kubernetes_api import NAMESPACE, certified, status
from tests.restart.hooks.fake_pods import FakePods, pod
from tests.told import made, told
from vllm_watch.board.board import Board
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.config import Config
from vllm_watch.notify import kubernetes_events
from vllm_watch.notify import notifications as notifications_module
from vllm_watch.notify.base import Tools
from vllm_watch.notify.ledger import Ledger
from vllm_watch.notify.notifications import Notifications
from vllm_watch.samples.target import Target

POD = Target(name="chat", url="http://10.0.0.7:8000", pod="llama-0", namespace=NAMESPACE)
BARE = Target(name="chat", url="http://127.0.0.1:8000")


@pytest.fixture
async def server(tmp_path, monkeypatch):
    monkeypatch.setattr(notifications_module, "LOOK_SECONDS", 600.0)
    monkeypatch.setattr(kubernetes_events, "WAIT_SECONDS", 0.01)
    folder = tmp_path / "pod"
    _, context = certified(folder)
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", folder)
    async with FakePods().running(context) as server:
        server.environ = server.account(folder) | {"POD_NAME": "llama-0"}
        server.add("pods", pod())
        yield server


@asynccontextmanager
async def telling(server, *targets, **settings):
    document = {"notifications": {"kubernetes": [{"name": "ev", **settings}]}}
    board = Board()
    for each in targets:
        board.add_target(each, 5.0)
    one = Notifications(
        Config.model_validate(document).notifications, board, lambda _: False, Ledger(None), Tools(environ=server.environ),
    )  # fmt: skip
    await one.start()
    try:
        yield one, board.notifiers["ev"]
    finally:
        await one.stop()


async def counted(health, **outcomes):
    async with asyncio.timeout(30):
        while not all(health.outcomes[name] >= number for name, number in outcomes.items()):
            await asyncio.sleep(0.01)


def written(server):
    found = [each for (kind, *_), each in server.objects.items() if kind == "events"]
    return [(each["type"], each["reason"], each["message"]) for each in found]


async def kubectl(server, folder, *arguments):
    process = await asyncio.create_subprocess_exec(
        "kubectl", f"--server={server.url}", f"--certificate-authority={folder}/pod/ca.crt",
        f"--token={server.token}", f"--namespace={NAMESPACE}", f"--cache-dir={folder}/cache", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"HOME": str(folder), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    async with asyncio.timeout(60):
        return (await process.communicate())[0].decode()


async def test_kubectl_describe_pod_shows_the_incident(server, tmp_path):
    """From its beginning over the cause that was found out to its end, and nothing of another pod."""
    server.add("pods", pod(), "llama-1")
    dead = {"cause": "dead_worker"}
    ended = told("resolved", t=1_763_700_120.0, **dead)
    story = made(told(), told("updated", **dead), told("updated", **dead), ended)
    async with telling(server, POD) as (one, health):
        one.saw(story)
        await counted(health, sent=3)
    assert health.outcomes == {"sent": 3, "failed": 0, "dropped": 0}
    assert [(kind, reason) for kind, reason, _ in written(server)] == [
        ("Warning", "EngineStalled"), ("Warning", "EngineStalled"), ("Normal", "EngineStalled"),
    ]  # fmt: skip
    shown = await kubectl(server, tmp_path, "describe", "pod", "llama-0")
    [first, second, last] = [line for line in shown.splitlines() if "EngineStalled" in line]
    assert first.split()[0] == "Warning"
    assert "vllm-watch" in first
    assert "engine 0 is stalled: hang. No step for 42 s." in first
    assert "engine 0 is stalled: " in second
    assert "Over after 2 min: No step for 42 s." in last
    other = await kubectl(server, tmp_path, "describe", "pod", "llama-1")
    assert "EngineStalled" not in other


async def test_an_event_is_there_once(server):
    """A watcher that tells it again, since it was restarted, writes no second one; a pod of the same name has its own."""
    for _ in range(2):
        async with telling(server, POD) as (one, health):
            one.saw(made(told()))
            await counted(health, sent=1)
    assert len(written(server)) == 1
    server.add("pods", pod())  # replaced: another uid
    async with telling(server, POD) as (one, health):
        one.saw(made(told()))
        await counted(health, sent=1)
    assert len(written(server)) == 2


async def test_whose_pod_it_is(server):
    """Of a target without a pod nothing is told, unless our own is said to be its; of a host's GPUs whom it concerns."""
    async with telling(server, BARE) as (one, health):
        one.saw(made(told()))
        await counted(health)
    assert written(server) == []
    async with telling(server, BARE, pod="$POD_NAME") as (one, health):
        one.saw(made(told()))
        await counted(health, sent=1)
    assert len(written(server)) == 1
    async with telling(server, POD) as (one, health):
        one.saw(made(told(id="xid", target="host:n", kind="gpu_fault", concerns=["chat", "gone"])))
        await counted(health, sent=1)
    assert written(server)[1][1] == "GpuFault"


async def test_a_server_that_is_away_is_asked_again(server):
    """It may be upgraded just now; what it refuses for good is dropped, with its words."""
    server.instead = [status(503, "", "away"), status(429, "", "slowly")]
    async with telling(server, POD) as (one, health):
        one.saw(made(told()))
        await counted(health, sent=1)
        assert health.outcomes == {"sent": 1, "failed": 2, "dropped": 0}
        server.instead = [status(403, "Forbidden", 'User "x" cannot get resource "pods"')]
        one.saw(made(told(id="2")))
        await counted(health, dropped=1)
        assert 'HTTP 403 User "x" cannot get resource "pods"' in health.because
        server.instead = [status(503, "", "away") for _ in range(kubernetes_events.TRIES_MAX)]
        one.saw(made(told(id="3")))
        await counted(health, dropped=2)
    assert len(written(server)) == 1


async def test_no_secret_and_no_end_of_text(server):
    """What the API server would refuse for its length, and what nobody may read."""
    async with telling(server, POD) as (one, health):
        one.saw(made(told(summary="see https://u:s3cr3t@h/ " + "and so on " * 500)))
        await counted(health, sent=1)
    [(_, _, message)] = written(server)
    assert len(message) <= kubernetes_events.MESSAGE_MAX
    assert "s3cr3t" not in message


async def test_a_trial(server, tmp_path):
    """`vllm-watch notify test` writes one of our own pod, or says what is missing."""
    server.add("pods", pod(), "watch-0")

    async def trial(**more):
        file = tmp_path / "c.yaml"
        file.write_text(
            yaml.safe_dump({"notifications": {"kubernetes": [{"name": "ev", "pod": "$WHERE"}]}})
        )
        code = "import sys; from pathlib import Path; from vllm_watch.clients import kubernetes; from vllm_watch.__main__ import main\n"
        code += f"kubernetes.SERVICE_ACCOUNT = Path({str(tmp_path / 'pod')!r})\nsys.exit(main(sys.argv[1:]))"
        return await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", code, "notify", "test", "ev", "--config", file],
            cwd=ROOT, env=os.environ | server.environ | more, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    done = await trial(WHERE="watch-0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "kubectl describe pod watch-0 shows the test" in done.stdout
    assert [(kind, reason) for kind, reason, _ in written(server)] == [("Normal", "Test")]
    done = await trial(WHERE="nowhere")
    assert (done.returncode, "name our pod in `pod`" in done.stdout) == (1, True)
    done = await trial()
    assert (done.returncode, "the environment has no WHERE" in done.stdout) == (1, True)
