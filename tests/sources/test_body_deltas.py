"""Deltas are exact for every text, and small where little changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from vllm_watch.sources.body_deltas import Decoder, Encoder

# Few words and many separators, so that lines often agree in part.
texts = some.none() | some.text("ab \n\t\r~=-7é\x00\x01\ud800")


def roundtrip(run):
    encoder, decoder = Encoder(), Decoder()
    records = "".join(encoder.encode(f"head {number}", text) for number, text in enumerate(run))
    return [
        (head, None if lines is None else "\n".join(lines))
        for head, lines in decoder.decode(records)
    ]


@given(some.lists(texts, max_size=8))
def test_every_run_of_texts_comes_back(run):
    """Whatever the texts and their order, including none at all."""
    assert roundtrip(run) == [(f"head {number}", text) for number, text in enumerate(run)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a 1\nb 2", "a 1\nb 3"),
        ("a 1\nb 2", "a 1\nc 2"),
        ("a 1", "a 1 # {trace=x} 2"),
        ("a", "b"),
        ("a", " a"),
        (" a", "a"),
        ("a b 1", "a 1"),
        ("a ", "a"),
        ("a 1\n", "a 1"),
        ("", "a"),
        ("a 1\r\nb 2\r\n", "a 1\r\nb 3\r\n"),
        ("a 1", "7"),
        ("a 1", "-"),
    ],
)
def test_a_change_of_any_kind_comes_back(old, new):
    """A value, a name, a separator, a line more or less: each is restored byte for byte."""
    run = [old, new, old]

    assert [text for _, text in roundtrip(run)] == run


def test_a_changed_value_costs_little_more_than_itself():
    """Ten of a thousand values change: the record is a flag per line and the ten values."""
    lines = [f'vllm:a_rather_long_name{{le="{number}"}} 0.0' for number in range(1000)]
    encoder = Encoder()
    encoder.encode("head", "\n".join(lines))

    for number in range(10):
        lines[number] = lines[number].removesuffix("0.0") + "12345.0"
    record = encoder.encode("head", "\n".join(lines))

    assert len(record) < 1000 + 10 * len("12345.0\n") + 20


def test_after_a_reset_the_next_text_stands_alone():
    """A group of records can be read without those before it."""
    encoder = Encoder()
    encoder.encode("first", "a 1\nb 2")
    encoder.reset()

    assert list(Decoder().decode(encoder.encode("second", "a 1\nb 3"))) == [
        ("second", ["a 1", "b 3"])
    ]
