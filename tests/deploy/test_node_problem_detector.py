"""The plugin of node-problem-detector: no, yes, or unknown, by what the watcher's metrics hold."""

import asyncio
import json
import subprocess

from prometheus_client import CollectorRegistry

from tests.cli.answering import answer, answering
from tests.daemon_process import ROOT
from tests.export.small_board import small_board
from vllm_watch.export.text import render
from vllm_watch.story.kinds import STORIES

FOLDER = ROOT / "deploy/node-problem-detector"
OPEN = b'vllm_watch_incident_open{target="chat",kind="gpu_fault",cause="xid"} 1\n'


async def ask(pieces):
    """Run the plugin against a server that gives this answer."""
    with answering() as one:
        one.pieces = (pieces,)
        return await run(one.url.rpartition(":")[2])


async def run(port, kind="gpu_fault"):
    process = await asyncio.create_subprocess_exec(
        str(FOLDER / "vllm-watch-incident.sh"), kind, "127.0.0.1", port, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 20)
    assert err == b""
    return process.returncode, out.decode().strip()


async def test_no_yes_and_unknown():
    text = render(small_board(), CollectorRegistry()).decode()
    healthy = text.replace('kind="gpu_fault"', 'kind="other"').encode()
    assert await ask(answer(healthy)) == (0, "none open")
    assert await ask(answer(healthy + OPEN)) == (1, "1 open, see the page of vllm-watch")
    assert (await ask(answer(OPEN, "401 Unauthorized")))[0] == 2
    assert (await ask(answer(healthy + b" " * 100)[:-100]))[0] == 2  # cut short
    assert await run("9") == (2, "vllm-watch does not answer on port 9")


def test_its_rules_name_our_kinds():
    plugin = json.loads((FOLDER / "vllm-watch.json").read_text())
    conditions = {each["type"] for each in plugin["conditions"]}
    for rule in plugin["rules"]:
        assert rule["condition"] in conditions
        assert rule["args"][0] in STORIES
        assert rule["path"].endswith("vllm-watch-incident.sh")
