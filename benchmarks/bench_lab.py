"""How fast the lab tells a story in virtual time: `python benchmarks/bench_lab.py`.

Ten engines at a request a second each, looked at every 5 s into full records, on one core. CPU time is
what the machine's other users cannot spoil; elapsed time is what a soak run waits for.
"""

import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.lab.virtual import observations
from vllm_watch.lab.exposition import Writer
from vllm_watch.lab.release import V0, V1
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes

FLEET_SECONDS = 3000
BODIES = 200


def bench_story(story: str, engines: int, seconds: float) -> None:
    elapsed_s, cpu_s = time.perf_counter(), time.process_time()
    looks = sum(1 for _ in observations(story, seconds))
    elapsed_s, cpu_s = time.perf_counter() - elapsed_s, time.process_time() - cpu_s
    simulated = engines * seconds
    print(
        f"{story:>10}: {simulated:>7,.0f} engine-seconds, {looks:>5,} observations: "
        f"{simulated / cpu_s:>8,.0f} per CPU second, {simulated / elapsed_s:>8,.0f} elapsed "
        f"({seconds / elapsed_s:,.0f} x real time)"
    )


def bench_text(name: str, vllm: SimulatedVllm) -> None:
    vllm.advance(120.0)
    writer = Writer(vllm)
    size = len(writer.body())
    cpu_s = time.process_time()
    for _ in range(BODIES):
        writer.body()
    cpu_s = time.process_time() - cpu_s
    print(f"{name:>10}: {size:,} bytes of /metrics in {1000 * cpu_s / BODIES:.2f} ms")


def main() -> None:
    bench_story("fleet", 10, FLEET_SECONDS)
    for story in ("healthy", "hang", "leak", "pinning"):
        bench_story(story, 1, FLEET_SECONDS)
    for name, release in (("V1 0.33.0", V1), ("V0 0.7.3", V0)):
        rng = Random(1)
        bench_text(
            name, SimulatedVllm("a", release=release, workload=OpenLoop(rng, Sizes(rng), 2.0))
        )


if __name__ == "__main__":
    main()
