"""The python_* and process_* families, with which a registry of one process begins."""

from vllm_watch.lab.wire import header, labels, number
from vllm_watch.samples.observation import ServerSample

_GENERATIONS = 3
_GC_OBJECTS = (22_842.0, 3132.0, 81.0)  # by generation, after the start alone
_GC_RUNS = (1365.0, 123.0, 9.0)
_GC_RUNS_PER_CPU_SECOND = (20.0, 1.8, 0.15)
_GC_OBJECTS_PER_RUN = (40.0, 300.0, 900.0)
_VIRTUAL_BYTES = 2_287_620_096.0
_MAX_FDS = 65_536.0
_PYTHON = {
    "implementation": "CPython",
    "major": "3",
    "minor": "11",
    "patchlevel": "7",
    "version": "3.11.7",
}


def process_lines(server: ServerSample) -> list[str]:
    """What the API server's process says of itself: this much moves even while the engine hangs."""
    cpu_seconds = server.process_cpu_seconds or 0.0
    runs = [
        n + cpu_seconds * more for n, more in zip(_GC_RUNS, _GC_RUNS_PER_CPU_SECOND, strict=True)
    ]
    objects = [
        first + (now - then) * each
        for first, now, then, each in zip(
            _GC_OBJECTS, runs, _GC_RUNS, _GC_OBJECTS_PER_RUN, strict=True
        )
    ]
    lines = []
    for what, text, values in (
        ("objects_collected", "Objects collected during gc", objects),
        ("objects_uncollectable", "Uncollectable objects found during GC", [0.0] * _GENERATIONS),
        ("collections", "Number of times this generation was collected", runs),
    ):
        name = f"python_gc_{what}_total"
        lines += header(name, "counter", text)
        lines += [
            f'{name}{{generation="{g}"}} {number(float(int(v)))}' for g, v in enumerate(values)
        ]
    lines += [*header("python_info", "gauge", "Python platform information")]
    lines.append(f"python_info{labels(_PYTHON)} 1.0")
    for name, kind, text, value in (
        ("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", _VIRTUAL_BYTES),
        ("resident_memory_bytes", "gauge", "Resident memory size in bytes.", server.process_resident_memory_bytes),
        ("start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", server.process_start_time),
        ("cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", cpu_seconds),
        ("open_fds", "gauge", "Number of open file descriptors.", server.process_open_fds),
        ("max_fds", "gauge", "Maximum number of open file descriptors.", _MAX_FDS),
    ):  # fmt: skip
        full = f"process_{name}"
        lines += [*header(full, kind, text), f"{full} {number(value or 0.0)}"]
    return lines
