"""CPU time of one poll of 8 GPUs that hold 64 processes, judged, over the fake driver: `python -m benchmarks.bench_nvml`.

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
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader

GPUS, PROCESSES_PER_GPU, POLLS, TARGET_MILLISECONDS = 8, 8, 100, 5.0


async def poll(stub: NvmlStub, pids: list[int]) -> tuple[float, float, int]:
    """CPU milliseconds of one warm poll, of judging it, and how many holders it named."""
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
    judge, begun_s = HolderJudge(), time.process_time()
    for number in range(POLLS):
        judge.look(5.0 * number, reading.t + 5.0 * number, reading.gpus or ())
    judged_s = time.process_time() - begun_s
    named = sum(bool(p.cmdline) for gpu in reading.gpus or () for p in gpu.processes or ())
    return spent_s / POLLS * 1000, judged_s / POLLS * 1000, named


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    # By their command line workers of vLLM's: the dearest to look at, for their ancestors are read too.
    command = ["bash", "-c", "exec -a VLLM::Worker sleep 120"]
    holders = [subprocess.Popen(command) for _ in range(GPUS * PROCESSES_PER_GPU)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            stub = NvmlStub(folder)
            stub.load()
            milliseconds, judging, named = asyncio.run(
                poll(stub, [holder.pid for holder in holders])
            )
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
    print(
        f"nvml: {milliseconds:.2f} ms CPU per poll of {GPUS} GPUs with {named} named processes, and "
        f"{judging:.2f} ms to judge who holds what (target {TARGET_MILLISECONDS:.0f} ms together); "
        f"every 5 s: {(milliseconds + judging) / 50:.3f} % of a core"
    )


if __name__ == "__main__":
    main()
