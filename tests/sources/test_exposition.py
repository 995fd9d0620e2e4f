"""The parser says exactly what prometheus_client's parsers say, and is quick because it learns layouts."""

import gc
import random
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.examples import examples
from vllm_watch.errors import ExpositionError
from vllm_watch.sources import exposition
from vllm_watch.sources.exposition import Parser, TooManyLinesError

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.txt"))


def theirs(body, *, openmetrics=False):
    """What prometheus_client makes of a body, or None where it refuses it: names, labels, number.

    Its text parser gives `_total` to counters that have it not: such a line may bear either name.
    """
    parse = parse_openmetrics if openmetrics else parse_text
    try:
        return [
            ({s.name, s.name.removesuffix("_total") if m.type == "counter" else s.name},
             s.labels, repr(float(s.value)))
            for m in parse(body) for s in m.samples
        ]  # fmt: skip
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def ours(body, parser=None, *, openmetrics=False):
    """What we make of it: name, labels, number; None where it is refused."""
    try:
        found = (parser or Parser()).parse(body, openmetrics=openmetrics)
    except ExpositionError:
        return None
    return [
        (name, labels, repr(value))
        for (_, (name, labels)), value in zip(
            found.layout.some(lambda _: True), found.values, strict=True
        )
    ]


def assert_equal(said, expected):
    """Both refuse the body, or read the same of it in the same order."""
    if said is None or expected is None:
        assert said == expected
        return
    assert [rest for _, *rest in said] == [rest for _, *rest in expected]
    assert [one[0] for one, other in zip(said, expected, strict=True) if one[0] not in other[0]] == []  # fmt: skip


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_every_capture_reads_as_prometheus_client_reads_it(path):
    """Cold, and warm with other numbers, in the text format and in OpenMetrics."""
    openmetrics = "openmetrics" in path.stem
    parser, body = Parser(), path.read_text()
    other = with_other_values(body)

    assert_equal(ours(body, parser, openmetrics=openmetrics), theirs(body, openmetrics=openmetrics))
    layout = parser._layout
    assert_equal(
        ours(other, parser, openmetrics=openmetrics), theirs(other, openmetrics=openmetrics)
    )
    assert parser._layout is layout  # the second body was not parsed anew


def with_other_values(body):
    def grown(line):
        head, _, value = line.rpartition(" ")
        # OpenMetrics insists that an info is 1 and that a histogram's +Inf bucket is its count.
        return (
            line if not line or line[0] == "#" or "info" in head else f"{head} {float(value) * 3}"
        )

    return "\n".join(grown(line) for line in body.split("\n"))


RICH = (
    'a 1\nb{c="d",e="f"} 2.5\n# HELP x some "help" with \\n\nb{c="g",e="f"} NaN\n\n# TYPE z counter\n'
    'z_total{le="+Inf",x="q\\"q\\\\ n\\nl é"} 3e4 \n# TYPE h histogram\nh_bucket{le="0.1"} 1\n'
    "h_sum 2.5\t\nh_count -1.5e+06\nup .5\n"
)
PIECES = (
    *'1_a{}"=,# \n.-N\\é\x00\r٣', "", "  ", "0x1", "1_000", "+Inf", " 1700000000000", "# TYPE ", "# HELP ", "_total", '{a="b"}',
)  # fmt: skip


def test_a_body_that_differs_in_little_from_the_last_reads_as_prometheus_client_reads_it():
    """Some characters more, less or others: the layout that was learnt changes nothing of what is read, or refused."""
    dice, warm, refused = random.Random(1), Parser(), 0
    for _ in range(2000):
        body = RICH
        for _ in range(dice.choice((1, 1, 3))):
            at = dice.randrange(len(body))
            body = body[:at] + dice.choice(PIECES) + body[at + dice.choice((0, 1, 1, 4)) :]
        expected = theirs(body)
        refused += expected is None
        assert_equal(ours(body), expected)
        warm.parse(RICH)
        assert_equal(ours(body, warm), expected)
    assert 200 < refused < 1500  # the damage is real, and so is what is left


@examples(300)
@given(st.text(alphabet='ab_:{}="\\,# \t\n1.e+-NHELPTY', max_size=80))
def test_any_text_reads_as_prometheus_client_reads_it_or_is_refused_by_both(body):
    assert_equal(ours(body), theirs(body))


def test_ten_thousand_new_series_every_time_leave_nothing_behind():
    """A body that never repeats a series is read, and only the last layout is kept."""
    parser = Parser()
    for turn in range(3):
        parser.parse("".join(f'x{{id="{turn}-{i}"}} 1\n' for i in range(10_000)))
    gc.collect()

    assert sum(len(key) for key in exposition._shared if 'x{id="0-1"} ' in key) == 0
    assert len(parser._layout.heads) == 10_001


