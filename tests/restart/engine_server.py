"""A simulated vLLM as a process of its own: `engine_server.py FOLDER PORT`.

It says in FOLDER that it was started (`starts`, a line each), who it is once it has the port (`pid`), and when it was asked to
end (`terms`). SIGUSR1 lets its engine core die (/health 503), SIGUSR2 hangs its API server. While FOLDER/broken exists it
exits at once; FOLDER/model names what it serves, and FOLDER/born says when it
began, in Unix seconds. `engine_server.py --fork` begins one for each line FOLDER PORT that it reads, which saves each the import.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.live import LabServer
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm


def created_t():
    """When this process began, in Unix seconds, as /proc says it: what vLLM exports."""
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - since_boot_s + ticks / os.sysconf("SC_CLK_TCK")


async def main(folder, port):
    with (folder / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if (folder / "broken").exists():
        return
    model = folder / "model"
    vllm = SimulatedVllm("vllm", **({"model_name": model.read_text()} if model.exists() else {}))
    scene = Scene([vllm])
    born = folder / "born"
    began_t = float(born.read_text()) if born.exists() else created_t()
    began_s = time.monotonic() - (time.time() - began_t)

    def advance():
        scene.advance(time.monotonic() - began_s)
        return scene.t

    def fault(name):
        advance()
        FAULTS[name].begin(vllm)

    def end():
        with (folder / "terms").open("a") as file:
            file.write(f"{time.time()}\n")
        os._exit(0)

    scene.begin_at(began_t)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, fault, "engine_dead")
    loop.add_signal_handler(signal.SIGUSR2, fault, "api_hang")
    loop.add_signal_handler(signal.SIGTERM, end)
    async with LabServer(vllm, advance, port=port) as server:
        new = folder / f"pid.{os.getpid()}"
        new.write_text(f"{os.getpid()}")
        new.rename(folder / "pid")
        while True:
            await server.follow()
            await asyncio.sleep(0.05)


def fork_each():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        folder, port = line.split()
        if os.fork() == 0:
            if os.fork():
                os._exit(0)  # a child of ours would be taken for a part of another server
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            asyncio.run(main(Path(folder), int(port)))
            os._exit(0)


if __name__ == "__main__":
    if sys.argv[-1] == "--fork":
        fork_each()
    else:
        asyncio.run(main(Path(sys.argv[-2]), int(sys.argv[-1])))
