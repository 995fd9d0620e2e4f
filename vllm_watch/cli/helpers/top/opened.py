"""Draw one opened target with its charts and GPU processes, or the help on keyboard keys."""

from collections.abc import Callable, Iterable, Sequence

from vllm_watch.cli.helpers.top import rows as top_rows
from vllm_watch.cli.helpers.top import text
from vllm_watch.cli.helpers.top.panels import command, rule
from vllm_watch.cli.helpers.top.plain import Text
from vllm_watch.cli.helpers.top.status import Charted, JudgedGpu, JudgedProcess, Status
from vllm_watch.signals.holders.records import STALE
from vllm_watch.support.visible import visible

_SPAN_SECONDS = 600.0
_SIDE_BY_SIDE_COLUMNS = 76
_CHART_LINES = 4
_LABEL_COLUMNS = 7
_GAP_POINTS = 3  # longer gaps stay empty
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_DEPTH_MAX = 8  # of a process tree

CHARTS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("Tokens/s", "current_generation_tokens_per_second", text.count),
    ("TTFT p95, last minute", "time_to_first_token_p95_seconds", text.seconds),
    ("KV cache in use", "kv_cache_usage_ratio", text.percent),
    ("Waiting requests", "requests_waiting", text.count),
)

KEYS = (
    ("↑ ↓ j k, wheel", "select a row, or scroll an opened target"),
    ("PgUp PgDn Home End", "select further away"),
    ("Enter, click", "open the selected target: charts, GPUs, processes, what to do; click selects first"),
    ("s, S", "sort by the next or the previous key; so does a click on the titles"),
    ("1 … 6", f"sort by {', '.join(top_rows.SORTS)}"),
    ("/", "filter by name, group, state, model or address"),
    ("Esc", "close, or show all rows again"),
    ("?", "these keys"),
    ("q, Ctrl-C", "quit"),
    ("Shift + mouse", "select and copy text, in most terminals"),
)  # fmt: skip
_NOTES = (
    "TOK/S and its curve are from scrape to scrape. Latencies and ~ columns cover the last {window}.",
    "SPEED is throughput compared with a fresh engine at the same load. A dash is unknown, not zero.",
)


def help_lines(status: Status | None, width: int) -> list[Text]:
    """Return the keys, and notes on columns."""
    lines = [rule(" Keys ", width)]
    for key, does in KEYS:
        lines.append(Text(f"  {key:20} ", "bold", no_wrap=True).append(does, "none"))
    window = text.age(status.window_seconds if status else None)
    return [*lines, Text(""), *(Text("  " + note.format(window=window), "dim") for note in _NOTES)]


def lines(
    row: top_rows.Row, status: Status, charted: Charted | None, told: Text, width: int
) -> list[Text]:
    """Return the texts `told`, and the target's charts, GPUs and processes."""
    gpus = [gpu for gpu in (status.gpus.gpus if status.gpus else None) or () if row.target.name in gpu.targets]  # fmt: skip
    found = [*told.split("\n"), rule(" Last 10 minutes ", width), *_charts(charted, width)]
    found.append(rule(" GPUs ", width))
    if not gpus:
        found.append(Text("  No GPU of the watcher's host is known to run this target.", "dim"))
    for gpu in gpus:
        found += _gpu(gpu, status.t, width)
    return found


def _charts(charted: Charted | None, width: int) -> list[Text]:
    if charted is None or not charted.t:
        return [Text("  No scrape in the last 10 minutes.", "dim")]
    columns = 2 if width >= _SIDE_BY_SIDE_COLUMNS else 1
    each = width // columns - 1
    drawn = [_chart(charted, title, name, show, each) for title, name, show in CHARTS]
    found: list[Text] = []
    for first in range(0, len(drawn), columns):
        for parts in zip(*drawn[first : first + columns], strict=True):
            line = Text("", no_wrap=True)
            for part in parts:
                line.append(part).append(" " * max(0, each + 1 - part.cell_len))
            found.append(line)
    return found


