"""Draw the engines as rows."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vllm_watch.cli.helpers.top import text
from vllm_watch.cli.helpers.top.status import Status, TargetStatus
from vllm_watch.cli.helpers.top.text import Text
from vllm_watch.incidents.incident import SEVERITIES, severity_rank
from vllm_watch.signals.records import EngineSignals

POINTS_MAX = 60
_NAME_MIN, _NAME_MAX = 14, 44


@dataclass(slots=True)
class Row:
    """One engine, or a target without engines."""

    target: TargetStatus
    engine: EngineSignals | None
    several: bool
    age_seconds: float | None  # since the last scrape
    stale: bool
    curve: Sequence[float | None] = ()  # tokens per second, oldest first

    @property
    def name(self) -> str:
        engine = f"/{self.engine.engine}" if self.engine and self.several else ""
        return self.target.name + engine

    @property
    def state(self) -> str:
        return self.engine.state if self.engine else self.target.state

    @property
    def still(self) -> bool:
        return self.down or self.state == "stalled"

    @property
    def down(self) -> bool:
        return "down" in (self.state, self.target.state)

    @property
    def model(self) -> str:
        if self.engine and self.engine.model_name:
            return self.engine.model_name
        return ", ".join(self.target.signals.models) if self.target.signals else ""

    def matches(self, wanted: str) -> bool:
        words = (self.name, self.target.group, self.state, self.model, self.target.url)
        return any(wanted.lower() in word.lower() for word in words)


@dataclass(slots=True)
class Curves:
    """Keeps recent generation rates."""

    _points: dict[tuple[str, str], tuple[float, deque[float | None]]] = field(default_factory=dict)

    def rows(self, status: Status) -> list[Row]:
        kept: dict[tuple[str, str], tuple[float, deque[float | None]]] = {}
        rows: list[Row] = []
        for target in status.targets:
            signals = target.signals
            age_seconds = max(0.0, status.t - signals.t) if signals else None
            engines: list[EngineSignals | None] = [*signals.engines.values()] if signals else []
            for engine in engines or [None]:
                row = Row(target, engine, len(engines) > 1, age_seconds, target.is_late(status.t))
                if engine and signals:
                    key = (target.name, engine.engine)
                    last_t, points = self._points.get(key, (0.0, deque(maxlen=POINTS_MAX)))
                    if signals.t != last_t:
                        rate = engine.current_generation_tokens_per_second
                        points.append(rate if signals.up else None)
                    kept[key] = (signals.t, points)
                    row.curve = points
                rows.append(row)
        self._points = kept
        return rows


@dataclass(frozen=True, slots=True)
class Column:
    """A column. On narrow terminals, columns with the highest rank are left out first."""

    title: str
    width: int
    rank: int
    show: Callable[[Row, int], Text | str]  # arguments: row and width
    align: Literal["left", "right"] = "right"


def _at_work(read: Callable[[EngineSignals], str]) -> Callable[[Row, int], str]:
    """Hide the last minute's rates if the engine is down or stalled."""
    return lambda row, _: text.UNKNOWN if row.still or not row.engine else read(row.engine)


def _held(read: Callable[[EngineSignals], str]) -> Callable[[Row, int], str]:
    """Hide values if the engine is down, because a live API server still exports them."""
    return lambda row, _: text.UNKNOWN if row.down or not row.engine else read(row.engine)


def _kv(row: Row, width: int) -> Text:
    ratio = row.engine.kv_cache_usage_ratio if row.engine and not row.down else None
    return Text().append(text.bar(ratio, width - 5)).append(f" {text.percent(ratio):>4}")


def _tokens(row: Row, _: int) -> str:
    return text.count(row.engine.current_generation_tokens_per_second if row.engine else None)


def _scrape(row: Row, _: int) -> str:
    signals = row.target.signals
    failed = signals is not None and not signals.up
    return "failed" if failed and not row.stale else text.age(row.age_seconds)


def _state(row: Row, _: int) -> Text:
    return Text(row.state, text.STATE_STYLES.get(row.state, "bright_black"))