def test_targets_with_the_same_series_share_a_layout():
    """A fleet of equal engines costs the memory of one."""
    a, b = Parser(), Parser()
    assert a.parse("x 1\ny 2\n").layout is b.parse("x 3\ny 4\n").layout


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ('x 1\ny{a="b} 2\n', "line 2: 'y{a=\"b} 2' is not the Prometheus text format"),
        ("x 1 2 3\nx one\n", "line 1: 'x 1 2 3' is not the Prometheus text format"),
        ("x 1_000\n", "line 1: 'x 1_000' is not the Prometheus text format"),
        ('x{a="1",a="2"} 1\n', 'line 1: \'x{a="1",a="2"} 1\' is not the Prometheus text format'),
        ("# HELP 1x y\nx 1\n", "line 1: '# HELP 1x y' is not the Prometheus text format"),
        ("# TYPE x odd\nx 1\n", "line 1: '# TYPE x odd' is not the Prometheus text format"),
        ("<" * 81, f"line 1: '{'<' * 80}' is not the Prometheus text format"),
        ("\x00\x01\x02", "line 1: '\\x00\\x01\\x02' is not the Prometheus text format"),
    ],
)
def test_a_damaged_body_is_refused_with_its_line(body, cause):
    """The error says where the first line is that is out of the ordinary, and shows it."""
    with pytest.raises(ExpositionError) as caught:
        Parser().parse(body)
    assert caught.value.cause == cause


def test_an_openmetrics_body_without_its_end_is_refused():
    """# EOF is there so that a cut body can be known; both cold and warm."""
    parser = Parser()
    parser.parse("# TYPE a gauge\na 1.0\n# EOF\n", openmetrics=True)
    with pytest.raises(ExpositionError, match="the body is not OpenMetrics"):
        parser.parse("# TYPE a gauge\na 1.0\n", openmetrics=True)


def test_bodies_beyond_all_reason_are_refused_before_they_are_parsed():
    """Strange lines in a long body would stop the event loop."""
    with pytest.raises(ExpositionError, match="line 1: .* is beyond the plain text format"):
        Parser().parse("x 1 1700000000\n" * 20_000)


def test_only_a_body_of_an_unknown_layout_is_held_to_the_lines_that_may_be_learnt():
    """What is known is read line by line, however many there are; none beyond them is taken apart."""
    body = "x 1\n" * 9
    parser = Parser()
    parser.parse(body)
    assert parser.parse(body, lines_max=9).values == [1.0] * 9
    with pytest.raises(TooManyLinesError, match="has 11 lines, more than 9"):
        parser.parse(body + "x 1\n", lines_max=9)
    assert parser.parse(body, lines_max=9).values == [1.0] * 9


def test_a_layout_with_timestamps_is_kept_while_its_series_stay():
    """Bodies beyond the plain grammar keep their layout too, so that readers bind to it once."""
    parser = Parser()
    first = parser.parse("x 1 1700000000000\n")
    second = parser.parse("x 2 1700000001000\n")

    assert first.layout is second.layout
    assert second.values == [2.0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x 1\n" * 25_001, "25002 lines, more than 25000"),
        ("x 1\ny{" + ",".join(f'a{i}="1"' for i in range(129)) + "} 1\n", "line 2 has 129 labels"),
        (f'x 1\ny{{a="{"z" * (16 << 10)}"}} 1\n', "line 2 has 16393 characters"),
        (f"# HELP x {'z' * (16 << 10)}\nx 1\n", "line 1 has 16393 characters"),
    ],
    ids=["lines", "labels", "a long label", "a long comment"],
)
def test_what_is_far_beyond_an_engine_is_refused_in_a_sentence(body, words):
    """Before it takes memory and time: each line of a body may be new at each look."""
    with pytest.raises(ExpositionError, match=words):
        Parser().parse(body)


NATIVE = """\
# TYPE a histogram
a {count:24,sum:100,schema:0,zero_threshold:0.001,zero_count:4,positive_spans:[0:2,1:2],positive_deltas:[2,1,-3,3]}
# TYPE b gauge
b 7
# EOF
"""


def test_a_native_histogram_hides_none_of_the_others():
    """It has no number of its own; what stands beside it is read."""
    read = Parser().parse(NATIVE, openmetrics=True)
    assert [(name, value) for name, value in zip(read.layout.names, read.values, strict=True)] == [
        ("b", 7.0)
    ]


KNOWN = 'a 1\nb{c="d",e="f"} 2.5\n# HELP x y\nb{c="g",e="f"} NaN\n\n# TYPE z gauge\nz 3e4\n'


def test_where_each_series_stands():
    """By line, past comments and empty ones; names as they are on the wire, each text once in memory."""
    layout = Parser().parse(KNOWN).layout
    assert layout.lines_of([0, 1, 2, 3]) == [0, 1, 3, 6]
    assert list(layout.names) == ["a", "b", "b", "z"]
    found = dict(layout.some(lambda name: name == "b"))
    assert found == {1: ("b", {"c": "d", "e": "f"}), 2: ("b", {"c": "g", "e": "f"})}
    one, other = (each.labels for each in found.values())
    assert one["e"] is other["e"]
    odd = Parser().parse("a 1 1700000000000\nb 2\n").layout
    assert list(odd.names) == ["a", "b"]
    assert odd.lines_of([0, 1]) == []
    assert dict(odd.some(lambda name: name == "b")) == {1: ("b", {})}


