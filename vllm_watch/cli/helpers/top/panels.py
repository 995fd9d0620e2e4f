"""Draw the header, GPUs with their processes, and the keys."""

from collections import Counter
from collections.abc import Sequence

from vllm_watch.cli.helpers.top import text
from vllm_watch.cli.helpers.top.plain import Text
from vllm_watch.cli.helpers.top.status import JudgedGpu, JudgedProcess, JudgedReading, Status
from vllm_watch.signals.holders.records import STALE
from vllm_watch.support.visible import visible

_OLD_SECONDS = 6.0  # three missed polls
_HOLDERS_MAX = 4
_BAR_WIDTHS = (8, 30)


def header(
    url: str, status: Status | None, problem: str | None, age_seconds: float | None, width: int
) -> Text:
    """Return the daemon's address, the targets per state, and the age of the data."""
    shown = Text("vllm-watch ", "bold", no_wrap=True)
    if problem is not None:
        old = "" if age_seconds is None else f"; this is {text.age(age_seconds)} old"
        shown.append(f"{visible(problem)}{old}; retrying", "yellow")
        shown.truncate(width, overflow="ellipsis")
        return shown
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
    shown.truncate(max(0, width - age.cell_len - 2), overflow="ellipsis")
    return shown.append(" " * max(1, width - shown.cell_len - age.cell_len - 1)).append(age)


def gpus(reading: JudgedReading | None, width: int, lines_max: int) -> Text:
    """Return a line per GPU. Processes are added if there is room, or if memory is stale."""
    if reading is None:
        return Text()
    if reading.gpus is None or reading.status != "ok":
        return _unreadable(reading)
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
    return Text("\n", no_wrap=True, overflow="crop").join(lines[: max(2, lines_max)])


def _unreadable(reading: JudgedReading) -> Text:
    style = "dim" if reading.status == "no_driver" else "bold yellow"
    words = {"no_driver": "no GPU driver here", "hung": "the GPU driver does not answer"}
    why = f" ({visible(reading.text)})" if reading.text else ""
    said = f"GPUs: {words.get(reading.status, 'not readable')}{why}"
    return Text(said, style, no_wrap=True, overflow="ellipsis")


def _gpu_lines(gpu: JudgedGpu, width: int, *, with_holders: bool) -> list[Text]:
    if gpu.lost_bytes:
        return [_gpu(gpu, width), *_stale(gpu, width)]
    if with_holders and not gpu.lost:
        return [_gpu(gpu, width), _holders(gpu.processes, width)]
    return [_gpu(gpu, width)]


def _stale(gpu: JudgedGpu, width: int) -> list[Text]:
    stale = [each for each in gpu.processes or () if each.verdict == STALE]
    lines = [_remedy(each) for each in sorted(stale, key=lambda each: -(each.used_bytes or 0))]
    nobody = gpu.unaccounted
    if nobody is not None and nobody.verdict == STALE:
        who = f"{text.gib(gpu.unaccounted_bytes)} GiB held by no visible process"
        lines.append(_stale_line(who, nobody.remedy or "details: vllm-watch gpus"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    others = [each for each in gpu.processes or () if each.verdict != STALE]
    return [*lines[:_HOLDERS_MAX], _holders(others, width)] if others else lines[:_HOLDERS_MAX]


def _remedy(process: JudgedProcess) -> Text:
    why = (process.reason or "stale").replace("_", " ")
    who = f"{command(process)} {process.pid} {text.gib(process.used_bytes)} GiB, {why}"
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
    shown.append(
        text.fit((gpu.name or "GPU").removeprefix("NVIDIA "), min(24, max(14, width // 6))) + " "
    )
    # vLLM fills a GPU on purpose, so a full GPU has no warning colour.
    shown.append(text.bar(ratio, min(high, max(low, width // 6)), "blue"))
    shown.append(
        f" {text.gib(used):>5}/{text.gib(total)} GiB  util {text.percent(gpu.utilization_ratio):>4}"
    )
    if gpu.lost_bytes:
        shown.append(f"  {text.gib(gpu.lost_bytes)} GiB stale", "bold yellow")
    for warning in _warnings(gpu):
        shown.append(f"  {warning}", "bold yellow")
    if gpu.temperature_celsius is not None:
        shown.append(f"  {gpu.temperature_celsius:.0f} °C")
    if gpu.power_watts is not None:
        shown.append(f"  {gpu.power_watts:.0f} W")
    if gpu.targets:
        shown.append(f"  {visible(', '.join(gpu.targets))}", "bold")
    shown.truncate(width)
    return shown


def _warnings(gpu: JudgedGpu) -> list[str]:
    found = [reason for reason in gpu.throttle_reasons or () if reason not in ("gpu_idle", "none")]
    if gpu.ecc_uncorrected:
        found.append(f"{gpu.ecc_uncorrected} ECC errors")
    return [visible(one) for one in found]


def _holders(processes: Sequence[JudgedProcess] | None, width: int) -> Text:
    if processes is None:
        return Text("   holders unknown", "dim")
    if not processes:
        return Text("   no process holds memory", "dim")
    ordered = sorted(processes, key=lambda process: -(process.used_bytes or 0))
    named = [
        f"{visible(command(process))} {process.pid} {text.gib(process.used_bytes)} GiB"
        for process in ordered[:_HOLDERS_MAX]
    ]
    if len(ordered) > _HOLDERS_MAX:
        named.append(f"{len(ordered) - _HOLDERS_MAX} more")
    shown = Text("   " + " · ".join(named), "bright_black", no_wrap=True)
    shown.truncate(width, overflow="ellipsis")
    return shown


def command(process: JudgedProcess) -> str:
    """Return the process's short name."""
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
