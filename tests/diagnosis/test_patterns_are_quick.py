"""No line of a log, however made, keeps the doctor busy: none of its patterns is quadratic in a line's length."""

import re
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.for_each import for_each
from vllm_watch.diagnosis import facts, finding, lines, phases, scanner, verdict
from vllm_watch.diagnosis.catalogue import FAILURES, RULES
from vllm_watch.diagnosis.families import (
    memory_numbers,
    model,
    packages,
    parallel,
    serving,
    unclassified,
)
from vllm_watch.diagnosis.rule import Cure, Variant

FILLERS = ("a", "1", " ", ".", "-", "_", "/", "A", "a ", "1.")
WORDS_MAX = 12
SECONDS_MAX = 0.5
"""The slowest takes a tenth of it for the longest line that is read; what was quadratic took seconds."""
LONG_CHARACTERS = 4 * lines.LINE_BYTES_MAX
"""Of one word over and over: what is quadratic in the number of words shows in longer lines only."""


def _of(module: ModuleType) -> Iterator[re.Pattern[str]]:
    yield from (each for each in vars(module).values() if isinstance(each, re.Pattern))


def _conditions() -> Iterator[re.Pattern[str]]:
    """Those of rules, variants and cures, which are asked of whole messages and logs."""
    conditioned: list[Variant | Cure] = []
    for failure in FAILURES.values():
        conditioned += (
            *failure.cures,
            *failure.variants,
            *(each for variant in failure.variants for each in variant.cures),
        )
    conditioned += (
        *unclassified.MEANINGS,
        *(each for meaning in unclassified.MEANINGS for each in meaning.cures),
    )
    for condition in (*(each.when for each in conditioned), *(rule.needs for rule in RULES)):
        yield from (
            each
            for each in (condition.says, condition.lacks, condition.seen, condition.frames)
            if each is not None
        )


PATTERNS = {
    each.pattern: each
    for each in (
        *(rule.pattern for rule in RULES if rule.pattern is not None),
        *(fact.pattern for fact in facts.FACTS),
        *(each for module in (finding, lines, phases, scanner, verdict, packages) for each in _of(module)),
        *(each for module in (memory_numbers, model, parallel, serving) for each in _of(module)),
        *_conditions(),
        *(pattern for pattern, _ in finding.AREAS),
    )
}  # fmt: skip


def hard_lines(pattern: str) -> Iterator[str]:
    """Of the longest that are read: one thing over and over, alone, after a word of the pattern, or between them."""
    words = sorted(set(re.findall(r"[A-Za-z_]{3,}[A-Za-z_ ]*", pattern)))[:WORDS_MAX]
    for filler in FILLERS:
        yield filler * (lines.LINE_BYTES_MAX // len(filler))
        for word in words:
            yield word + filler * ((lines.LINE_BYTES_MAX - len(word)) // len(filler))
            unit = f"{word} {filler}"
            yield unit * (lines.LINE_BYTES_MAX // len(unit))
    opened = ("", *re.findall(r"[A-Za-z]+: '", pattern))  # a quote that is never closed
    for word in re.findall(r"[A-Za-z_]{3,}", pattern):
        yield from (before + word * (LONG_CHARACTERS // len(word)) for before in opened)


def is_quick(pattern: re.Pattern[str]) -> None:
    """In CPU time, over each of the lines that are hard for it."""
    for text in hard_lines(pattern.pattern):
        began_s = time.process_time()
        for _ in pattern.finditer(text):
            pass
        took_s = time.process_time() - began_s
        assert took_s < SECONDS_MAX * max(1, len(text) / lines.LINE_BYTES_MAX), (took_s, text[:60])


@for_each(PATTERNS)
def test_a_pattern_is_quick(pattern: re.Pattern[str]) -> None:
    """Each of them."""
    is_quick(pattern)


def test_a_quadratic_pattern_would_be_found() -> None:
    """As those were that fuzzing found."""
    with pytest.raises(AssertionError):
        is_quick(re.compile(r"\w*Warning(?=: )"))