def test_escapes_of_a_label_are_read():
    body = 'a{b="x\\\\y\\"z\\nw",c="plain"} 1\n'
    (_, (_, labels)) = next(iter(Parser().parse(body).layout.some(lambda _: True)))
    assert labels == {"b": 'x\\y"z\nw', "c": "plain"}


@pytest.mark.parametrize(
    ("characters", "refused"), [(256 * 2**10, False), (256 * 2**10 + 40, True)]
)
def test_a_strange_body_is_given_to_the_slow_parser_up_to_a_bound(characters, refused):
    body = "x 1 1700000000\n" + "# c\n" * 1000
    line = "#" + "c" * 9_998 + "\n"
    body += line * ((characters - len(body)) // len(line))
    body += "\n" * (characters - len(body))
    assert len(body) == characters
    assert (ours(body) is None) is refused


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "   ",
        "#",
        "# EOF",
        "# a comment",
        "# HELP x",
        "# HELP x some TYPE of y",
        "# TYPE x gauge",
    ],
)
def test_comments_do_not_make_a_body_slow(comment):
    """Only what the plain grammar does not cover is given to the slow parser: else no line is where it was."""
    body = f"{comment}\nx 1\n"
    assert ours(body) == [("x", {}, "1.0")]
    assert Parser().parse(body).layout.lines_of([0]) == [1]


@pytest.mark.parametrize(
    "body",
    ["x 1_000\n# c\n", "x 1 2\n# c\n", "x one\n# c\n", "x 0x1\n# c\n", "x 1e\n# c\n", "x \n# c\n",
     "x 2\n# c and d\n", "x 2\n# c\ny 3\n", "x 2\n", "x 2\n# d\n", "y 2\n# c\n", "x 2 \n# c\n", "x 2\n1\n"],
)  # fmt: skip
@pytest.mark.parametrize("lazily", [False, True])
def test_what_was_learnt_of_the_last_body_is_not_taken_for_what_another_says(body, lazily):
    """A number that none is, a line more, another comment: read or refused as if it were the first."""
    parser = Parser()
    parser.parse("x 1\n# c\n")
    expected = ours(body)
    try:
        found = parser.parse(body, lazily=lazily)
        values = found.values
        if values is None:
            values = [float(found.words[line]) for line in found.layout.lines_of([0])]
    except (ExpositionError, ValueError):
        assert expected is None
        return
    assert expected is not None
    assert [repr(each) for each in values] == [value for _, _, value in expected]


def test_a_known_body_is_split_and_no_more():
    """Its numbers are made when they are asked for, if it is read lazily; their words are at hand either way."""
    parser = Parser()
    first = parser.parse("x 1\n# c\ny 2\n")
    lazy = parser.parse("x 3\n# c\ny 4\n", lazily=True)
    assert lazy.layout is first.layout
    assert (lazy.values, lazy.words, lazy.tails) == (None, ["3", "", "4", ""], "3\n\n4\n")
    eager = parser.parse("x 5\n# c\ny 6\n")
    assert (eager.values, eager.words, eager.tails) == ([5.0, 6.0], ["5", "", "6", ""], "5\n\n6\n")
    spaced = parser.parse("x 7 \n# c\ny 8\n")
    assert (spaced.layout, spaced.values) == (first.layout, [7.0, 8.0])
    assert (spaced.words, spaced.tails) == (None, None)


def test_what_was_learnt_of_a_body_goes_before_the_next_is_learnt():
    """Also where the next one is refused: both at once would be twice the memory."""
    parser = Parser()
    layout = weakref.ref(parser.parse("gone_for_good 1\n").layout)
    assert ours("<html>\n", parser) is None
    gc.collect()
    assert layout() is None


@pytest.mark.parametrize(
    "body",
    [
        "x{" + ",".join(f'a{i}="1"' for i in range(128)) + "} 1\n",
        f'x{{a="{"z" * ((16 << 10) - 9)}"}} 1\n',
        "x 1\n" * 24_999,
    ],
    ids=["labels", "a long line", "lines"],
)
def test_what_is_just_within_reason_is_read(body):
    assert max(map(len, body.split("\n"))) <= 16 << 10
    assert Parser().parse(body).values[-1] == 1.0


def test_memory_that_ran_out_is_no_fault_of_the_body(monkeypatch):
    def out_of_memory(_):
        raise MemoryError

    monkeypatch.setattr(exposition.parser, "text_string_to_metric_families", out_of_memory)
    with pytest.raises(MemoryError):
        Parser().parse("x 1 1700000000000\n")
