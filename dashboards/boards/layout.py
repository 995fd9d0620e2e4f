"""Places panels on the grid, row by row, and puts a dashboard together."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from grafana_foundation_sdk.builders import dashboard, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import dashboard as model

from .annotations import Annotation
from .links import TITLES, VLLM_TAG, top
from .variables import Variable

COLUMNS = 24  # of Grafana's grid

Panel = stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel


@dataclass(frozen=True)
class Section:
    """Panels from left to right, line by line; with a title it is a row that folds.

    `widths` are taken in turn, over and over; a line ends where the next panel would not fit.
    """

    title: str
    panels: Sequence[Panel]
    height: int
    widths: tuple[int, ...] = (8,)


def assembled(
    uid: str,
    description: str,
    variables: Sequence[Variable],
    sections: Sequence[Section],
    annotations: Sequence[Annotation] = (),
) -> dashboard.Dashboard:
    """The whole dashboard. Ids go from top to bottom."""
    built = dashboard.Dashboard(f"vllm-watch: {_lowered(TITLES[uid])}").uid(uid)
    built.tags([VLLM_TAG, "vllm-watch"]).description(f"{description} Made by dashboards/build.py.")
    built.time("now-1h", "now").refresh("30s").timezone("browser").editable()
    built.tooltip(model.DashboardCursorSync.CROSSHAIR).links(list(top(uid)))
    for variable in variables:
        built.with_variable(variable)
    built.annotations(list(annotations))
    y, number = 0, 0
    for section in sections:
        if section.title:
            number += 1
            place = model.GridPos(h=1, w=COLUMNS, x=0, y=y)
            built.with_row(dashboard.Row(section.title).id(number).grid_pos(place))
            y += 1
        x = 0
        for width, panel in zip(cycle(section.widths), section.panels, strict=False):
            if x + width > COLUMNS:
                x, y = 0, y + section.height
            number += 1
            place = model.GridPos(h=section.height, w=width, x=x, y=y)
            built.with_panel(panel.id(number).grid_pos(place))
            x += width
        y += section.height
    return built


def _lowered(title: str) -> str:
    return title[0].lower() + title[1:]
