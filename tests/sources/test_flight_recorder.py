"""The flight recorder gives back exactly what was observed, within its bounds of time, memory and disk."""

import asyncio
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.samples.observation import Call, CanaryCall, EngineCpu, Observation, ProcessState
from vllm_watch.sources.exposition import Lines, Parser
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.recording import read
from vllm_watch.sources.trace_line import RawObservation

CAPTURE = (Path(__file__).parent / "captures/0.32.0-v1-real-cpu.txt").read_text()
OK = Call(outcome="ok", status=200, latency_s=0.004)
REFUSED = Call(outcome="refused", error="Connect call failed", latency_s=0.001)
DEADLINE_SECONDS = 20


def seen(second, target="one", **fields):
    fields = {"scrape": OK, "health": OK} | fields
    return Observation(t=1.7e9 + second, monotonic_s=float(second), target=target, **fields)


def judged_with_gpus(second, **fields):
    """An observation of a server on this host, which was judged with the GPUs that were known then."""
    return seen(second, gpus=(), **fields)


def gpu_reading(second, used_bytes=5, status="ok"):
    holder = ProcessSample(pid=9, used_bytes=used_bytes, type="compute", cmdline=("a b", "ü\n"))
    gpu = GpuSample(index=0, uuid="GPU-a", memory_used_bytes=used_bytes, processes=(holder,))
    return GpuReading(status=status, t=1.7e9 + second, gpus=(gpu,) if status == "ok" else None)


def bodies(share=0.2, seed=1, text=CAPTURE):
    """Texts in which that share of the values changes each time."""
    chance = random.Random(seed)
    lines = text.split("\n")
    while True:
        for at, line in enumerate(lines):
            if line and not line.startswith("#") and chance.random() < share:
                lines[at] = f"{line.rpartition(' ')[0]} {chance.random() * 1e4!r}"
        yield "\n".join(lines)


async def dumped(recorder, path, target="one", seconds=10_000.0) -> list[RawObservation]:
    pieces = [piece async for piece in recorder.dump(target, seconds)]
    path.write_bytes(b"".join(pieces))
    return list(read(path))


async def until(holds):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.fixture(params=["memory", "disk"])
async def make(request, tmp_path):
    """Makes recorders that keep everything in memory, and such that spool to disk."""
    made = []

    def make(**settings):
        spool = tmp_path / "spool" if request.param == "disk" else None
        made.append(FlightRecorder(spool_dir=spool, **settings))
        return made[-1]

    yield make
    for recorder in made:
        await recorder.close()


async def test_a_dump_is_what_was_observed(make, tmp_path):
    """Texts byte for byte and every field, through failures, a restart with other lines, and no change."""
    recorder, texts = make(), bodies()
    run = [(seen(second), next(texts)) for second in range(100)]
    run += [(seen(100, scrape=REFUSED, health=None), None)]
    run += [(seen(101), "vllm:other 1.0\n"), (seen(102), "vllm:other 1.0\n"), (seen(103), "")]
    run += [
        (replace(seen(104), process=ProcessState(pid=3, alive=True)), next(texts)),
        (replace(seen(104), cpu=(EngineCpu(engine="0", waited_seconds=1.5),)), next(texts)),
        (
            replace(seen(105), canary=CanaryCall(ok=False, latency_s=2.0, error="timeout")),
            "ä 1\r\n",
        ),
    ]
    recorder.name_url("one", "http://127.0.0.1:8000")

    for observation, body in run:
        recorder.observe(observation, body)
        await asyncio.sleep(0)
    found = await dumped(recorder, tmp_path / "dump.jsonl.gz")

    assert [raw.metrics for raw in found] == [body for _, body in run]
    for raw, (observation, _) in zip(found, run, strict=True):
        assert raw.target == "http://127.0.0.1:8000"
        for name in ("t", "monotonic_s", "scrape", "health", "process", "cpu", "canary", "gpus"):
            assert getattr(raw, name) == getattr(observation, name)


async def test_what_is_too_old_goes_and_nothing_newer(make, tmp_path):
    """The window is kept whole, with at most a tenth more before it."""
    recorder, texts = make(seconds=100), bodies()
    for second in range(500):
        recorder.observe(seen(second), next(texts))

    found = await dumped(recorder, tmp_path / "dump.jsonl.gz")
    asked_for = await dumped(recorder, tmp_path / "dump.jsonl.gz", seconds=30)

    assert recorder.span_seconds("one") == 100
    assert 389 <= found[0].monotonic_s <= 399
    assert [raw.monotonic_s for raw in found][-1] == 499
    assert len(found) == 500 - found[0].monotonic_s
    # Counted back from the newest observation, both ends included.
    assert [raw.monotonic_s for raw in asked_for] == [float(second) for second in range(469, 500)]


async def test_a_step_of_the_wall_clock_changes_nothing(make, tmp_path):
    """Age is told by the monotonic clock; times are given back as they were told."""
    recorder = make(seconds=100)
    for second in range(50):
        step = 7200 if second < 25 else -7200
        recorder.observe(replace(seen(second), t=1.7e9 + second + step), f"a {second}\n")

    found = await dumped(recorder, tmp_path / "dump.jsonl.gz")

    assert [raw.metrics for raw in found] == [f"a {second}\n" for second in range(50)]
    assert found[24].t - found[25].t == 14399


