"""A tape gives back each text as it was, and keeps a body that was read line by line without its heads."""

import asyncio

from hypothesis import example, given
from hypothesis import strategies as some

from vllm_watch.errors import ExpositionError
from vllm_watch.sources.exposition import Lines, Parser
from vllm_watch.sources.tape import Tape, records

# Few words and many separators, so that lines often agree in part.
texts = some.none() | some.text("ab# \n\t\r=-7é\x00\x01\ud800")


NAMES = (("a", "b"), ("a", "b", "c"))
numbers = some.sampled_from(["0.0", "1.0", "-2.5", "NaN", "3.0 ", "4.0\r", ""])
bodies = some.sampled_from(NAMES).flatmap(
    lambda names: some.lists(numbers, min_size=len(names), max_size=len(names)).map(
        lambda values: "# HELP a of a\n \t\n" + "".join(f"{n} {v}\n" for n, v in zip(names, values, strict=True))
    )
)  # fmt: skip

ENOUGH_BYTES = 1 << 20


def new_tape():
    return Tape(seconds=600, bytes_max=ENOUGH_BYTES, spool=None)


def texts_of(tape):
    groups = asyncio.run(tape.packed_groups(float("-inf")))
    return [None if lines is None else "\n".join(lines) for group in groups for _, lines in records(group)]  # fmt: skip


@given(some.lists(bodies | texts, max_size=8) | some.lists(bodies, min_size=8, max_size=24), some.booleans())  # fmt: skip
@example(["# x 1", "# x "], False)
def test_every_run_of_bodies_that_were_read_comes_back(run, lazily):
    """Whether a text is known line by line or only as a whole, in any order of layouts."""
    tape, parser = new_tape(), Parser()
    for second, text in enumerate(run):
        try:
            read = None if text is None else parser.parse(text, lazily=lazily)
        except ExpositionError:
            read = None
        known = read is not None and read.tails is not None
        lines = Lines(read.layout.heads, read.tails) if known else None
        tape.append(float(second), "head", text, lines, memory_bytes=ENOUGH_BYTES)
    assert texts_of(tape) == run


def test_a_body_that_was_read_line_by_line_is_kept_without_its_heads():
    """Its memory is that of its values."""
    tape, parser = new_tape(), Parser()
    for value in (1, 2, 3, 4):
        text = "".join(f'vllm:a_rather_long_name{{le="{n}"}} {value}.0\n' for n in range(1000))
        read = parser.parse(text)
        lines = None if read.tails is None else Lines(read.layout.heads, read.tails)
        before = tape.memory_bytes
        tape.append(float(value), "head", text, lines, memory_bytes=ENOUGH_BYTES)
    assert tape.memory_bytes - before < len(text) / 5
    assert texts_of(tape)[-1] == text
