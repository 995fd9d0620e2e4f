"""Of a watched engine only what is judged is read: that, to the last digit, and nothing that anybody misses."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from tests.sources.test_reading import CAPTURES
from vllm_watch.errors import ExpositionError
from vllm_watch.samples.engine import COUNTED, JUDGED, EngineSample
from vllm_watch.samples.record import changed
from vllm_watch.sources.reading import Reader

PACKAGE = Path(__file__).parents[2] / "vllm_watch"
IDENTITY = {"engine", "model_name"}
MAKERS = {"samples/engine.py", "sources/reading.py", "sources/vllm_names.py"}
SHOWS_ALL = {"cli/read.py"}
BODY = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3.0
# TYPE vllm:request_inference_time_seconds histogram
vllm:request_inference_time_seconds_bucket{engine="0",le="+Inf"} 12.0
vllm:request_inference_time_seconds_count{engine="0"} 12.0
vllm:request_inference_time_seconds_sum{engine="0"} 1.5
"""


def read_twice(reader, text, *, openmetrics=False):
    """What the second look reads, which knows the layout."""
    reader.read(text, openmetrics=openmetrics)
    return reader.read(text, openmetrics=openmetrics)


@pytest.mark.parametrize("name", CAPTURES)
def test_what_is_judged_is_what_a_whole_reading_has(name):
    text, openmetrics = CAPTURES[name].read_text(), "openmetrics" in name
    judged = read_twice(Reader(judged_only=True), text, openmetrics=openmetrics)
    whole = read_twice(Reader(), text, openmetrics=openmetrics)
    assert repr(judged.server) == repr(whole.server)
    assert [e.engine for e in judged.engines] == [e.engine for e in whole.engines]
    for one, all_ in zip(judged.engines, whole.engines, strict=True):
        for field in fields(EngineSample):
            expected = getattr(all_, field.name) if field.name in JUDGED | IDENTITY else None
            if field.name in COUNTED and expected is not None:
                expected = changed(expected, cumulative=())
            assert repr(getattr(one, field.name)) == repr(expected), field.name


def names_used(path):
    """Fields of EngineSample that a module may ask for: as an attribute, or by name (but for "http", a word)."""
    every = {field.name for field in fields(EngineSample)}
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "http":  # fmt: skip
            used.add(node.value)
    return used & every


def test_nobody_asks_for_what_is_not_read():
    """And everything that is read is asked for."""
    asked = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("lab/") and name not in MAKERS | SHOWS_ALL:
            asked |= names_used(path)
    assert asked - IDENTITY == JUDGED


def refused(text):
    """What a body of a known layout is refused for."""
    reader = Reader(judged_only=True)
    reader.read(BODY)
    with pytest.raises(ExpositionError) as caught:
        reader.read(text)
    assert reader.read(BODY).engines[0].requests_running == 3.0  # and goes on after it
    return caught.value.cause


@pytest.mark.parametrize("number", ["three", "3.0.0", "", "0x3", "1_0", "--3"])
def test_a_judged_number_that_is_none_is_refused_by_its_line(number):
    assert "line 2" in refused(BODY.replace("} 3.0", f"}} {number}"))


@pytest.mark.parametrize("number", ["twelve", "1_2", "0x12"])
def test_words_are_refused_wherever_they_stand(number):
    assert "line 4" in refused(BODY.replace('+Inf"} 12.0', f'+Inf"}} {number}'))


def test_of_a_number_that_nobody_asks_for_only_the_characters_are_looked_at():
    reader = Reader(judged_only=True)
    reader.read(BODY)
    assert reader.read(BODY.replace("1.5\n", "1.5.5\n")).engines[0].requests_running == 3.0


def test_numbers_of_every_form():
    reader = Reader(judged_only=True)
    reader.read(BODY)
    for number in ("1e3", "+Inf", "-Inf", "NaN", "-1.5e-07", "7", "infinity", "INF"):
        read = reader.read(BODY.replace("} 3.0", f"}} {number}"))
        assert repr(read.engines[0].requests_running) == repr(float(number))


def test_timestamps_are_read_as_ever():
    reader = Reader(judged_only=True)
    reader.read(BODY)
    text = BODY.replace("} 3.0", "} 4.0 1700000000000")
    assert reader.read(text).engines[0].requests_running == 4.0
    assert reader.lines is None


def test_the_lines_are_handed_on_for_the_recording():
    reader = Reader(judged_only=True)
    read_twice(reader, BODY)
    heads, tails = reader.lines
    assert "\n".join(map(str.__add__, heads, tails.split("\n"))) == BODY