_COLUMNS = (
    Column("ENGINE", _NAME_MIN, 0, lambda row, width: text.fit(row.name, width), "left"),
    Column("STATE", 10, 0, _state, "left"),
    Column("RUN", 4, 1, _held(lambda e: text.count(e.requests_running))),
    Column("WAIT", 4, 1, _held(lambda e: text.count(e.requests_waiting))),
    Column("KV CACHE", 11, 2, _kv, "left"),
    Column("SPEED", 5, 1, _at_work(lambda e: text.percent(e.throughput_ratio))),
    Column("TOK/S", 5, 1, _tokens),
    Column("", 12, 5, lambda row, width: Text(text.sparkline(row.curve, width), "cyan"), "left"),
    Column("TTFT p95", 8, 3, _at_work(lambda e: text.p95(e.time_to_first_token_seconds))),
    Column("ITL p95", 7, 3, _at_work(lambda e: text.p95(e.inter_token_latency_seconds))),
    Column("QUEUE p95", 9, 7, _at_work(lambda e: text.p95(e.queue_time_seconds))),
    Column("E2E p95", 7, 8, _at_work(lambda e: text.p95(e.e2e_latency_seconds))),
    Column("~PROMPT/S", 9, 6, _at_work(lambda e: text.count(e.prompt_tokens_per_second))),
    Column("~REQ/S", 6, 7, _at_work(lambda e: text.count(e.requests_finished_per_second))),
    Column("~PREEMPT/S", 10, 9, _at_work(lambda e: text.count(e.preemptions_per_second))),
    Column("HIT", 4, 8, _held(lambda e: text.percent(e.prefix_cache_hit_ratio))),
    Column("SCRAPE", 6, 9, _scrape),
    Column("MODEL", 24, 10, lambda row, width: text.fit(row.model, width), "left"),
)

Sort = Callable[[Row], tuple[float, str]]


def _most(read: Callable[[EngineSignals], float | None]) -> Sort:
    def key(row: Row) -> tuple[float, str]:
        value = read(row.engine) if row.engine else None
        return (float("inf") if value is None else -value, row.name)

    return key


def _urgency(row: Row) -> tuple[float, str]:
    known = text.STATES_BY_URGENCY
    state = known.index(row.state) if row.state in known else len(known)
    ranks = (severity_rank(each.severity) for each in row.target.incidents if not each.recovering)
    worst = min(ranks, default=len(SEVERITIES) + 1)
    return (worst * (len(known) + 1) + state, row.name)


def folded(rows: Sequence[Row]) -> Text:
    """Return the number of rows per state."""
    states = Counter(row.state for row in rows)
    counts = ((states[state], state) for state in text.STATES_BY_URGENCY)
    said = ", ".join(f"{count} {state}" for count, state in counts if count)
    return Text(f"… {len(rows)} more: {said}", "dim", no_wrap=True)


SORTS: dict[str, Sort] = {
    "urgency": _urgency,
    "name": lambda row: (0, row.name),
    "tokens": _most(lambda e: e.current_generation_tokens_per_second),
    "waiting": _most(lambda e: e.requests_waiting),
    "KV cache": _most(lambda e: e.kv_cache_usage_ratio),
    "TTFT": _most(lambda e: e.time_to_first_token_seconds.p95),
}


def arranged(rows: Iterable[Row], sort: str, wanted: str) -> list[Row]:
    """Return the rows that match `wanted`, sorted."""
    return sorted((row for row in rows if row.matches(wanted)), key=SORTS[sort])


def columns_for(width: int, rows: Sequence[Row]) -> list[Column]:
    """Return the columns that fit. Extra width goes to names, then to the curve."""
    chosen = list(_COLUMNS)
    while len(chosen) > 1 and _width(chosen) > width:
        chosen.remove(max(chosen, key=lambda column: column.rank))
    longest = max((len(row.name) for row in rows), default=0)
    chosen = _grown(chosen, "ENGINE", min(longest, max(_NAME_MAX, width // 4)), width)
    return _grown(chosen, "", POINTS_MAX, width)


def _grown(columns: list[Column], title: str, wanted: int, width: int) -> list[Column]:
    spare = max(0, width - _width(columns))
    return [
        replace(each, width=min(max(each.width, wanted), each.width + spare)) if each.title == title else each
        for each in columns
    ]  # fmt: skip


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns)


def titles(columns: Sequence[Column], width: int) -> Text:
    """Return the line of titles."""
    cells = (f"{each.title:{'<' if each.align == 'left' else '>'}{each.width}}" for each in columns)
    return Text(" ".join(cells).ljust(width), "bold reverse", no_wrap=True)


def line(row: Row, columns: Sequence[Column], *, selected: bool) -> Text:
    """Return one row, dim if stale."""
    shown = Text(no_wrap=True, overflow="crop")
    for column in columns:
        value = column.show(row, column.width)
        cell = value if isinstance(value, Text) else Text(value)
        cell.truncate(column.width)
        missing = " " * (column.width - cell.cell_len)
        shown.append(cell if column.align == "left" else Text(missing).append(cell))
        shown.append(missing + " " if column.align == "left" else " ")
    if row.stale:
        shown.stylize("dim")
    if selected:
        shown.stylize("on grey30")
    return shown