async def test_gpus_are_joined_as_they_were_known(make, tmp_path):
    """One series for the host; each observation that had GPUs gets the newest reading before it."""
    recorder = make()
    recorder.observe(seen(0), "a 0\n")
    recorder.observe_gpus(gpu_reading(1, used_bytes=100))
    recorder.observe(judged_with_gpus(2), "a 2\n")
    recorder.observe(judged_with_gpus(2, target="two"), "b 2\n")
    recorder.observe_gpus(gpu_reading(3, used_bytes=200))
    recorder.observe(judged_with_gpus(4), "a 4\n")
    recorder.observe(seen(4.5), "a 4.5\n")  # a target elsewhere: these are not its GPUs
    recorder.observe_gpus(gpu_reading(5, status="hung"))
    recorder.observe(seen(6), "a 6\n")
    recorder.observe_gpus(gpu_reading(7, status="no_driver"))
    recorder.observe(judged_with_gpus(8), "a 8\n")
    recorder.observe(judged_with_gpus(69), "a 69\n")

    found = await dumped(recorder, tmp_path / "one.jsonl.gz")
    other = await dumped(recorder, tmp_path / "two.jsonl.gz", target="two")

    first, second = gpu_reading(1, used_bytes=100).gpus, gpu_reading(3, used_bytes=200).gpus
    assert [raw.gpus for raw in found] == [None, first, second, None, None, (), None]
    assert [raw.gpus for raw in other] == [first]


async def test_targets_do_not_mix_and_can_be_forgotten(make, tmp_path):
    recorder, texts = make(), bodies()
    mine, other = next(texts), next(texts)
    recorder.observe(seen(1), mine)
    recorder.observe(seen(2, target="two"), other)

    recorder.forget("one")
    recorder.forget("never seen")

    assert await dumped(recorder, tmp_path / "one.jsonl.gz") == []
    assert recorder.memory_bytes("one") == recorder.span_seconds("one") == 0
    (raw,) = await dumped(recorder, tmp_path / "two.jsonl.gz", target="two")
    assert raw.metrics == other


async def test_a_target_stays_within_its_bytes(make, tmp_path):
    """Every value changes in every scrape: the history gets shorter, and stays exact."""
    recorder, texts = make(bytes_max_per_target=300_000), bodies(share=1)
    run = [next(texts) for _ in range(200)]
    for second, body in enumerate(run):
        recorder.observe(seen(second), body)
        await asyncio.sleep(0)

    found = await dumped(recorder, tmp_path / "dump.jsonl.gz")

    assert 40 < len(found) < 120
    assert [raw.metrics for raw in found] == run[-len(found) :]
    assert recorder.span_seconds("one") == len(found) - 1
    assert recorder.memory_bytes("one") < 300_000 + 2 * len(CAPTURE) + 32 * 1024
    assert all(file.stat().st_size <= 300_000 for file in tmp_path.glob("spool/*"))


async def test_memory_is_shared_and_bounded(tmp_path):
    """Without a disk, more targets mean a shorter history of each, and never more memory."""
    recorder, bound = FlightRecorder(memory_bytes_max=1_500_000), 1_500_000
    names = [f"target-{number}" for number in range(10)]
    sources = {name: bodies(seed=number) for number, name in enumerate(names)}
    last, parser = {}, Parser()
    for second in range(120):
        for name in names:
            last[name] = next(sources[name])
            exposition = parser.parse(last[name])
            lines = second and Lines(exposition.layout.heads, exposition.tails)
            recorder.observe(seen(second, target=name), last[name], lines or None)
            assert sum(map(recorder.memory_bytes, names)) <= bound

    spans = [recorder.span_seconds(name) for name in names]
    assert min(spans) > 20
    assert max(spans) < 119
    for name in names:
        found = await dumped(recorder, tmp_path / "dump.jsonl.gz", target=name)
        assert found[-1].metrics == last[name]
        assert found[-1].monotonic_s - found[0].monotonic_s == recorder.span_seconds(name)


async def test_with_a_disk_little_memory_costs_no_history(tmp_path):
    """Where the bodies alone would not fit, what is open goes to disk earlier."""
    recorder = FlightRecorder(memory_bytes_max=150_000, spool_dir=tmp_path / "spool")
    names = [f"target-{number}" for number in range(5)]
    run = {name: [] for name in names}
    sources = {name: bodies(seed=number) for number, name in enumerate(names)}
    for second in range(30):
        for name in names:
            run[name].append(next(sources[name]))
            recorder.observe(seen(second, target=name), run[name][-1])

    for name in names:
        found = await dumped(recorder, tmp_path / "dump.jsonl.gz", target=name)
        assert [raw.metrics for raw in found] == run[name]
    await recorder.close()


