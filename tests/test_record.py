"""Records that are made at each look: copied as dataclasses are."""

from dataclasses import replace

import pytest

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import Reading, ServerSample
from vllm_watch.samples.record import changed

READING = Reading(vllm=True, engines=(EngineSample(engine="1", requests_running=2.0),))


@pytest.mark.parametrize(
    ("record", "values"),
    [
        (READING, {"server": ServerSample(version="0.32.0")}),
        (READING.engines[0], {"requests_running": None, "prompt_tokens": 7.0}),
        (Histogram(3.0, 1.5, (1.0, 2.0), (1.0, 3.0)), {"sum": None}),
    ],
)
def test_a_changed_record_is_a_replaced_one(record, values):
    before = repr(record)
    assert changed(record, **values) == replace(record, **values)
    assert repr(record) == before


def test_a_field_that_there_is_not():
    with pytest.raises(TypeError):
        changed(READING, serve=None)
