"""What the flight recorder costs: CPU per scrape, memory and disk per target, time of a dump.

Three cases over the capture of a real vLLM 0.32.0: nothing but the process's own values changes (an
idle engine), a busy engine (100 values change, others each time), and every value in every scrape.

    python benchmarks/bench_recorder.py [--quick]      --quick leaves the thousand targets out
"""

import asyncio
import random
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from vllm_watch.samples.observation import Call, Observation
from vllm_watch.sources.exposition import Lines, Parser
from vllm_watch.sources.flight_recorder import FlightRecorder

CAPTURE = Path(__file__).parent.parent / "tests/sources/captures/0.32.0-v1-real-cpu.txt"
SCRAPES = 700  # ten minutes at one per second, and then some that push the oldest out
TARGETS = 1000
BUSY_VALUES = 100  # of 430: real recordings under load show 30 to 150


def bodies(changing: int | None, seed: int) -> Iterator[str]:
    """Bodies one second apart: `changing` values grow each time, None is all of them."""
    chance = random.Random(seed)
    lines = CAPTURE.read_text().split("\n")
    values = [at for at, line in enumerate(lines) if line and not line.startswith("#")]
    for scrape in count(1):
        for at in values if changing is None else chance.sample(values, changing):
            head, _, _ = lines[at].rpartition(" ")
            lines[at] = f"{head} {scrape * chance.random() * 1000!r}"
        yield "\n".join(lines)


def read(parser: Parser, body: str) -> Lines | None:
    """The body as the daemon has read it."""
    exposition = parser.parse(body)
    return (exposition.tails and Lines(exposition.layout.heads, exposition.tails)) or None


def observation(target: str, second: float) -> Observation:
    call = Call(outcome="ok", status=200, latency_s=0.004)
    return Observation(
        t=1.7e9 + second, monotonic_s=second, target=target, scrape=call, health=call
    )


async def one_target(name: str, changing: int | None, spool: Path | None) -> None:
    recorder = FlightRecorder(spool_dir=spool)
    source, parser = bodies(changing, seed=1), Parser()
    spent_s = worst_s = 0.0
    for second in range(SCRAPES):
        seen, body = observation("one", second), next(source)
        lines = read(parser, body)
        began = time.thread_time()
        recorder.observe(seen, body, lines)
        took_s = time.thread_time() - began
        spent_s, worst_s = spent_s + took_s, max(worst_s, took_s)
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    recorder.observe(observation("one", SCRAPES), None)  # so that what was written is let go
    disk = sum(file.stat().st_size for file in spool.iterdir()) if spool else 0
    memory, reach = recorder.memory_bytes("one"), recorder.span_seconds("one")
    began, dumped = time.perf_counter(), 0
    async for piece in recorder.dump("one", 600):
        dumped += len(piece)
    took_s = time.perf_counter() - began
    await recorder.close()
    print(
        f"{name:<24}{'disk' if spool else 'memory':<8}{spent_s / SCRAPES * 1e3:8.3f} ms/scrape"
        f"{worst_s * 1e3:8.2f} ms worst{memory / 1e3:9.0f} kB memory{disk / 1e6:7.2f} MB disk"
        f"{reach:6.0f} s back, dump {took_s:5.2f} s{dumped / 1e6:6.2f} MB"
    )


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def many_targets(spool: Path | None) -> None:
    """A thousand busy targets, five seconds apart, for a minute."""
    recorder = FlightRecorder(spool_dir=spool)
    names = [f"target-{number}" for number in range(TARGETS)]
    source, parser = bodies(BUSY_VALUES, seed=2), Parser()
    before = resident_bytes()
    spent_s, scrapes = 0.0, 0
    for second in range(0, 65, 5):
        body = next(source)
        for name in names:
            lines = read(parser, body)  # each has a text of its own in memory, as after a scrape
            began = time.thread_time()
            recorder.observe(observation(name, second), body, lines)
            spent_s, scrapes = spent_s + time.thread_time() - began, scrapes + 1
        await asyncio.sleep(0.2)
    each = (resident_bytes() - before) / TARGETS
    reach = sorted(map(recorder.span_seconds, names))
    await recorder.close()
    print(
        f"{TARGETS} targets, {'disk' if spool else 'memory only':<12}{spent_s / scrapes * 1e3:8.3f} ms/scrape"
        f"{each / 1e3:9.0f} kB resident each,  {reach[0]:.0f} to {reach[-1]:.0f} of 60 s back"
    )


def gzip_each_body(changing: int | None) -> None:
    """The peer: a recorder that packs each body on its own."""
    source, size = bodies(changing, seed=1), 0
    spent_s = 0.0
    for _ in range(SCRAPES // 10):
        body = next(source)
        began = time.thread_time()
        size += len(zlib.compress(body.encode()))
        spent_s += time.thread_time() - began
    each = size / (SCRAPES // 10)
    print(
        f"{'  gzip of each body':<32}{spent_s / (SCRAPES // 10) * 1e3:8.3f} ms/scrape"
        f"{'':<44}{each * 600 / 1e6:7.2f} MB for 600 s"
    )


def main() -> None:
    cases: list[tuple[str, int | None]] = [
        ("idle (6 values)", 6), (f"busy ({BUSY_VALUES} values)", BUSY_VALUES), ("every value", None),
    ]  # fmt: skip
    print("limits for 600 s at one scrape per second: 0.3 ms/scrape busy, 150 kB memory, 8 MB disk")
    for name, changing in cases:
        asyncio.run(one_target(name, changing, None))
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(one_target(name, changing, Path(folder)))
        gzip_each_body(changing)
    if "--quick" not in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(many_targets(Path(folder)))
        asyncio.run(many_targets(None))


if __name__ == "__main__":
    main()