async def test_a_dump_is_not_disturbed_by_what_comes_meanwhile(make, tmp_path):
    """A slow reader gets what was there when it asked, though its places are written over."""
    recorder, texts = make(seconds=60, bytes_max_per_target=400_000), bodies(share=1)
    run = [next(texts) for _ in range(60)]
    for second, body in enumerate(run):
        recorder.observe(seen(second), body)
    dump = recorder.dump("one", 10_000)
    pieces = [await anext(dump)]

    for second in range(60, 260):
        recorder.observe(seen(second), next(texts))
        await asyncio.sleep(0)
    pieces += [piece async for piece in dump]

    path = tmp_path / "dump.jsonl.gz"
    path.write_bytes(b"".join(pieces))
    found = [raw.metrics for raw in read(path)]
    assert len(found) > 30
    assert found == run[-len(found) :]


async def test_the_spool_leaves_nothing_behind(tmp_path):
    """An earlier process's files go at the start, its own when a target goes and at the end."""
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "7.flight").write_bytes(b"of an earlier process")
    (spool / "notes.txt").write_text("not ours")
    recorder = FlightRecorder(spool_dir=spool)
    for target in ("one", "two"):
        recorder.observe(seen(1, target=target), CAPTURE)
    await until(
        lambda: sorted(f.name for f in spool.iterdir()) == ["2.flight", "3.flight", "notes.txt"]
    )

    recorder.forget("one")
    await until(lambda: sorted(f.name for f in spool.iterdir()) == ["3.flight", "notes.txt"])
    assert (spool / "3.flight").stat().st_mode & 0o077 == 0

    await recorder.close()
    assert [file.name for file in spool.iterdir()] == ["notes.txt"]


async def test_a_disk_that_fails_is_said_once_and_memory_takes_over(tmp_path):
    """The history goes on in memory; when the disk takes it again, that is said too."""
    recorder, texts = FlightRecorder(spool_dir=tmp_path / "spool"), bodies()
    recorder.observe(seen(0), next(texts))
    await until(lambda: list((tmp_path / "spool").glob("*.flight")))
    (tmp_path / "spool").rename(tmp_path / "unmounted")
    run = []
    with structlog.testing.capture_logs() as said:
        for second in range(1, 200):
            run.append(next(texts))
            recorder.observe(seen(second), run[-1])
            await asyncio.sleep(0.001)
        await until(lambda: recorder.observe(seen(200), None) or said)
        found = await dumped(recorder, tmp_path / "dump.jsonl.gz", seconds=100)
        assert [raw.metrics for raw in found if raw.metrics is not None] == run[-len(found) + 1 :]
        assert [entry["log_level"] for entry in said] == ["warning"]
        assert recorder.memory_bytes("one") > 150_000  # counted, so that its bound holds

        (tmp_path / "unmounted").rename(tmp_path / "spool")
        for second in range(300, 400):
            recorder.observe(seen(second), next(texts))
            await asyncio.sleep(0.001)
        await until(lambda: recorder.observe(seen(400), None) or len(said) > 1)
    assert [entry["log_level"] for entry in said] == ["warning", "info"]
    await recorder.close()


async def test_a_disk_that_hangs_holds_nothing_up(tmp_path, monkeypatch):
    """Observing goes on, a dump says that it cannot be had, and closing does not wait for ever."""
    monkeypatch.setattr("vllm_watch.sources.tape._READ_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("vllm_watch.sources.flight_recorder._CLOSE_SECONDS", 0.1)
    recorder, texts = FlightRecorder(spool_dir=tmp_path / "spool"), bodies()
    recorder.observe(seen(0), next(texts))
    assert await dumped(recorder, tmp_path / "dump.jsonl.gz")
    answers = threading.Event()

    def hangs(path, flags):  # as on a dead NFS server
        answers.wait(60)
        raise OSError("it was away")

    monkeypatch.setattr("vllm_watch.sources.tape.opener", hangs)
    for second in range(1, 100):
        recorder.observe(seen(second), next(texts))
    with pytest.raises(TimeoutError):
        await dumped(recorder, tmp_path / "dump.jsonl.gz")
    await recorder.close()

    assert recorder.span_seconds("one") == 0
    answers.set()  # lets the thread go on, and end
    await until(lambda: not any(t.name == "flight-recorder" for t in threading.enumerate()))


async def test_damage_on_the_disk_costs_its_group_only(tmp_path):
    """Other bytes come back than were written: the rest of the recording is still given out."""
    recorder, texts = FlightRecorder(seconds=100, spool_dir=tmp_path / "spool"), bodies()
    run = [next(texts) for _ in range(60)]
    for second, body in enumerate(run):
        recorder.observe(seen(second), body)
    await dumped(recorder, tmp_path / "dump.jsonl.gz")  # reads from the disk after it has written
    recorder.observe(seen(60), None)
    (file,) = (tmp_path / "spool").glob("*.flight")
    with file.open("r+b") as spoilt:
        spoilt.seek(20)
        spoilt.write(b"spoilt")

    with structlog.testing.capture_logs() as said:
        found = await dumped(recorder, tmp_path / "dump.jsonl.gz")

    assert [raw.metrics for raw in found if raw.metrics is not None] == run[10:]
    assert len(said) == 1
    await recorder.close()
