"""Deltas are exact for every text, and small where little changes."""

from hypothesis import given
from hypothesis import strategies as some

from vllm_watch.errors import ExpositionError
from vllm_watch.sources.body_deltas import UNCOMPARED, Decoder, Encoder, Lines
from vllm_watch.sources.exposition import Parser

# Few words and many separators, so that lines often agree in part.
texts = some.none() | some.text("ab \n\t\r~=-7é\x00\x01\ud800")


NAMES = (("a", "b"), ("a", "b", "c"))
numbers = some.sampled_from(["0.0", "1.0", "-2.5", "NaN", "3.0 ", "4.0\r", ""])
bodies = some.sampled_from(NAMES).flatmap(
    lambda names: some.lists(numbers, min_size=len(names), max_size=len(names)).map(
        lambda values: "# HELP a of a\n \t\n" + "".join(f"{n} {v}\n" for n, v in zip(names, values, strict=True))
    )
)  # fmt: skip


@given(some.lists(bodies | texts, max_size=8) | some.lists(bodies, min_size=8, max_size=24), some.booleans())  # fmt: skip
def test_every_run_of_bodies_that_were_read_comes_back(run, lazily):
    """Whether a text is known line by line or only as a whole, in any order of layouts."""
    encoder, decoder, parser, records = Encoder(), Decoder(), Parser(), ""
    for text in run:
        try:
            read = None if text is None else parser.parse(text, lazily=lazily)
        except ExpositionError:
            read = None
        known = read is not None and read.tails is not None
        records += encoder.encode("head", text, Lines(read.layout.heads, read.tails) if known else None)  # fmt: skip
    found = [None if lines is None else "\n".join(lines) for _, lines in decoder.decode(records)]
    assert found == run


def test_a_body_that_was_read_line_by_line_is_kept_without_its_heads():
    """Its memory is that of its values."""
    encoder, parser = Encoder(), Parser()
    for value in (1, 2, 3):
        text = "".join(f'vllm:a_rather_long_name{{le="{n}"}} {value}.0\n' for n in range(1000))
        read = parser.parse(text)
        lines = None if read.tails is None else Lines(read.layout.heads, read.tails)
        record = encoder.encode("head", text, lines)
    assert encoder.memory_bytes < len(text) / 5
    assert len(record) == len("head\n~\n") + 1001 + 1000 * len("3.0\n")


def test_a_changed_value_costs_little_more_than_itself():
    """Ten of a thousand values change: the record is a flag per line and the ten values."""
    lines = [f'vllm:a_rather_long_name{{le="{number}"}} 0.0' for number in range(1000)]
    encoder = Encoder()
    encoder.encode("head", "\n".join(lines))

    for number in range(10):
        lines[number] = lines[number].removesuffix("0.0") + "12345.0"
    record = encoder.encode("head", "\n".join(lines))

    assert len(record) < 1000 + 10 * len("12345.0\n") + 20


def test_where_most_values_change_they_are_not_compared():
    """And they come back all the same; from time to time it is looked whether most still do."""
    encoder, decoder, parser = Encoder(), Decoder(), Parser()
    texts_ = [
        f"# HELP a of a\n\na {value}.0\nb {value}.5\nc 7.0\n" for value in range(4 * UNCOMPARED)
    ]
    texts_ += [f"# HELP a of a\n\na {value}.0\nb 0.5\nc 7.0\n" for value in range(3 * UNCOMPARED)]
    records = []
    for text in texts_:
        read = parser.parse(text)
        lines = None if read.tails is None else Lines(read.layout.heads, read.tails, read.words)
        records.append(encoder.encode("head", text, lines))
    found = ["\n".join(lines) for _, lines in decoder.decode("".join(records)) if lines is not None]
    assert found == texts_
    kinds = "".join(record.split("\n")[1][0] for record in records)
    assert kinds.startswith("6~~" + ("@" * UNCOMPARED + "~") * 3)
    assert kinds.endswith("~" * UNCOMPARED)
