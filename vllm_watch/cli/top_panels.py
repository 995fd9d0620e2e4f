"""The parts around the engines: header, GPUs with their holders, the selected engine, the keys."""

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from vllm_watch.cli import top_text as text
from vllm_watch.cli.top_rows import Row
from vllm_watch.cli.top_status import Status
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.samples.process import ProcessSample

_OLD_SECONDS = 6.0  # three answers missed
_LOW_HEIGHT = 16  # lines; below, the detail is one line
_HOLDERS_MAX = 4  # named on a GPU's line; the others are counted
_BAR_WIDTHS = (8, 30)


def header(
    url: str, status: Status | None, problem: str | None, age_seconds: float | None, width: int
) -> Text:
    """Return who is looked at, how many are in which state, and how old all this is."""
    shown = Text("vllm-watch ", "bold", no_wrap=True)
    if problem is not None:
        old = "" if age_seconds is None else f"; this is {text.age(age_seconds)} old"
        shown.append(f"{text.clean(problem)}{old}; asking again", "yellow")
        shown.truncate(width, overflow="ellipsis")
        return shown
    if status is None:
        return shown.append(f"asking {url} …")
    states = Counter(_states(status))
    for state in text.STATES_BY_URGENCY:
        if states[state]:
            shown.append(f" {states[state]} {state} ", text.STATE_STYLES[state])
    shown.append(f"  {url}  {text.clean(status.version)}", "dim")
    stale = age_seconds is not None and age_seconds > _OLD_SECONDS
    shown_age = text.age(age_seconds)
    age = Text(
        shown_age if shown_age == "now" else f"{shown_age} ago", "yellow" if stale else "dim"
    )
    shown.truncate(max(0, width - age.cell_len - 2), overflow="ellipsis")
    return shown.append(" " * max(1, width - shown.cell_len - age.cell_len - 1)).append(age)


def _states(status: Status) -> list[str]:
    found: list[str] = []
    for target in status.targets:
        engines = target.signals.engines.values() if target.signals else ()
        found += [engine.state for engine in engines] or [target.state]
    return found


def gpus(reading: GpuReading | None, width: int, lines_max: int) -> Text:
    """Return a line per GPU, and one for its holders where there is room."""
    if reading is None:
        return Text()
    if reading.gpus is None or reading.status != "ok":
        style = "dim" if reading.status == "no_driver" else "bold yellow"
        words = {"no_driver": "no GPU driver here", "hung": "the GPU driver does not answer"}
        why = f" ({text.clean(reading.text)})" if reading.text else ""
        return Text(
            f"GPUs: {words.get(reading.status, 'not readable')}{why}",
            style,
            no_wrap=True,
            overflow="ellipsis",
        )
    found = reading.gpus
    if not found:
        return Text("GPUs: none visible", "dim")
    per_gpu = 2 if 2 * len(found) < lines_max else 1
    room = max(1, lines_max - 1) // per_gpu
    lines = [_rule(f" GPUs  driver {text.clean(reading.driver_version or text.UNKNOWN)} ", width)]
    for gpu in found[:room]:
        lines.append(_gpu(gpu, width))
        if per_gpu > 1 and not gpu.lost:
            lines.append(_holders(gpu.processes, width))
    if len(found) > room:
        lines[0] = _rule(f" GPUs  {room} of {len(found)}: a higher terminal shows more ", width)
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _rule(title: str, width: int) -> Text:
    return Text(title.center(width, "─")[:width], "bright_black")


