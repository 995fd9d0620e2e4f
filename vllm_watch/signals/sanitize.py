"""Replaces impossible numbers (NaN, negative, infinite) with None."""

from collections.abc import Sequence
from operator import attrgetter, is_

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.record import changed
from vllm_watch.signals.window import COUNTERS, HISTOGRAMS

COUNT_MAX = 2.0**53
"""Maximum valid number. Larger floats skip integers, and their squares may overflow."""

_COUNTS = (
    *COUNTERS,
    "requests_running",
    "requests_waiting",
    "requests_swapped",
    "kv_cache_usage",
    "created_time",
    "process_start_time",
)
_OF_PROCESS = (
    "process_start_time",
    "process_open_fds",
    "process_cpu_seconds",
    "process_resident_memory_bytes",
)
_process_of = attrgetter(*_OF_PROCESS)
_counts_of, _histograms_of = attrgetter(*_COUNTS), attrgetter(*HISTOGRAMS)


def sanitized(observation: Observation) -> Observation:
    """Return the observation without impossible numbers, usually the same object."""
    reading = observation.reading
    if reading is None:
        return observation
    engines = tuple([_of_engine(sample) for sample in reading.engines])
    wrong = _no_counts(_OF_PROCESS, _process_of(reading.server))
    server = changed(reading.server, **wrong) if wrong else reading.server
    if server is reading.server and all(map(is_, engines, reading.engines)):
        return observation
    return changed(observation, reading=changed(reading, engines=engines, server=server))


def _of_engine(sample: EngineSample) -> EngineSample:
    wrong: dict[str, Histogram | None] = dict(_no_counts(_COUNTS, _counts_of(sample)))
    histogram: Histogram | None
    for name, histogram in zip(HISTOGRAMS, _histograms_of(sample), strict=True):
        if histogram is None:
            continue
        if not 0 <= histogram.count < COUNT_MAX:
            wrong[name] = None
        elif histogram.sum is not None and not -COUNT_MAX < histogram.sum < COUNT_MAX:
            wrong[name] = changed(histogram, sum=None)
    success = sample.request_success
    if success is not None and not 0 <= sum(success.values()) < COUNT_MAX:
        wrong["request_success"] = None
    return changed(sample, **wrong) if wrong else sample


def _no_counts(names: Sequence[str], values: Sequence[float | None]) -> dict[str, None]:
    for value in values:
        if value is not None and not 0 <= value < COUNT_MAX:
            break
    else:
        return {}
    return {
        name: None
        for name, value in zip(names, values, strict=True)
        if value is not None and not 0 <= value < COUNT_MAX
    }
