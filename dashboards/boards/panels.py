"""Panels that show values: one big number or word, lines, a band of states."""

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from .style import (
    DATASOURCE,
    NOW,
    PLAIN,
    QUIET,
    SOON,
    STATE_WORDS,
    UNKNOWN,
    WELL,
    Marks,
    Words,
    steps,
    words,
)

Query = tuple[str, str]  # PromQL, legend

BAND_POINTS = 200  # columns of a band: narrower ones cannot be seen, and each costs Prometheus a look at every state
TROUBLE_FROM_1: Marks = ((None, WELL), (1.0, NOW))
ANY_NUMBER = -1e12  # what is absent counts as less than that, and so has a colour of its own
ATTENTION_FROM_1: Marks = ((None, WELL), (1.0, SOON))
NO_JUDGEMENT: Marks = ((None, PLAIN),)


def queries(asked: Sequence[Query], *, instant: bool = False) -> list[prometheus.Dataquery]:
    """One data query each, with reference ids A, B, …"""
    built = []
    for number, (expr, legend) in enumerate(asked):
        query = prometheus.Dataquery().expr(expr).legend_format(legend)
        query.ref_id(chr(ord("A") + number)).datasource(DATASOURCE)
        built.append(query.instant() if instant else query.range())
    return built


def number(
    title: str, query: str, description: str, unit: str = units.Short, marks: Marks = NO_JUDGEMENT,
    *, nothing: str = "no data", decimals: int = 0, said: Words = (), absent: str = UNKNOWN,
) -> stat.Panel:  # fmt: skip
    """A number to read from across the room; where nothing is known it says `nothing`, never 0, and is never green.

    `absent` is the colour of that, where values have one.
    """
    panel = stat.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE)
    panel.targets(list(queries([(query, "")], instant=True))).no_value(nothing).decimals(decimals)
    panel.graph_mode(common_model.BigValueGraphMode.NONE)
    panel.color_mode(common_model.BigValueColorMode.VALUE)
    if len(marks) > 1 or said:
        panel.color_mode(common_model.BigValueColorMode.BACKGROUND_SOLID)
        marks = ((None, absent), (ANY_NUMBER, marks[0][1]), *marks[1:])
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if said:
        panel.mappings(words(said))
    return panel.thresholds(steps(marks))


def word(
    title: str, asked: Sequence[Query], description: str, said: Words, *, nothing: str, absent: str = UNKNOWN,
) -> stat.Panel:  # fmt: skip
    """Words in place of numbers, one for each series, named by its legend where there are several."""
    panel = number(title, asked[0][0], description, nothing=nothing, said=said, absent=absent)  # fmt: skip
    panel.targets(list(queries(asked, instant=True)))
    return panel.text_mode(common_model.BigValueTextMode.AUTO)


def lines(
    title: str, asked: Sequence[Query], description: str, unit: str,
    *, top: float | None = None, bottom: float | None = 0, nothing: str = "not known", marks: Marks = (),
) -> timeseries.Panel:  # fmt: skip
    """Lines over time, from 0 up; gaps stay gaps, since unknown is not what was before."""
    panel = timeseries.Panel().title(title).description(description).unit(unit)
    panel.datasource(DATASOURCE).targets(list(queries(asked))).no_value(nothing)
    panel.span_nulls(False).line_width(1).fill_opacity(5)
    panel.show_points(common_model.VisibilityMode.AUTO)
    if bottom is not None:
        panel.min(bottom)
    if top is not None:
        panel.max(top)
    if marks:
        line = common.GraphThresholdsStyleConfig().mode(common_model.GraphTresholdsStyleMode.DASHED)
        panel.thresholds(steps(marks)).thresholds_style(line)
    legend = common.VizLegendOptions().display_mode(common_model.LegendDisplayMode.LIST)
    panel.legend(legend.placement(common_model.LegendPlacement.BOTTOM).show_legend(True))
    tooltip = common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI)
    return panel.tooltip(tooltip.sort(common_model.SortOrder.DESCENDING))


def areas(title: str, asked: Sequence[Query], description: str, unit: str, colors: dict[str, str]) -> timeseries.Panel:  # fmt: skip
    """Parts of a whole, one upon the other; `colors` by legend."""
    panel = lines(title, asked, description, unit).fill_opacity(70).line_width(0)
    panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL))
    for name, color in colors.items():
        panel.override_by_name(name, [_color(color)])
    return panel


def _color(color: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})


def stairs(title: str, asked: Sequence[Query], description: str, unit: str, *, nothing: str) -> timeseries.Panel:  # fmt: skip
    """What is counted: each step is an event."""
    panel = lines(title, asked, description, unit, nothing=nothing).decimals(0)
    return panel.line_interpolation(common_model.LineInterpolation.STEP_AFTER)


def band(
    title: str, asked: Sequence[Query], description: str, said: Words = STATE_WORDS,
    *, nothing: str = "no data", links: Sequence[dict[str, Any]] = (),
) -> statetimeline.Panel:  # fmt: skip
    """One row per series, coloured by the word that its value stands for."""
    panel = statetimeline.Panel().title(title).description(description).datasource(DATASOURCE)
    panel.targets(list(queries(asked))).mappings(words(said)).no_value(nothing)
    panel.thresholds(steps(((None, QUIET),))).show_value(common_model.VisibilityMode.AUTO)
    panel.max_data_points(BAND_POINTS).merge_values(True).row_height(0.8).fill_opacity(
        85
    ).line_width(0)
    if links:
        value = model.DynamicConfigValue(id_val="links", value=list(links))
        panel.override_by_regexp(".*", [value])
    return panel.legend(common.VizLegendOptions().show_legend(False))
