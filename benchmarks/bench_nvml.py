"""CPU time of one poll of 8 GPUs that hold 64 processes, over the fake driver: `python -m benchmarks.bench_nvml`.

The fake driver's own work (looking up its script) is in the number, a real driver's is not: it works in
the kernel for some milliseconds more.
"""

import asyncio
import subprocess
import tempfile
import time

import structlog

from tests.nvml_stub import GIB, NvmlStub, h200
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader

GPUS, PROCESSES_PER_GPU, POLLS, TARGET_MILLISECONDS = 8, 8, 100, 5.0


async def poll(stub: NvmlStub, pids: list[int]) -> tuple[float, int]:
    """CPU milliseconds of one warm poll, and how many holders it named."""
    stamp = time.time_ns() // 1000
    share = [pids[i::GPUS] for i in range(GPUS)]
    stub.set_state(
        gpus={
            i: h200(
                i, processes=dict.fromkeys(share[i], GIB),
                process_utilization=",".join(f"{pid}:{stamp}:50" for pid in share[i]),
            )
            for i in range(GPUS)
        }
    )  # fmt: skip
    source = NvmlSource(GpuSettings(), ProcReader())
    for _ in range(3):
        reading = await source.read()
    begun_s = time.process_time()
    for _ in range(POLLS):
        reading = await source.read()
    spent_s = time.process_time() - begun_s
    await source.close()
    named = sum(bool(p.cmdline) for gpu in reading.gpus or () for p in gpu.processes or ())
    return spent_s / POLLS * 1000, named


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    holders = [subprocess.Popen(["sleep", "120"]) for _ in range(GPUS * PROCESSES_PER_GPU)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            stub = NvmlStub(folder)
            stub.load()
            milliseconds, named = asyncio.run(poll(stub, [holder.pid for holder in holders]))
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
    print(
        f"nvml: {milliseconds:.2f} ms CPU per poll of {GPUS} GPUs with {named} named processes "
        f"(target {TARGET_MILLISECONDS:.0f} ms); every 5 s: {milliseconds / 50:.3f} % of a core"
    )


if __name__ == "__main__":
    main()
