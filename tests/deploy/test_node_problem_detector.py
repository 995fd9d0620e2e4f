"""The plugin of node-problem-detector: no, yes, or unknown, by what the watcher's metrics hold."""

import asyncio
import json
import subprocess

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from tests.daemon_process import ROOT
from tests.export.small_board import small_board
from vllm_watch.export.text import render
from vllm_watch.story.kinds import STORIES

FOLDER = ROOT / "deploy/node-problem-detector"
OPEN = 'vllm_watch_incident_open{target="chat",kind="gpu_fault",cause="xid"} 1\n'


@pytest.fixture
async def ask():
    """Run the plugin against a server that gives this answer."""
    runners = []

    async def ask(body, status=200, announced=None):
        async def answer(request):
            response = web.StreamResponse(
                status=status, headers={"Content-Length": str(announced or len(body.encode()))}
            )
            await response.prepare(request)
            await response.write(body.encode())
            request.transport.close()
            return response

        app = web.Application()
        app.router.add_get("/metrics", answer)
        runners.append(web.AppRunner(app, access_log=None))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        return await run(str(runners[-1].addresses[0][1]))

    yield ask
    for each in runners:
        await each.cleanup()


async def run(port, kind="gpu_fault"):
    process = await asyncio.create_subprocess_exec(
        str(FOLDER / "vllm-watch-incident.sh"), kind, "127.0.0.1", port, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 20)
    assert err == b""
    return process.returncode, out.decode().strip()


async def test_no_yes_and_unknown(ask):
    healthy = (
        render(small_board(), CollectorRegistry())
        .decode()
        .replace('kind="gpu_fault"', 'kind="other"')
    )
    assert await ask(healthy) == (0, "none open")
    assert await ask(healthy + OPEN) == (1, "1 open, see the page of vllm-watch")
    assert (await ask(OPEN, status=401))[0] == 2
    assert (await ask(healthy, announced=len(healthy.encode()) + 100))[0] == 2  # cut short
    assert await run("9") == (2, "vllm-watch does not answer on port 9")


def test_its_rules_name_our_kinds():
    plugin = json.loads((FOLDER / "vllm-watch.json").read_text())
    conditions = {each["type"] for each in plugin["conditions"]}
    for rule in plugin["rules"]:
        assert rule["condition"] in conditions
        assert rule["args"][0] in STORIES
        assert rule["path"].endswith("vllm-watch-incident.sh")
