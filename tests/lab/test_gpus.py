"""GPUs and processes follow the engines on them."""

from random import Random

from benchmarks.lab.virtual import observations
from vllm_watch.lab.gpus import GpuRack, SimulatedGpuSource
from vllm_watch.lab.stories import L40S, STORIES
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes


def rack_with(per_second=3.0, **options):
    rng = Random(1)
    workload = OpenLoop(rng, Sizes(rng, prompt_tokens=50, output_tokens=20), per_second)
    vllm = SimulatedVllm("a", workload=workload, config=L40S, epoch=1e9, **options)
    rack = GpuRack(2)
    rack.place(vllm, *range(vllm.num_engines))
    rack.sample()
    return rack, vllm


def test_utilization_and_power_follow_the_load():
    """More requests, more busy time, more watts, more heat."""
    readings = []
    for per_second in (0.0, 0.5, 5.0):
        rack, vllm = rack_with(per_second)
        vllm.advance(100.0)
        readings.append(rack.sample()[0])
    for field in ("utilization_ratio", "power_watts", "temperature_celsius"):
        values = [getattr(reading, field) for reading in readings]
        assert values[0] < values[1] < values[2], field
    assert readings[0].throttle_reasons == (), "a CUDA context keeps the clock up"
    bare = GpuRack(1).sample()[0]
    assert bare.throttle_reasons == ("gpu_idle",)
    assert bare.sm_clock_hz < readings[0].sm_clock_hz
    assert bare.power_watts < readings[0].power_watts


def test_a_restart_is_another_process():
    """Nothing while it is down, then a new PID that began with the restart and fills its memory."""
    rack, vllm = rack_with()
    vllm.advance(10.0)
    (before,) = rack.sample()[0].processes
    vllm.stop()
    vllm.advance(20.0)
    assert rack.sample()[0].processes == ()
    vllm.start(load_seconds=100.0)
    vllm.advance(70.0)
    (loading,) = rack.sample()[0].processes
    vllm.advance(130.0)
    (after,) = rack.sample()[0].processes

    assert loading.pid == after.pid != before.pid
    assert loading.used_bytes < after.used_bytes == before.used_bytes
    assert after.create_time == 1e9 + 20


def test_no_story_puts_more_on_a_gpu_than_fits():
    """The holders' bytes are what is used, and that is within the GPU."""
    for slug in STORIES:
        for look in observations(slug, 200, interval_s=20.0):
            for gpu in look.gpus or ():
                held = sum(process.used_bytes for process in gpu.processes)
                assert held == gpu.memory_used_bytes, slug
                assert held <= gpu.memory_total_bytes - gpu.memory_reserved_bytes, slug


async def test_the_source_has_the_shape_of_the_real_one():
    """It answers with a reading; a lab without GPUs is a machine without a driver."""
    rack, _ = rack_with()
    source = SimulatedGpuSource(rack, lambda: 123.0)
    reading = await source.read()
    assert (reading.status, reading.t, len(reading.gpus)) == ("ok", 123.0, 2)
    await source.close()

    none = await SimulatedGpuSource(None, lambda: 1.0).read()
    assert (none.status, none.gpus) == ("no_driver", None)
    assert none.text


def test_a_broken_gpu_says_so_and_the_others_do_not():
    """What the driver reports of it from then on; all else is as before."""
    rack, _ = rack_with()
    whole, other = rack.sample()
    rack.break_gpu(0, xid_errors=(48,), ecc_uncorrected=3)
    broken, same = rack.sample()
    assert (broken.xid_errors, broken.ecc_uncorrected) == ((48,), 3)
    assert (broken.memory_used_bytes, same) == (whole.memory_used_bytes, other)
