"""Tables: what is so now, one row per thing, the worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, table
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus as prometheus_model

from .style import DATASOURCE, OFF, PLAIN, Marks, Words, steps, words


@dataclass(frozen=True, kw_only=True)
class Column:
    """A label's values, or those of a query, under a title."""

    title: str
    label: str = ""  # of the series ...
    expr: str = ""  # ... or what to ask, by the same labels as the others
    unit: str | None = None
    decimals: int | None = None
    said: Words = ()  # values shown as coloured words
    marks: Marks = ()  # from which value on which colour
    width: int | None = None
    links: Sequence[Mapping[str, Any]] = ()


def filled(
    title: str, columns: Sequence[Column], description: str, *, sort: str, nothing: str, descending: bool = True
) -> table.Panel:  # fmt: skip
    """Rows of series with equal labels; labels that no column names are not shown. `sort` is a column's title."""
    panel = table.Panel().title(title).description(description).datasource(DATASOURCE)
    asked = [column for column in columns if column.expr]
    values = {c.title: f"Value #{chr(ord('A') + n)}" if len(asked) > 1 else "Value" for n, c in enumerate(asked)}  # fmt: skip
    panel.targets([_query(number, column.expr) for number, column in enumerate(asked)])
    fields = {values.get(c.title, c.label): c.title for c in columns}
    if len(asked) > 1:
        panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    organized = {
        "excludeByName": {"Time": True},
        "indexByName": {name: number for number, name in enumerate(fields)},
        "renameByName": fields,
    }
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=organized))
    for column in columns:
        if properties := _properties(column):
            panel.override_by_name(column.title, properties)
    by = common.TableSortByFieldState().display_name(sort).desc(descending)
    return panel.no_value(nothing).show_header(True).sort_by([by])


def _query(number: int, expr: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(expr).instant().legend_format("")
    query.format(prometheus_model.PromQueryFormat.TABLE).datasource(DATASOURCE)
    return query.ref_id(chr(ord("A") + number))


def _properties(column: Column) -> list[model.DynamicConfigValue]:
    found: dict[str, object] = {}
    if column.unit is not None:
        found["unit"] = column.unit
    if column.decimals is not None:
        found["decimals"] = column.decimals
    if column.said:
        seen = [(v, word, OFF if color == PLAIN else color) for v, word, color in column.said]
        found["mappings"] = words(seen)
    if column.marks:
        found["thresholds"] = steps(column.marks).build()
    if column.marks or any(color != PLAIN for _, _, color in column.said):
        found["custom.cellOptions"] = {"type": "color-background", "mode": "basic"}
    if column.width is not None:
        found["custom.width"] = column.width
    if column.links:
        found["links"] = [dict(link) for link in column.links]
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in found.items()]
