"""Draw the header, GPUs with their processes, one opened target, and the help on keyboard keys."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from vllm_watch.cli.helpers.top import rows as top_rows
from vllm_watch.cli.helpers.top import text
from vllm_watch.cli.helpers.top.status import (
    Charted,
    JudgedGpu,
    JudgedProcess,
    JudgedReading,
    Status,
)
from vllm_watch.cli.helpers.top.text import Text
from vllm_watch.signals.holders.records import STALE
from vllm_watch.support.visible import visible

_OLD_SECONDS = 6.0  # three missed polls
_HOLDERS_MAX = 4
_BAR_WIDTHS = (8, 30)
_UNREAD = {"no_driver": "no GPU driver here", "hung": "the GPU driver does not answer"}


def header(
    url: str, status: Status | None, problem: str | None, age_seconds: float | None, width: int
) -> Text:
    """Return the daemon's address, the targets per state, and the age of the data."""
    shown = Text("vllm-watch ", "bold", no_wrap=True)
    if problem is not None:
        old = "" if age_seconds is None else f"; this is {text.age(age_seconds)} old"
        return text.cut(shown.append(f"{visible(problem)}{old}; retrying", "yellow"), width)
    if status is None:
        return shown.append(f"asking {url} …")
    states = Counter(target.state for target in status.targets)
    for state in text.STATES_BY_URGENCY:
        if states[state]:
            shown.append(f" {states[state]} {state} ", text.STATE_STYLES[state])
    shown.append(" targets" if len(status.targets) > 1 else "", "dim")
    shown.append(f"  {url}  {visible(status.version)}", "dim")
    stale = age_seconds is not None and age_seconds > _OLD_SECONDS
    shown_age = text.age(age_seconds)
    told = "" if shown_age == "now" else f" ({shown_age} ago)"
    age = Text(f"{text.clock(status.t, status.t)} UTC{told}", "yellow" if stale else "dim")
    shown = text.cut(shown, max(0, width - age.cell_len - 2))
    return shown.append(" " * max(1, width - shown.cell_len - age.cell_len - 1)).append(age)


def gpus(reading: JudgedReading | None, width: int, lines_max: int) -> Text:
    """Return a line per GPU. Processes are added if there is room, or if memory is stale."""
    if reading is None:
        return Text()
    if reading.gpus is None or reading.status != "ok":
        style = "dim" if reading.status == "no_driver" else "bold yellow"
        why = f" ({visible(reading.text)})" if reading.text else ""
        said = f"GPUs: {_UNREAD.get(reading.status, 'not readable')}{why}"
        return Text(said, style, no_wrap=True, overflow="ellipsis")
    if not reading.gpus:
        return Text("GPUs: none visible", "dim")
    with_holders = 2 * len(reading.gpus) < lines_max
    lines = [rule(f" GPUs  driver {visible(reading.driver_version or text.UNKNOWN)} ", width)]
    shown = 0
    # There may not be room for all GPUs, so lost GPUs and stale memory come first.
    for gpu in sorted(reading.gpus, key=lambda gpu: (not gpu.lost, -gpu.lost_bytes, gpu.index)):
        of_gpu = _gpu_lines(gpu, width, with_holders=with_holders)
        if shown and len(lines) + len(of_gpu) > lines_max:
            break
        lines += of_gpu
        shown += 1
    if len(reading.gpus) > shown:
        title = f" GPUs  {shown} of {len(reading.gpus)}: a taller terminal shows more "
        lines[0] = rule(title, width)
    return text.stacked(lines[: max(2, lines_max)])


def _gpu_lines(gpu: JudgedGpu, width: int, *, with_holders: bool) -> list[Text]:
    if gpu.lost_bytes:
        return [_gpu(gpu, width), *_stale(gpu, width)]
    if with_holders and not gpu.lost:
        return [_gpu(gpu, width), _holders(gpu.processes, width)]
    return [_gpu(gpu, width)]


def _stale(gpu: JudgedGpu, width: int) -> list[Text]:
    stale = [each for each in gpu.processes or () if each.verdict == STALE]
    lines = [_remedy(each) for each in _largest_first(stale)]
    nobody = gpu.unaccounted
    if nobody is not None and nobody.verdict == STALE:
        who = f"{text.gib(gpu.unaccounted_bytes)} GiB held by no visible process"
        lines.append(_stale_line(who, nobody.remedy or "details: vllm-watch gpus"))
    lines = [text.cut(line, width) for line in lines[:_HOLDERS_MAX]]
    others = [each for each in gpu.processes or () if each.verdict != STALE]
    return [*lines, _holders(others, width)] if others else lines


def _remedy(process: JudgedProcess) -> Text:
    why = (process.reason or "stale").replace("_", " ")
    who = f"{_command(process)} {process.pid} {text.gib(process.used_bytes)} GiB, {why}"
    return _stale_line(who, process.remedy or "details: vllm-watch gpus")


def _stale_line(who: str, remedy: str) -> Text:
    said = Text(f"   stale  {visible(who)}: ", "yellow", no_wrap=True)
    return said.append(visible(remedy), "dim")


def rule(title: str, width: int) -> Text:
    """Return a full-width line with a title."""
    return Text(title.center(width, "─")[:width], "bright_black")


