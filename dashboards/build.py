"""Builds dashboards/overview.json, which answers one question: is anything wrong?

Written in code so that units, colours and names agree between panels, and so that the states come
from where they are defined.

python dashboards/build.py            write it
python dashboards/build.py --check    exit 1 when it is stale
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from vllm_watch.signals.state import STATES

OUTPUT = Path(__file__).parent / "overview.json"
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
COLUMNS = 24  # of Grafana's grid
TOKENS_PER_SECOND, WATTS = "suffix: tokens/s", "watt"

# Green works, blue is no work, yellow needs a look soon, red needs one now, purple is not known.
COLORS = {
    "starting": "light-blue", "idle": "blue", "serving": "green", "prefilling": "light-green",
    "overloaded": "yellow", "collapsed": "dark-orange", "stalled": "red", "sleeping": "dark-blue",
    "down": "dark-red", "unknown": "purple",
}  # fmt: skip
WRONG = ("overloaded", "collapsed", "stalled", "down", "unknown")

TARGET = 'target=~"$target"'
ENGINE = "{{target}} {{engine}}"
GPU = "{{host}} GPU {{index}}"
ON_GPU = "* on (instance, gpu) group_left (host, index) vllm_watch_gpu_info"

Query = tuple[str, str]  # PromQL, legend
Panel = stat.Panel | statetimeline.Panel | timeseries.Panel


def queries(asked: Sequence[Query], *, instant: bool = False) -> list[prometheus.Dataquery]:
    """One data query each, with reference ids A, B, …"""
    built = []
    for number, (expr, legend) in enumerate(asked):
        query = prometheus.Dataquery().expr(expr).legend_format(legend)
        query.ref_id(chr(ord("A") + number)).datasource(DATASOURCE)
        built.append(query.instant() if instant else query.range())
    return built


def thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """From each value upwards its colour; the first value is None, minus infinity."""
    config = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
    return config.steps([model.Threshold(value, color) for value, color in steps])


def one_number(
    title: str, query: str, description: str, unit: str, *steps: tuple[float | None, str]
) -> stat.Panel:
    """A number to read from across the room; `no data` where nothing is known, never 0."""
    panel = stat.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE)
    panel.targets(list(queries([(query, "")], instant=True))).no_value("no data").decimals(0)
    panel.graph_mode(common_model.BigValueGraphMode.NONE)
    panel.color_mode(
        common_model.BigValueColorMode.BACKGROUND_SOLID
        if len(steps) > 1
        else common_model.BigValueColorMode.VALUE
    )
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.thresholds(thresholds(*steps))


def lines(
    title: str, asked: Sequence[Query], description: str, unit: str, *, top: float | None = None
) -> timeseries.Panel:
    """Lines over time, from 0 up; gaps stay gaps, since unknown is not what was before."""
    panel = (
        timeseries.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE)
    )
    panel.targets(list(queries(asked))).min(0).span_nulls(False).line_width(1).fill_opacity(5)
    panel.show_points(common_model.VisibilityMode.AUTO)
    if top is not None:
        panel.max(top)
    legend = common.VizLegendOptions().display_mode(common_model.LegendDisplayMode.LIST)
    panel.legend(legend.placement(common_model.LegendPlacement.BOTTOM).show_legend(True))
    tooltip = common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI)
    return panel.tooltip(tooltip.sort(common_model.SortOrder.DESCENDING))


def states() -> statetimeline.Panel:
    """One row per engine, coloured by its state; a state becomes its number, which is shown as its word."""
    numbered = " or ".join(
        f'vllm_watch_engine_state{{{TARGET}, state="{state}"}} * {number}'
        for number, state in enumerate(STATES)
    )
    panel = statetimeline.Panel().title("What each engine is doing").datasource(DATASOURCE)
    panel.description(
        "One state holds at a time. A gap is a time in which nobody looked. `unknown` is never fine: "
        "the watcher could not tell. A target without engines has a row of its own."
    )
    panel.targets(list(queries([(f"max by (target, engine) ({numbered})", ENGINE)])))
    results = {
        str(number): model.ValueMappingResult(text=state, color=COLORS[state], index=number)
        for number, state in enumerate(STATES)
    }
    panel.mappings([model.ValueMap(options=results)]).show_value(common_model.VisibilityMode.AUTO)
    panel.merge_values(True).row_height(0.8).fill_opacity(85).line_width(0)
    return panel.legend(common.VizLegendOptions().show_legend(False))


def at_a_glance() -> list[stat.Panel]:
    """The first row: is anything wrong now?"""
    wrong = "|".join(WRONG)
    green, red, plain = (None, "green"), (1.0, "red"), (None, "text")
    return [
        one_number(
            "Targets that cannot be read", f"sum(1 - vllm_watch_target_up{{{TARGET}}})",
            "Servers whose /metrics could not be read at the last look, those that are starting included.",
            units.Short, green, red),
        one_number(
            "Engines in trouble", f'sum(vllm_watch_engine_state{{{TARGET}, state=~"{wrong}"}})',
            f"Engines whose state is one of: {', '.join(WRONG)}.", units.Short, green, red),
        one_number(
            "Oldest look", f"max(time() - vllm_watch_target_last_observation_timestamp_seconds{{{TARGET}}})",
            "Age of the oldest last look at a target: how old what you see may be. The watcher looks every few seconds.",
            units.Seconds, green, (30.0, "yellow"), (120.0, "red")),
        one_number(
            "Requests that wait", f"sum(vllm_watch_engine_requests_waiting{{{TARGET}}})",
            "Requests that no engine has scheduled yet. Some waiting is normal under load.",
            units.Short, plain),
        one_number(
            "Requests that run", f"sum(vllm_watch_engine_requests_running{{{TARGET}}})",
            "Requests in the running batches of all engines.", units.Short, plain),
        one_number(
            "Generated tokens per second", f"sum(vllm_watch_engine_generation_tokens_per_second{{{TARGET}}})",
            "Of all engines together, over the signal window.", TOKENS_PER_SECOND, plain),
    ]  # fmt: skip


def engines() -> list[timeseries.Panel]:
    """What users get, and what it is made of."""

    def each(name: str) -> Query:
        return f"vllm_watch_engine_{name}{{{TARGET}}}", ENGINE

    def slow(name: str) -> Query:
        return f'vllm_watch_engine_{name}{{{TARGET}, quantile="0.95"}}', ENGINE

    return [
        lines("Generated tokens per second", [each("generation_tokens_per_second")],
              "Per engine, over the signal window. Long prefills generate no tokens, and an idle engine none either.",
              TOKENS_PER_SECOND),
        lines("Time to first token, p95", [slow("time_to_first_token_seconds")],
              "From a request's arrival to its first token, of those observed within the signal window; "
              "a gap is a window in which no request got one.", units.Seconds),
        lines("Between two tokens, p95", [slow("inter_token_latency_seconds")],
              "Inter-token latency, of the tokens observed within the signal window.", units.Seconds),
        lines("Requests that run", [each("requests_running")],
              "In the running batch of each engine.", units.Short),
        lines("Requests that wait", [each("requests_waiting")],
              "Not scheduled yet. Growing while tokens per second hold is more demand than capacity; "
              "growing while they fall is trouble.", units.Short),
        lines("KV cache in use", [each("kv_cache_usage_ratio")],
              "Share of blocks. High by itself is a well-used cache; high with preemptions is too little of it.",
              units.PercentUnit, top=1),
    ]  # fmt: skip


def gpus() -> list[timeseries.Panel]:
    """The GPUs of the hosts on which watchers run; they are not tied to targets."""
    return [
        lines("GPU memory in use",
              [(f"vllm_watch_gpu_memory_used_bytes / vllm_watch_gpu_memory_total_bytes {ON_GPU}", GPU)],
              "Share of each GPU's memory. vLLM takes most of it at start and keeps it, so full is normal; "
              "a change is news.", units.PercentUnit, top=1),
        lines("GPU busy", [(f"vllm_watch_gpu_utilization_ratio {ON_GPU}", GPU)],
              "Share of time in which any kernel ran. It says nothing about how much of the GPU it filled.",
              units.PercentUnit, top=1),
        lines("GPU power", [(f"vllm_watch_gpu_power_watts {ON_GPU}", GPU)],
              "Drawn per GPU. Low while an engine claims to be busy is a sign that it is not.", WATTS),
    ]  # fmt: skip


def watcher() -> list[timeseries.Panel]:
    """Whether what is above can be believed."""
    of_target = 'target=~"$target|"'  # the empty target is a source of the whole host
    success = f"vllm_watch_source_last_success_timestamp_seconds{{{of_target}}}"
    errors = f"vllm_watch_source_errors_total{{{of_target}}}"
    duration = f"vllm_watch_source_duration_seconds{{{of_target}}}"
    return [
        lines("Since each source's last good answer",
              [(f"time() - max by (source, target) ({success})", "{{source}} {{target}}")],
              "Version and models are asked every ten minutes only; the others every few seconds.", units.Seconds),
        lines("Calls that failed, per second",
              [(f"sum by (source, target, reason) (rate({errors}[$__rate_interval]))", "{{source}} {{target}}: {{reason}}")],
              "By how they failed. No data is no failure since the watcher started.", units.Short),
        lines("How long a call takes", [(f"max by (source, target) ({duration})", "{{source}} {{target}}")],
              "The last call to each source, whatever it brought. A busy API server answers slowly.",
              units.Seconds),
    ]  # fmt: skip


def variables(built: dashboard.Dashboard) -> None:
    """The data source, and which targets."""
    built.with_variable(
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    )
    target = dashboard.QueryVariable("target").label("Target").datasource(DATASOURCE)
    target.query("label_values(vllm_watch_target_info, target)").refresh(
        model.VariableRefresh.ON_TIME_RANGE_CHANGED
    )
    target.sort(model.VariableSort.ALPHABETICAL_ASC).multi(True).include_all(True)
    # Not `.*`, but all names: so the panels of a target that is gone are empty, and say so.
    built.with_variable(
        target.current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def build() -> dashboard.Dashboard:
    """The whole dashboard: every panel placed, row by row."""
    built = (
        dashboard.Dashboard("vllm-watch: is anything wrong?")
        .uid("vllm-watch-overview")
        .tags(["vllm", "vllm-watch"])
    )
    built.description(
        "All engines and GPUs that vllm-watch sees. Made by dashboards/build.py: change that, not this."
    )
    built.time("now-1h", "now").refresh("10s").timezone("browser").tooltip(
        model.DashboardCursorSync.CROSSHAIR
    ).readonly()
    variables(built)
    sections: tuple[tuple[str, Sequence[Panel], int, int], ...] = (
        ("", at_a_glance(), 4, 6),
        ("", [states()], 8, 1),
        ("Engines", engines(), 8, 3),
        ("GPUs of the watchers' hosts", gpus(), 8, 3),
        ("The watcher", watcher(), 8, 3),
    )
    top, number = 0, 0
    for title, panels, height, columns in sections:
        if title:
            number += 1
            row = (
                dashboard.Row(title).id(number).grid_pos(model.GridPos(h=1, w=COLUMNS, x=0, y=top))
            )
            built.with_row(row)
            top += 1
        for place, panel in enumerate(panels):
            number += 1
            across, down = place % columns, place // columns
            width = COLUMNS // columns
            position = model.GridPos(h=height, w=width, x=across * width, y=top + down * height)
            built.with_panel(panel.id(number).grid_pos(position))
        top += -(-len(panels) // columns) * height
    return built


def text() -> str:
    """What overview.json has to say."""
    return json.dumps(build().build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main() -> int:
    """Write the file, or check it."""
    if "--check" not in sys.argv:
        OUTPUT.write_text(text())
        return 0
    if OUTPUT.exists() and OUTPUT.read_text() == text():
        return 0
    sys.stderr.write(f"{OUTPUT} is stale: run python dashboards/build.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
