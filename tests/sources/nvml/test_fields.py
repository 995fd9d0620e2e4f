"""What a GPU says of itself: the real pynvml over a fake driver that is scripted while it runs."""

import time
from pathlib import Path

import pytest

from tests.nvml_stub import GIB, h200, one
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.sources import gpu_pids


async def test_a_healthy_gpu_in_base_units(stub, make_source):
    """Bytes, ratios, watts, hertz and degrees; nothing wrong is an empty tuple or 0, not None."""
    stub.set_state(gpus={0: h200(clock_event_reasons=0x1)})
    reading = await make_source().read()
    assert reading.driver_version == "580.65.06"
    assert abs(reading.t - time.time()) < 60
    assert 0 < reading.duration_s < 10
    assert reading.gpus == (
        GpuSample(
            index=0, uuid="GPU-00000000-0000-4000-8000-000000000000", name="NVIDIA H200",
            memory_total_bytes=141 * GIB, memory_used_bytes=GIB // 2, memory_reserved_bytes=GIB,
            utilization_ratio=0.93, temperature_celsius=61.0, fan_ratio=0.3, power_watts=512.5,
            power_limit_watts=700.0, sm_clock_hz=1.755e9, sm_clock_max_hz=1.98e9,
            throttle_reasons=("gpu_idle",), xid_errors=(), ecc_uncorrected=0,
            remapped_rows_pending=False, remapped_rows_failed=False, lost=False, processes=(),
            processes_complete=gpu_pids.we_are_initial(Path("/proc")),
        ),
    )  # fmt: skip


# Key taken away (not supported) → the fields that are then unknown.
NOT_SUPPORTED = {
    "memory_total": ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes"),
    "utilization": ("utilization_ratio",),
    "temperature": ("temperature_celsius",),
    "fan": ("fan_ratio",),
    "power": ("power_watts",),
    "power_limit": ("power_limit_watts",),
    "sm_clock": ("sm_clock_hz",),
    "sm_clock_max": ("sm_clock_max_hz",),
    "clock_event_reasons": ("throttle_reasons",),
    "ecc_uncorrected": ("ecc_uncorrected",),
    "remapped_rows": ("remapped_rows_pending", "remapped_rows_failed"),
    "name": ("name",),
}


@pytest.mark.parametrize("key", NOT_SUPPORTED)
async def test_what_a_gpu_does_not_offer_is_unknown(stub, make_source, key):
    """Just those fields are None; all others stand."""
    stub.set_state(gpus={0: h200()})
    (whole,) = await one(make_source())
    stub.set_state(gpus={0: h200(**{key: None})})
    (gpu,) = await one(make_source())
    fields = set(GpuSample.__dataclass_fields__)
    missing = {field for field in fields if getattr(gpu, field) != getattr(whole, field)}
    assert missing == set(NOT_SUPPORTED[key])
    assert all(getattr(gpu, field) is None for field in missing)


ALL_ONES_32, ALL_ONES_64 = 2**32 - 1, 2**64 - 1
VALUES = [  # of a key, and what its field is then; None: what a driver answers in error is no measurement
    ("memory_used", 142 * GIB, "memory_used_bytes", None),
    ("memory_used", ALL_ONES_64, "memory_used_bytes", None),
    ("memory_used", 140 * GIB, "memory_used_bytes", 140 * GIB),
    ("memory_reserved", 142 * GIB, "memory_reserved_bytes", None),
    ("memory_total", 0, "memory_total_bytes", None),
    ("memory_total", ALL_ONES_64, "memory_total_bytes", None),
    ("utilization", 101, "utilization_ratio", None),
    ("utilization", 100, "utilization_ratio", 1.0),
    ("utilization", 0, "utilization_ratio", 0.0),
    ("temperature", 65535, "temperature_celsius", None),
    ("temperature", 104, "temperature_celsius", 104.0),
    ("temperature", 0, "temperature_celsius", 0.0),
    ("fan", ALL_ONES_32, "fan_ratio", None),
    ("fan", 104, "fan_ratio", 1.04),
    ("power", ALL_ONES_32, "power_watts", None),
    ("power_limit", ALL_ONES_32, "power_limit_watts", None),
    ("sm_clock", ALL_ONES_32, "sm_clock_hz", None),
    ("sm_clock_max", ALL_ONES_32, "sm_clock_max_hz", None),
    ("clock_event_reasons", ALL_ONES_64, "throttle_reasons", None),
    ("clock_event_reasons", 0x60, "throttle_reasons", ("sw_thermal_slowdown", "hw_thermal_slowdown")),
    ("clock_event_reasons", 0x84, "throttle_reasons", ("sw_power_cap", "hw_power_brake_slowdown")),
    ("clock_event_reasons", 1 << 40, "throttle_reasons", ("bit_40",)),
    ("ecc_uncorrected", ALL_ONES_64, "ecc_uncorrected", None),
    ("ecc_uncorrected", 7, "ecc_uncorrected", 7),
    ("remapped_rows", "0:1:1:0", "remapped_rows_pending", True),
    ("remapped_rows", "0:1:0:1", "remapped_rows_failed", True),
    ("name", "\udcff\udcfe", "name", None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "field", "expected"), VALUES)
async def test_absurd_values_are_unknown(stub, make_source, key, value, field, expected):
    """And those at the edges stand: the bounds that stop nonsense let through all that can be."""
    stub.set_state(gpus={0: h200(**{key: value})})
    (gpu,) = await one(make_source())
    assert getattr(gpu, field) == expected


@pytest.mark.parametrize(
    ("broken", "field", "expected"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", "memory_used_bytes", GIB // 2 + GIB),  # v1 counts the reserved part as used
        ("nvmlDeviceGetMemoryInfo_v2", "memory_reserved_bytes", None),
        ("nvmlDeviceGetTemperature", "temperature_celsius", 61.0),
        ("nvmlDeviceGetCurrentClocksEventReasons", "throttle_reasons", ()),
    ],
)  # fmt: skip
async def test_other_drivers_have_another_call(stub, make_source, broken, field, expected):
    """FUNCTION_NOT_FOUND for one spelling of a question: the other is asked."""
    stub.set_state(gpus={0: h200()}, **{f"error__{broken}": 13})
    (gpu,) = await one(make_source())
    assert getattr(gpu, field) == expected


@pytest.mark.parametrize("code", [3, 13, 999, 4711])
async def test_an_error_of_one_call_costs_one_field(stub, make_source, code):
    """Not supported, not permitted, unknown, or a code that pynvml has never heard of."""
    stub.set_state(gpus={0: h200()}, error__nvmlDeviceGetPowerUsage=code)
    (gpu,) = await one(make_source())
    assert (gpu.power_watts, gpu.temperature_celsius, gpu.lost) == (None, 61.0, False)
