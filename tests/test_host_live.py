"""What is seen of a server's processes on this host, from end to end: where it stands when it hangs."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

from tests.daemon_process import ROOT, daemon

CAPTURE = ROOT / "tests" / "sources" / "captures" / "0.32.0-v1-cpu-midload.txt"

# A server that runs its engine in its own process, and says when it started as vLLM does.
SERVER = """
import http.server, os, re, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
boot = next(int(line.split()[1]) for line in open("/proc/stat") if line.startswith("btime"))
started = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
body = re.sub(r"(?m)^(process_start_time_seconds) .*", f"\\\\1 {started}", open(sys.argv[1]).read())
class Handler(http.server.BaseHTTPRequestHandler):
    steps = 0
    def do_GET(self):
        known = self.path in ("/metrics", "/health")
        self.send_response(200 if known else 404)
        self.end_headers()
        if self.path == "/metrics":
            Handler.steps = min(Handler.steps + 1, 3)  # it works for three scrapes, then stands still
            more = lambda found: f"{found[1]} {float(found[2]) + 100 * Handler.steps}"
            self.wfile.write(re.sub(r"(?m)^(vllm:generation_tokens_total\\S*) (\\S+)$", more, body).encode())
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@asynccontextmanager
async def serving():
    """The URL of such a server."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(CAPTURE), "vllm serve", stdout=asyncio.subprocess.PIPE
    )
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.communicate()


PY_SPY = """#!/bin/sh
echo 'Thread 1 (active): "MainThread"'
echo '    all_reduce (torch/distributed/distributed_c10d.py:7)'
"""


def stall(status):
    """The open incident, as told."""
    found = [each for target in status["targets"] for each in target["incidents"]]
    return next((each for each in found if each["kind"] == "engine_stalled"), None)


async def test_where_it_stands_is_told(tmp_path):
    """On its target's card and among the incidents; what a busy machine leaves no time for is told, too."""
    py_spy = tmp_path / "py-spy"
    py_spy.write_text(PY_SPY)
    py_spy.chmod(0o700)
    async with serving() as url:
        soon = {"notice_seconds": 0.5, "notice_young_seconds": 0.5}
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps({
            "py_spy": str(py_spy), "targets": [{"name": "a", "url": url}],
            "detectors": {"engine_stalled": soon},
        }))  # fmt: skip
        async with daemon("--config", config) as watcher:
            status = await watcher.until(lambda now: (stall(now) or {}).get("stacks"), 60.0)
            _, listed = await watcher.get("/api/v1/incidents")
    said = stall(status)["stacks"]
    assert said.startswith("API server (PID ")
    assert said.endswith((
        "): waits in a collective: all_reduce (torch/distributed/distributed_c10d.py:7).",
        "): no stack could be read.",
    ))  # fmt: skip
    assert json.loads(listed)["incidents"][0]["stacks"] == said
