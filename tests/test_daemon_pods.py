"""The whole daemon over pods: a planned end pages nobody, and the pod's next life is the same target."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kubernetes_api import NAMESPACE, certified
from tests.restart.hooks.fake_pods import STARTED, FakePods, pod
from tests.sources.wire import wire
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.config import Config
from vllm_watch.daemon import Daemon
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader

METRICS = (
    "# TYPE vllm:num_requests_running gauge\n"
    'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
)
QUICK = {"interval_seconds": 0.2, "timeout_seconds": 20, "connect_timeout_seconds": 20}


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakePods]:
    """The API server, and the environment of a pod in which we are."""
    folder = tmp_path / "pod"
    _, context = certified(folder)
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", folder)
    async with FakePods(notices_hang_ups=True).running(context) as server:
        for name, value in server.account(folder).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("KUBERNETES_SERVICE_PORT_HTTPS", raising=False)
        yield server


def engine(url: str) -> dict[str, Any]:
    """A pod whose server is at this URL of loopback."""
    made: dict[str, Any] = pod()
    made["metadata"]["annotations"] = {"vllm-watch/port": url.rpartition(":")[2]}
    made["status"]["podIP"] = "127.0.0.1"
    return made


async def told(daemon: Daemon, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{daemon.url}{path}") as answer:
        return await answer.json()


async def until_up(daemon: Daemon, *names: str) -> None:
    """Until these are the targets, and all answer."""
    async with asyncio.timeout(60):
        while True:
            targets = (await told(daemon, "/api/v1/status"))["targets"]
            up = [each["name"] for each in targets if (each["signals"] or {}).get("up")]
            if up == [*names] and len(targets) == len(names):
                return
            await asyncio.sleep(0.1)


async def test_deleted_pod_pages_nobody(server: FakePods) -> None:
    """It is deleted and falls silent in the same moment, as no engine does; its StatefulSet makes it anew."""
    document = {
        "listen": "127.0.0.1:0", "gpu": {"enabled": "off"}, "scrape": QUICK,
        "discovery": {"kubernetes": [{"selector": "app=llama"}]},
    }  # fmt: skip
    daemon = Daemon(
        Config.model_validate(document),
        lambda settings, config: NvmlSource(settings, ProcReader(config.procfs)),
    )
    try:
        async with wire() as vllm:
            vllm.on("/metrics", METRICS)
            server.add("pods", engine(vllm.url), "llama-0")
            await daemon.start()
            await until_up(daemon, "llama-0")
            [target] = (await told(daemon, "/api/v1/status"))["targets"]
            assert (target["group"], target["pod"]) == ("llama", "llama-0")
            server.objects["pods", NAMESPACE, "llama-0"]["metadata"]["deletionTimestamp"] = STARTED
            server.touched("pods", "llama-0")
        await until_up(daemon)
        async with wire() as vllm:
            vllm.on("/metrics", METRICS)
            server.add("pods", engine(vllm.url), "llama-0")
            await until_up(daemon, "llama-0")
            incidents = (await told(daemon, "/api/v1/incidents"))["incidents"]
            assert [each for each in incidents if each["severity"] == "page" or each["resolution"] != "target_gone"] == []  # fmt: skip
    finally:
        await daemon.stop()
