"""A simulated vLLM as a process of its own: `engine_server.py FOLDER PORT`.

It says in FOLDER that it was started (`starts`, a line each), and who it is once it has the port (`pid`). SIGUSR1 lets its engine
core die (/health 503), SIGUSR2 hangs its API server. While FOLDER/broken exists it exits at once.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.server import LabServer
from vllm_watch.lab.vllm import SimulatedVllm


async def main(folder, port):
    with (folder / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if (folder / "broken").exists():
        return
    vllm = SimulatedVllm("vllm")
    scene = Scene([vllm])
    began_s = time.monotonic()

    def advance():
        scene.advance(time.monotonic() - began_s)
        return scene.t

    def fault(name):
        advance()
        FAULTS[name].begin(vllm)

    scene.begin_at(time.time())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, fault, "engine_dead")
    loop.add_signal_handler(signal.SIGUSR2, fault, "api_hang")
    async with LabServer(vllm, advance, port=port) as server:
        (folder / "pid").write_text(f"{os.getpid()}")
        while True:
            await server.follow()
            await asyncio.sleep(0.05)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