def _chart(
    charted: Charted, title: str, name: str, show: Callable[[float | None], str], width: int
) -> list[Text]:
    values = _columns(charted, name, max(1, width - _LABEL_COLUMNS))
    known = [value for value in values if value is not None]
    top = max(known, default=0.0)
    series = charted.series.get(name) or [None]
    found = [Text(f"{'':{_LABEL_COLUMNS}}{title}: ", "bold").append(show(series[-1]), "none")]
    for level in reversed(range(_CHART_LINES)):
        label = show(top) if level == _CHART_LINES - 1 else "0" if level == 0 else ""
        line = Text(f"{label if known else '':>{_LABEL_COLUMNS - 1}} ", "dim", no_wrap=True)
        found.append(line.append("".join(_cell(value, top, level) for value in values), "cyan"))
    return found


def _cell(value: float | None, top: float, level: int) -> str:
    if value is None:
        return " "
    eighths = round(value / top * _CHART_LINES * 8) if top > 0 else 0
    least = 1 if level == 0 else 0  # unlike an unknown value, zero is drawn
    return _EIGHTHS[min(8, max(least, eighths - 8 * level))]


def _columns(charted: Charted, name: str, width: int) -> list[float | None]:
    end_t, step = charted.t[-1], _SPAN_SECONDS / width
    inside: list[list[float | None]] = [[] for _ in range(width)]
    for t, value in zip(charted.t, charted.series.get(name, ()), strict=False):
        place = width - 1 - int((end_t - t) // step)
        if 0 <= place < width:
            inside[place].append(value)
    usual = _SPAN_SECONDS / max(1, len(charted.t))
    bridged = max(1, round(_GAP_POINTS * usual / step))
    found: list[float | None] = []
    silent, last = 0, None
    for points in inside:
        known = [value for value in points if value is not None]
        silent = 0 if points else silent + 1
        last = sum(known) / len(known) if known else (last if not points else None)
        found.append(last if silent <= bridged else None)
    return found


def _gpu(gpu: JudgedGpu, t: float, width: int) -> list[Text]:
    power = text.UNKNOWN if gpu.power_watts is None else f"{gpu.power_watts:.0f} W"
    heat = text.UNKNOWN if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} °C"
    fan = "" if gpu.fan_ratio is None else f"  fan {text.percent(gpu.fan_ratio)}"
    head = f"  GPU {gpu.index} {visible(gpu.name or '')}  {text.gib(gpu.memory_used_bytes)}/{text.gib(gpu.memory_total_bytes)} GiB  util {text.percent(gpu.utilization_ratio)}  {heat}{fan}  {power}"
    lines = [Text(head, "bold", no_wrap=True)]
    if gpu.processes is None:
        lines.append(Text("  └─ processes unknown", "dim"))
    lines += _tree(gpu.processes or (), t)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _tree(processes: Sequence[JudgedProcess], t: float) -> Iterable[Text]:
    here = {each.pid for each in processes}
    children: dict[int | None, list[JudgedProcess]] = {}
    for each in sorted(processes, key=lambda one: -(one.used_bytes or 0)):
        parent = each.ppid if each.ppid in here and each.ppid != each.pid else None
        children.setdefault(parent, []).append(each)
    seen: set[int] = set()

    def below(parent: int | None, indent: str, depth: int) -> Iterable[Text]:
        of_parent = [each for each in children.get(parent, ()) if each.pid not in seen]
        for number, each in enumerate(of_parent, 1):
            seen.add(each.pid)
            last = number == len(of_parent)
            yield _process(each, f"  {indent}{'└─' if last else '├─'} ", t)
            if depth < _DEPTH_MAX:
                yield from below(each.pid, indent + ("   " if last else "│  "), depth + 1)

    return below(None, "", 0)


def _process(process: JudgedProcess, indent: str, t: float) -> Text:
    age = None if process.create_time is None else max(0.0, t - process.create_time)
    shown = Text(indent, "bright_black", no_wrap=True)
    shown.append(f"{visible(command(process))} {process.pid}", "bold yellow" if process.verdict == STALE else "none")  # fmt: skip
    shown.append(
        f"  {text.gib(process.used_bytes)} GiB  age {text.age(age)}  CPU {text.seconds(process.cpu_seconds)}  SM {text.percent(process.sm_utilization_ratio)}  {process.verdict}",
        "none",
    )
    if process.verdict == STALE and process.remedy:
        shown.append(f": {visible(process.remedy)}", "yellow")
    elif process.ancestors:
        shown.append(f"  of {' › '.join(map(visible, reversed(process.ancestors[:3])))}", "dim")
    return shown
