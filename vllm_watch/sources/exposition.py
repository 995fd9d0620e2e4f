"""Parse the Prometheus text format fast.

Only the numbers change between two scrapes, so the rest of each line (its *head*) is parsed once.
Bodies with timestamps, exemplars or quoted names are parsed by prometheus_client.
"""

import re
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from prometheus_client import parser
from prometheus_client.openmetrics import parser as om

from vllm_watch.errors import ExpositionError

SERIES_MAX = 25_000
"""Maximum number of series. A vLLM with 16 engines has half as many. Parsing this many heads takes
0.25 s and 40 MB."""

LINE_CHARACTERS_MAX, LABELS_MAX = 16 << 10, 128
"""Maximum characters and labels of a line. vLLM's longest line, cache_config_info, has 1,000
characters and 40 labels."""

FOREIGN_BODY_CHARS_MAX = 256 * 2**10
"""prometheus_client gets bodies of at most this many characters. Parsing one takes 0.5 s."""

_EXCERPT_CHARS = 80
_NO_AGGREGATOR = "Check that the URL is a vLLM server's and not an aggregator's."

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'(?!__)[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]++|\\.)*+"'
_HEAD = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL}(?:,{_LABEL})*+)?)\}})? (?=[^\s#])")
_LABELS = re.compile(r'\b([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]++|\\.)*+)"')
_HELP = re.compile(rf"# HELP ({_NAME})(?: (\S.*))?")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (\S+)")
_ESCAPES = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}
_LABEL_ESCAPE = re.compile(r'\\[\\n"]')
_NUMERALS = dict.fromkeys(map(ord, "0123456789.e+-NaIfn\n"))
_TYPES = frozenset(
    (
        "counter",
        "gauge",
        "summary",
        "histogram",
        "gaugehistogram",
        "unknown",
        "untyped",
        "info",
        "stateset",
    )
)


class Series(NamedTuple):
    """A line's name and labels."""

    name: str
    labels: dict[str, str]


class Layout:
    """The lines of a body without their values, in order. Targets may share one layout."""

    def __init__(self, heads: tuple[str, ...], is_sample: bytes) -> None:
        self.heads = heads
        self._is_sample = is_sample
        self._is_comment = bytes(not each for each in is_sample)
        self._heads_characters = sum(map(len, heads))
        self.bindings: dict[bool, Any] = {}  # of sources/reading.py

    def read(self, body: str, *, lazily: bool) -> "Exposition | None":
        """Return None if the body has another layout. If `lazily`, numbers stay text, and converting them later may raise ValueError."""
        heads = self.heads
        lines = body.split("\n", len(heads))
        if len(lines) != len(heads):
            return None
        tails = list(map(str.removeprefix, lines, heads))
        joined = "\n".join(tails)
        # If a head differs, removeprefix keeps the whole line, and the joined tails are longer.
        if len(joined) != len(body) - self._heads_characters:
            return None
        # float() accepts 1_000; the exposition formats do not.
        if "_" in joined or any(compress(tails, self._is_comment)):
            return None
        if lazily and not joined.translate(_NUMERALS):
            return Exposition(self, None, tails=joined, words=tails)
        try:
            values = list(map(float, compress(tails, self._is_sample)))
        except ValueError:
            return None
        plain = " " not in joined
        return Exposition(
            self, values, tails=joined if plain else None, words=tails if plain else None
        )

    def lines_of(self, places: list[int]) -> list[int]:
        """Return the line numbers of these series; empty if prometheus_client parsed the body."""
        lines = [index for index, sample in enumerate(self._is_sample) if sample]
        return [lines[place] for place in places] if lines else []

    @property
    def names(self) -> Iterator[str]:
        for head in compress(self.heads, self._is_sample):
            yield head[:-1].partition("{")[0]

    def some(self, wanted: Callable[[str], bool]) -> Iterator[tuple[int, Series]]:
        """Yield index and series for each wanted name. Equal strings are shared in memory."""
        one: dict[str, str] = {}
        samples = compress(self.heads, self._is_sample)
        for index, (name, head) in enumerate(zip(self.names, samples, strict=True)):
            if wanted(name):
                yield index, _series(head, one)


class Lines(NamedTuple):
    """A body in which each line is split into a head and a tail (the last word). Bodies of one layout share one `heads` object."""

    heads: tuple[str, ...]
    tails: str  # joined by newlines


class Exposition:
    """The numbers of a body.

    `values` is None until they are converted. `tails` is the text after the heads, joined by
    newlines, and `words` is the same text as a list. Both are None if a tail has a space.
    """

    __slots__ = ("layout", "tails", "values", "words")

    def __init__(
        self,
        layout: Layout,
        values: list[float] | None,
        tails: str | None = None,
        words: list[str] | None = None,
    ) -> None:
        self.layout = layout
        self.values = values
        self.tails = tails
        self.words = words


class _ForeignLayout(Layout):
    def __init__(self, series: list[Series]) -> None:
        super().__init__((), b"")
        self.series = series

    def read(self, body: str, *, lazily: bool) -> Exposition | None:
        return None

    @property
    def names(self) -> Iterator[str]:
        return (each.name for each in self.series)

    def some(self, wanted: Callable[[str], bool]) -> Iterator[tuple[int, Series]]:
        return ((index, each) for index, each in enumerate(self.series) if wanted(each.name))


class _BeyondGrammarError(Exception):
    def __init__(self, index: int, line: str) -> None:
        self.index = index
        self.line = line


_shared: WeakValueDictionary[tuple[str, ...], Layout] = WeakValueDictionary()


class TooManyLinesError(ExpositionError):
    """A body with a new layout has too many lines."""


class Parser:
    """Reads the bodies of one target; keeps only the last layout."""

    def __init__(self) -> None:
        self._layout: Layout | None = None

    def parse(
        self, body: str, *, openmetrics: bool = False, lazily: bool = False, lines_max: int = SERIES_MAX
    ) -> Exposition:  # fmt: skip
        """Parse a body. Raises ExpositionError, or TooManyLinesError for a new layout of over `lines_max` lines."""
        known = None if self._layout is None else self._layout.read(body, lazily=lazily)
        if known is not None:
            return known
        # Count before splitting: 16 MB of short lines would become 300 MB of strings.
        count = body.count("\n") + 1
        if count > lines_max:
            raise TooManyLinesError(
                f"the body has {count} lines, more than {lines_max}", _NO_AGGREGATOR
            )
        if not isinstance(self._layout, _ForeignLayout):
            self._layout = None  # two layouts at once take twice the memory
        lines = body.split("\n")
        longest = max(lines, key=len)
        if len(longest) > LINE_CHARACTERS_MAX:
            cause = f"line {lines.index(longest) + 1} has {len(longest)} characters, more than {LINE_CHARACTERS_MAX}"
            raise ExpositionError(cause, _NO_AGGREGATOR)
        theirs = _with_prometheus_client(body, None, openmetrics=True) if openmetrics else None
        try:
            exposition = _learn(lines)
        except _BeyondGrammarError as odd:
            return self._foreign(theirs or _with_prometheus_client(body, odd, openmetrics=False))
        self._layout = exposition.layout
        return exposition

    def _foreign(self, samples: list[tuple[Series, float]]) -> Exposition:
        series = [each for each, _ in samples]
        # If the series are equal, keep the layout, so that Reader keeps its field positions.
        if not isinstance(self._layout, _ForeignLayout) or self._layout.series != series:
            self._layout = _ForeignLayout(series)
        return Exposition(self._layout, [value for _, value in samples])


def _learn(lines: list[str]) -> Exposition:
    is_sample = bytearray()
    values: list[float] = []
    for index, line in enumerate(lines):
        if line and line[0] not in "# \t\r":
            lines[index], value = _split_sample(index, line)
            values.append(value)
            is_sample.append(True)
            continue
        if line.strip() and not _is_plain_comment(line):
            raise _BeyondGrammarError(index, line)
        is_sample.append(False)
    key = tuple(lines)
    layout = _shared.get(key)
    if layout is None:
        layout = _shared[key] = Layout(key, bytes(is_sample))
    return Exposition(layout, values)


def _split_sample(index: int, line: str) -> tuple[str, float]:
    match = _HEAD.match(line)
    if match is None or (match[2] and _has_duplicate_label(index, match[2])):
        raise _BeyondGrammarError(index, line)
    tail = line[match.end() :]
    if "_" in tail:
        raise _BeyondGrammarError(index, line)
    try:
        return match[0], float(tail)
    except ValueError:
        raise _BeyondGrammarError(index, line) from None


def _has_duplicate_label(index: int, labels: str) -> bool:
    names = [name for name, _ in _LABELS.findall(labels)]
    if len(names) > LABELS_MAX:
        cause = f"line {index + 1} has {len(names)} labels, more than {LABELS_MAX}"
        raise ExpositionError(cause, _NO_AGGREGATOR)
    return len(names) != len(set(names))


def _is_plain_comment(line: str) -> bool:
    if not line.startswith("#"):
        return False
    if "HELP" not in line and "TYPE" not in line:
        return True
    line = line.rstrip()
    if _HELP.fullmatch(line):
        return True
    match = _TYPE.fullmatch(line)
    return match is not None and match[2] in _TYPES


def _series(head: str, one: dict[str, str]) -> Series:
    match = _HEAD.match(head + "0")
    assert match is not None, head  # noqa: S101 - only this expression makes heads
    labels = {
        one.setdefault(k, k): one.setdefault(v, v) for k, v in _LABELS.findall(match[2] or "")
    }
    if "\\" in head:
        labels = {k: _unescaped(v) for k, v in labels.items()}
    return Series(one.setdefault(match[1], match[1]), labels)


def _unescaped(value: str) -> str:
    return _LABEL_ESCAPE.sub(lambda match: _ESCAPES[match[0]], value)


def _with_prometheus_client(
    body: str, odd: _BeyondGrammarError | None, *, openmetrics: bool
) -> list[tuple[Series, float]]:
    where = f"line {odd.index + 1}: {odd.line[:_EXCERPT_CHARS]!r}" if odd else "OpenMetrics"
    remedy = "Check the URL's answer with curl; it may be a proxy or another service."
    if len(body) > FOREIGN_BODY_CHARS_MAX:
        raise ExpositionError(
            f"{where} is beyond the plain text format, in a body of {len(body)} characters", remedy
        )
    try:
        if openmetrics:
            metrics = list(om.text_string_to_metric_families(body))  # type: ignore[no-untyped-call]
        else:
            metrics = list(parser.text_string_to_metric_families(body))
    except MemoryError:
        raise
    except Exception as error:  # third-party code on untrusted input
        detail = f" ({error})" if str(error) else ""
        if openmetrics:
            raise ExpositionError(f"the body is not OpenMetrics{detail[:200]}", remedy) from error
        raise ExpositionError(f"{where} is not the Prometheus text format", remedy) from error
    samples = [each for metric in metrics for each in metric.samples if each.value is not None]
    return [(Series(each.name, each.labels), float(each.value)) for each in samples]
