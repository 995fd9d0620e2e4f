"""What can be no count is unknown to the signals and to every detector, and breaks none of them."""

from math import inf

import pytest

from tests.detectors.looks import engine, seen
from vllm_watch.samples.engine import Histogram
from vllm_watch.samples.record import changed
from vllm_watch.signals.sanitize import COUNT_MAX, sanitized
from vllm_watch.watch.watch import Watch

NO_COUNTS = (float("nan"), inf, -5.0, 4e307, COUNT_MAX)
FIELDS = ("requests_running", "kv_cache_usage", "generation_tokens", "preemptions", "created_time")


def sole(observation):
    return sanitized(observation).reading.engines[0]


@pytest.mark.parametrize("value", NO_COUNTS)
def test_what_is_no_count_is_unknown(value):
    """A number that is NaN, infinite, negative or beyond all counting is not passed on, the others are."""
    odd = seen(0, changed(engine(waiting=3.0), **dict.fromkeys(FIELDS, value)), fds=value)
    sample = sole(odd)
    assert [getattr(sample, name) for name in FIELDS] == [None] * len(FIELDS)
    assert sample.requests_waiting == 3.0
    server = sanitized(odd).reading.server
    assert server.process_open_fds is None
    assert server.process_start_time is not None


@pytest.mark.parametrize("value", NO_COUNTS)
def test_a_histogram_whose_count_is_none_is_unknown(value):
    """Its sum alone says nothing; of success, one wrong part spoils the whole."""
    spoilt = changed(
        engine(), iteration_tokens=Histogram(value, 1.0), request_success={"stop": value}
    )
    sample = sole(seen(0, spoilt))
    assert (sample.iteration_tokens, sample.request_success) == (None, None)


@pytest.mark.parametrize("value", NO_COUNTS)
@pytest.mark.parametrize("name", FIELDS)
def test_no_detector_breaks_over_it_and_nobody_is_called(name, value):
    """A working engine with one absurd number: every detector has an answer, and none of them is an alarm."""
    watch = Watch("x")
    events = []
    for second in range(0, 300, 5):
        odd = changed(engine(1000 + 10 * second), **{name: value})
        events += watch.observe(seen(second, odd))
    assert watch.failures == {}
    assert events == []


@pytest.mark.parametrize("value", [float("nan"), inf, -inf, 4e307])
def test_a_histogram_keeps_its_count_without_its_sum(value):
    """Steps were taken, however wrong their sum is."""
    spoilt = changed(engine(), iteration_tokens=Histogram(7.0, value))
    assert sole(seen(0, spoilt)).iteration_tokens == Histogram(7.0, None)
