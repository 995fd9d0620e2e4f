"""A process that /proc shows as `vllm serve`, with a real socket behind it, for tests of how servers are found."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from tests.ports import free_port

BODY = Path(__file__).parent / "sources/captures/0.32.0-v1-cpu-midload.txt"

SCRIPT = """
import http.server, sys

body = open({body!r}, "rb").read()

class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path not in ("/metrics", "/health"):
            return self.send_error(404)
        said = body if self.path == "/metrics" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", {port}), Engine)
print("listening", flush=True)
server.serve_forever()
"""


@asynccontextmanager
async def vllm_serve(folder, *words, port=None):
    """Run `python FOLDER/vllm WORDS`, in which {port} is its port; yields (process, port)."""
    port = port or free_port()
    words = [word.format(port=port) for word in words]
    folder.mkdir(exist_ok=True)
    script = folder / "vllm"
    script.write_text(SCRIPT.format(body=str(BODY), port=port))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), *words, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"listening\n"
        yield process, port
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
