"""A vLLM server as the operating system shows it: `gpu_engine_server.py FOLDER vllm serve --port PORT`.

It serves a simulated vLLM's endpoints, tells its own start as vLLM does, and runs its core as a process of its own,
whose PID it writes to FOLDER/core: that is who holds GPU memory. It ends with its core on SIGTERM.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from vllm_watch.lab.live import LabServer
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm


def started():
    """Unix time of our own start, from the kernel's ticks."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    lines = Path("/proc/stat").read_text().splitlines()
    boot = next(int(line.split()[1]) for line in lines if line.startswith("btime"))
    return boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")


async def main(folder, port):
    core = subprocess.Popen(
        ["VLLM::EngineCore", "-c", "import time; time.sleep(1e6)"], executable=sys.executable
    )
    vllm = SimulatedVllm("vllm")
    scene = Scene([vllm])
    began_s = time.monotonic()

    def advance():
        scene.advance(time.monotonic() - began_s)
        return scene.t

    scene.begin_at(time.time())
    vllm.process_start_t = started() - time.time()  # on the scene's own time, which begins now
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with LabServer(vllm, advance, port=port) as server:
        (folder / "core").write_text(f"{core.pid}")
        while not ended.is_set():
            await server.follow()
            await asyncio.sleep(0.05)
    core.kill()
    core.wait()
    os._exit(0)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[-1])))