def _gpu(gpu: GpuSample, width: int) -> Text:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    ratio = used / total if used is not None and total else None
    shown = Text(f"{gpu.index:>2} ", no_wrap=True, overflow="crop")
    if gpu.lost:
        return shown.append("fell off the bus", "bold white on red")
    low, high = _BAR_WIDTHS
    shown.append(
        text.fit((gpu.name or "GPU").removeprefix("NVIDIA "), min(24, max(14, width // 6))) + " "
    )
    # In one colour: vLLM fills a GPU on purpose.
    shown.append(text.bar(ratio, min(high, max(low, width // 6)), "blue"))
    shown.append(
        f" {text.gib(used):>5}/{text.gib(total)} GiB  util {text.percent(gpu.utilization_ratio):>4}"
    )
    for warning in _warnings(gpu):
        shown.append(f"  {warning}", "bold yellow")
    if gpu.temperature_celsius is not None:
        shown.append(f"  {gpu.temperature_celsius:.0f} °C")
    if gpu.power_watts is not None:
        shown.append(f"  {gpu.power_watts:.0f} W")
    shown.truncate(width)
    return shown


def _warnings(gpu: GpuSample) -> list[str]:
    found = [reason for reason in gpu.throttle_reasons or () if reason not in ("gpu_idle", "none")]
    if gpu.ecc_uncorrected:
        found.append(f"{gpu.ecc_uncorrected} ECC errors")
    return [text.clean(one) for one in found]


def _holders(processes: Sequence[ProcessSample] | None, width: int) -> Text:
    if processes is None:
        return Text("   holders unknown", "dim")
    if not processes:
        return Text("   nobody holds memory", "dim")
    ordered = sorted(processes, key=lambda process: -(process.used_bytes or 0))
    named = [
        f"{text.clean(_command(process))} {process.pid} {text.gib(process.used_bytes)} GiB"
        for process in ordered[:_HOLDERS_MAX]
    ]
    if len(ordered) > _HOLDERS_MAX:
        named.append(f"{len(ordered) - _HOLDERS_MAX} more")
    shown = Text("   " + " · ".join(named), "bright_black", no_wrap=True)
    shown.truncate(width, overflow="ellipsis")
    return shown


def _command(process: ProcessSample) -> str:
    return process.name or (process.cmdline[0].rsplit("/", 1)[-1] if process.cmdline else "?")


def detail(row: Row | None, width: int, height: int) -> Text:
    """Return what is known of the selected engine, in words: the state's own sentence first."""
    if row is None:
        return Text()
    sentence = row.engine.state_text if row.engine else row.target.state_text
    sentence = text.clean(
        sentence or (row.target.signals and row.target.signals.why_not) or row.state
    )
    if row.stale:
        sentence = f"not seen for {text.age(row.age_seconds)}: {sentence}"
    said = Text(f"{text.clean(row.name)}: ", "bold", no_wrap=True).append(
        sentence,
        text.STATE_STYLES.get(row.state, "").replace(" on red", "").replace("white", "red"),
    )
    said.truncate(width, overflow="ellipsis")
    if height < _LOW_HEIGHT:
        return said
    return Text("\n", no_wrap=True).join([_rule("", width), said, _facts(row, width)])


def _facts(row: Row, width: int) -> Text:
    signals, engine = row.target.signals, row.engine
    facts = [row.model or "model unknown", row.target.url]
    if signals and signals.version:
        facts.append(f"vLLM {signals.version}")
    if engine and engine.kv_cache_capacity_tokens is not None:
        facts.append(
            f"KV {text.count(engine.kv_cache_free_tokens)} of {text.count(engine.kv_cache_capacity_tokens)} tokens free"
        )
    if engine and engine.restarts:
        facts.append(f"{engine.restarts} restarts seen")
    shown = Text(" · ".join(map(text.clean, facts)), "dim", no_wrap=True)
    shown.truncate(width, overflow="ellipsis")
    return shown


def keys(sort: str, wanted: str, rows: int, width: int) -> Text:
    """Return which keys do what, and what is being sorted and filtered by."""
    shown = Text(no_wrap=True, overflow="crop")
    for key, does in (
        ("q", "quit"),
        ("↑↓", "select"),
        ("s", f"sort: {sort}"),
        ("/", "filter"),
        ("esc", "all"),
    ):
        shown.append(f" {key} ", "reverse").append(f" {does}  ")
    if wanted:
        shown.append(f"'{text.clean(wanted)}': {rows}", "yellow")
    shown.truncate(width)
    return shown
