"""A process that /proc shows as `vllm serve`: a capture of a real vLLM on its port, and an engine core that holds a real GPU.

    python FOLDER/vllm serve m --port PORT -- CAPTURE CUDA_PROGRAM MIB

It prints READY once its core holds its memory. Of vLLM only the names are played: the core is a CUDA program.
"""

import http.server
import os
import subprocess
import sys

port = int(sys.argv[sys.argv.index("--port") + 1])
capture, program, mib = sys.argv[sys.argv.index("--") + 1 :]
with open(capture, "rb") as file:
    body = file.read()


class Api(http.server.BaseHTTPRequestHandler):
    """Answers as an idle vLLM does."""

    def do_GET(self) -> None:
        """/metrics and /health."""
        if self.path not in ("/metrics", "/health"):
            self.send_error(404)
            return
        said = body if self.path == "/metrics" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


# A name that is no path leaves Python without its home.
environment = os.environ | {"PYTHONHOME": sys.base_prefix}
core = subprocess.Popen(
    ["bash", "-c", 'exec -a VLLM::EngineCore "$@"', "_", sys.executable, program, "--mib", mib],
    stdout=subprocess.PIPE, text=True, env=environment,
)  # fmt: skip
assert core.stdout
if core.stdout.readline() != "READY\n":
    sys.exit("the engine core holds no memory of a GPU")
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Api)
print(f"READY {core.pid}", flush=True)
server.serve_forever()