def _gpu(gpu: JudgedGpu, width: int) -> Text:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    ratio = used / total if used is not None and total else None
    shown = Text(f"{gpu.index:>2} ", no_wrap=True, overflow="crop")
    if gpu.lost:
        return shown.append("lost: fell off the bus", "bold white on red")
    low, high = _BAR_WIDTHS
    name = (gpu.name or "GPU").removeprefix("NVIDIA ")
    shown.append(text.fit(name, min(24, max(14, width // 6))) + " ")
    # vLLM fills a GPU on purpose, so a full GPU has no warning colour.
    shown.append(text.bar(ratio, min(high, max(low, width // 6)), "blue"))
    busy = text.percent(gpu.utilization_ratio)
    shown.append(f" {text.gib(used):>5}/{text.gib(total)} GiB  util {busy:>4}")
    warnings = [f"{text.gib(gpu.lost_bytes)} GiB stale"] if gpu.lost_bytes else []
    warnings += [each for each in gpu.throttle_reasons or () if each not in ("gpu_idle", "none")]
    warnings += [f"{gpu.ecc_uncorrected} ECC errors"] if gpu.ecc_uncorrected else []
    for warning in warnings:
        shown.append(f"  {visible(warning)}", "bold yellow")
    if gpu.temperature_celsius is not None:
        shown.append(f"  {gpu.temperature_celsius:.0f} °C")
    if gpu.power_watts is not None:
        shown.append(f"  {gpu.power_watts:.0f} W")
    if gpu.targets:
        shown.append(f"  {visible(', '.join(gpu.targets))}", "bold")
    shown.truncate(width)
    return shown


def _holders(processes: Sequence[JudgedProcess] | None, width: int) -> Text:
    if processes is None:
        return Text("   holders unknown", "dim")
    if not processes:
        return Text("   no process holds memory", "dim")
    ordered = _largest_first(processes)
    named = [
        f"{visible(_command(process))} {process.pid} {text.gib(process.used_bytes)} GiB"
        for process in ordered[:_HOLDERS_MAX]
    ]
    if len(ordered) > _HOLDERS_MAX:
        named.append(f"{len(ordered) - _HOLDERS_MAX} more")
    return text.cut(Text("   " + " · ".join(named), "bright_black", no_wrap=True), width)


def _largest_first(processes: Iterable[JudgedProcess]) -> list[JudgedProcess]:
    return sorted(processes, key=lambda process: -(process.used_bytes or 0))


def _command(process: JudgedProcess) -> str:
    return process.name or (process.cmdline[0].rsplit("/", 1)[-1] if process.cmdline else "?")


def keys(sort: str, wanted: str, rows: int, width: int, *, opened: bool = False) -> Text:
    """Return the keys, and the current sort and filter."""
    shown = Text(no_wrap=True, overflow="crop")
    of_list = (("↑↓", "select"), ("enter", "open"), ("s", f"sort: {sort}"), ("/", "filter"), ("esc", "all"))  # fmt: skip
    of_opened = (("↑↓", "scroll"), ("esc", "back"))
    for key, does in (("q", "quit"), *(of_opened if opened else of_list), ("?", "keys")):
        shown.append(f" {key} ", "reverse").append(f" {does}  ")
    if wanted:
        shown.append(f"'{visible(wanted)}': {rows}", "yellow")
    shown.truncate(width)
    return shown


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


def target_lines(
    row: top_rows.Row, status: Status, charted: Charted | None, told: Text, width: int
) -> list[Text]:
    """Return the texts `told`, and the target's charts, GPUs and processes."""
    gpus = [gpu for gpu in (status.gpus.gpus if status.gpus else None) or () if row.target.name in gpu.targets]  # fmt: skip
    found = [*told.split("\n"), rule(" Last 10 minutes ", width), *_charts(charted, width)]
    found.append(rule(" GPUs ", width))
    if not gpus:
        found.append(Text("  No GPU of the watcher's host is known to run this target.", "dim"))
    for gpu in gpus:
        found += _opened_gpu(gpu, status.t, width)
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


def _opened_gpu(gpu: JudgedGpu, t: float, width: int) -> list[Text]:
    power = text.UNKNOWN if gpu.power_watts is None else f"{gpu.power_watts:.0f} W"
    heat = text.UNKNOWN if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} °C"
    fan = "" if gpu.fan_ratio is None else f"  fan {text.percent(gpu.fan_ratio)}"
    head = f"  GPU {gpu.index} {visible(gpu.name or '')}  {text.gib(gpu.memory_used_bytes)}/{text.gib(gpu.memory_total_bytes)} GiB  util {text.percent(gpu.utilization_ratio)}  {heat}{fan}  {power}"
    lines = [Text(head, "bold", no_wrap=True)]
    if gpu.processes is None:
        lines.append(Text("  └─ processes unknown", "dim"))
    return [text.cut(line, width) for line in [*lines, *_tree(gpu.processes or (), t)]]


def _tree(processes: Sequence[JudgedProcess], t: float) -> Iterable[Text]:
    here = {each.pid for each in processes}
    children: dict[int | None, list[JudgedProcess]] = {}
    for each in _largest_first(processes):
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
    shown.append(f"{visible(_command(process))} {process.pid}", "bold yellow" if process.verdict == STALE else "none")  # fmt: skip
    shown.append(
        f"  {text.gib(process.used_bytes)} GiB  age {text.age(age)}  CPU {text.seconds(process.cpu_seconds)}  SM {text.percent(process.sm_utilization_ratio)}  {process.verdict}",
        "none",
    )
    if process.verdict == STALE and process.remedy:
        shown.append(f": {visible(process.remedy)}", "yellow")
    elif process.ancestors:
        shown.append(f"  of {' › '.join(map(visible, reversed(process.ancestors[:3])))}", "dim")
    return shown
