"""Format compact numbers, bars and curves, also if rich is not installed. None becomes `-`, not zero."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from vllm_watch.signals.records import Quantiles
from vllm_watch.support.visible import visible

__all__ = ["Text"]  # rich's, handed on

_ELLIPSIS = "…"


class PlainText:
    """The part of rich.text.Text that `top` uses, without styles."""

    def __init__(self, plain: str = "", _style: str = "", **_layout: object) -> None:
        self.plain = plain

    @property
    def cell_len(self) -> int:
        return len(self.plain)

    def append(self, text: "PlainText | str", _style: str = "") -> "PlainText":
        self.plain += text if isinstance(text, str) else text.plain
        return self

    def truncate(self, width: int, *, overflow: str = "") -> None:
        if len(self.plain) > width:
            self.plain = self.plain[: max(0, width - 1)] + _ELLIPSIS if overflow == "ellipsis" else self.plain[:width]  # fmt: skip

    def join(self, parts: "Iterable[PlainText]") -> "PlainText":
        return PlainText(self.plain.join(part.plain for part in parts))

    def split(self, separator: str) -> "list[PlainText]":
        return [PlainText(part) for part in self.plain.split(separator)]

    def stylize(self, _style: str) -> None:
        """Ignore a style."""

    def rstrip(self) -> None:
        self.plain = self.plain.rstrip()


try:
    from rich.text import Text
except ImportError:  # rich is an extra
    Text = PlainText  # type: ignore[assignment,misc]


def cut(line: Text, width: int) -> Text:
    """Shorten the line to `width`, with an ellipsis, and return it."""
    line.truncate(width, overflow="ellipsis")
    return line


def stacked(lines: Iterable[Text]) -> Text:
    """Join lines."""
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


STATE_STYLES = {
    "down": "bold white on red", "stalled": "bold red", "failing": "bold red", "collapsed": "bold red",
    "overloaded": "bold yellow",
    "unknown": "bright_black", "starting": "cyan", "prefilling": "blue", "serving": "green",
    "idle": "dim green", "sleeping": "magenta",
}  # fmt: skip
SEVERITY_STYLES = {"page": "bold white on red", "ticket": "bold yellow", "info": "cyan"}
STATES_BY_URGENCY = tuple(STATE_STYLES)
UNKNOWN = "-"
_HIGH_RATIO, _FULL_RATIO = 0.8, 0.95  # a bar turns yellow, then red
_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_KILO, _TEN, _HUNDRED, _MINUTE = 1000, 10, 100, 60
_GIB = 1 << 30


def fit(text: str, width: int) -> str:
    """Return exactly `width` characters. The middle is cut, because the ends distinguish names."""
    text = visible(text)
    if len(text) > width > 1:
        head = (width - 1) // 2
        text = f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
    return text[:width].ljust(width)


def count(value: float | None) -> str:
    """Return at most five characters: 7, 1.2k, 34k, 5.6M."""
    if value is None:
        return UNKNOWN
    for unit in ("", "k", "M", "G"):
        if abs(value) < _KILO - 0.5 or unit == "G":
            break
        value /= _KILO
    if unit == "" and value != int(value) and abs(value) < _TEN:
        return f"{value:.1f}"
    return f"{value:.1f}{unit}" if unit and abs(value) < _TEN else f"{value:.0f}{unit}"


def p95(found: Quantiles) -> str:
    """Format the 95th percentile. Within the lowest bucket, it is `<` and the bucket's bound."""
    value, first = found.p95, found.first_bound
    below = value is not None and first is not None and value <= first
    return f"<{seconds(first)}" if below else seconds(value)


def seconds(value: float | None) -> str:
    """Format a duration in at most six characters: 8ms, 1.25s, 12s, 3m05, 2h07, 5d."""
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"{value * _KILO:.1f}ms" if value < 0.01 else f"{value * _KILO:.0f}ms"  # noqa: PLR2004
    if value < _TEN and value != int(value):
        return f"{value:.2f}s"
    if value < _MINUTE - 0.5:
        return f"{value:.0f}s"
    minutes, rest = divmod(round(value), _MINUTE)
    if minutes < _MINUTE:
        return f"{minutes}m{rest:02}"
    hours = minutes // _MINUTE
    return f"{hours}h{minutes % _MINUTE:02}" if hours < _HUNDRED else f"{hours // 24}d"


def clock(t: float, now: float) -> str:
    """Return the time in UTC, with the day unless it is today."""
    then, today = (datetime.fromtimestamp(each, UTC) for each in (t, now))
    return f"{then:%H:%M:%S}" if then.date() == today.date() else f"{then:%b %d %H:%M}"


def age(value: float | None) -> str:
    """Return at most six characters, or `now` below 1 s."""
    return "now" if value is not None and value < 1 else seconds(value and float(int(value)))


def percent(ratio: float | None) -> str:
    """Return at most four characters."""
    return UNKNOWN if ratio is None else f"{ratio * _HUNDRED:.0f}%"


def gib(value: float | None) -> str:
    """Return bytes in GiB."""
    return UNKNOWN if value is None else f"{value / _GIB:.1f}"


def bar(ratio: float | None, width: int, style: str = "") -> Text:
    """Return a bar, coloured by the ratio unless styled."""
    if ratio is None:
        return Text("·" * width, "bright_black")
    ratio = min(max(ratio, 0.0), 1.0)
    usual = "red" if ratio >= _FULL_RATIO else "yellow" if ratio >= _HIGH_RATIO else "green"
    eighths = round(ratio * width * 8)
    filled = "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")
    return Text(filled.ljust(width), f"{style or usual} on grey23")


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return a curve from zero to the maximum. Unknown values leave gaps."""
    shown = list(values)[-width:]
    top = max((value for value in shown if value is not None), default=0.0)
    steps = len(_SPARKS) - 1
    marks = (
        " " if value is None else _SPARKS[round(value / top * steps) if top > 0 else 0]
        for value in shown
    )
    return "".join(marks).rjust(width)
