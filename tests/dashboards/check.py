"""The live check: every query of a dashboard, asked of a Prometheus over a whole run, must have had a value.

What Grafana would ask is asked, with its variables filled in; an error of Prometheus' fails at once.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.dashboards import grafana
from tests.dashboards.prometheus import Prometheus

SCRAPE_S = 1
AGAIN_SECONDS = 3.0

Asked = tuple[str, grafana.Query]  # the dashboard's file, a query of it


class Check:
    """Of what one Prometheus has seen since `began_t`."""

    def __init__(self, prometheus: Prometheus, began_t: float) -> None:
        self._prometheus = prometheus
        self._began_t = began_t

    @property
    def _span(self) -> dict[str, float]:
        return {"start": self._began_t, "end": time.time()}

    def values(self, selector: str, label: str) -> list[str]:
        """As `label_values` brings them."""
        asked = {"match[]": selector, **self._span}
        names: list[str] = self._prometheus.ask(f"label/{label}/values", asked)
        return names

    def has_value(self, expr: str, filled: dict[str, str]) -> bool:
        """Was there a number at any time?"""
        range_s = max(SCRAPE_S, int(time.time() - self._began_t))
        text = grafana.fill(expr, interval_s=SCRAPE_S, range_s=range_s, **filled)
        asked = {"query": text, "step": SCRAPE_S, **self._span}
        result = self._prometheus.ask("query_range", asked)["result"]
        return any(value != "NaN" for series in result for _, value in series["values"])

    def unanswered(self, asked: Iterable[Asked]) -> list[Asked]:
        """Those without a value, whatever is chosen at the top of their dashboard."""
        chosen: dict[str, list[dict[str, str]]] = {}
        left = []
        for file, query in asked:
            if file not in chosen:
                chosen[file] = list(grafana.choices(BOARDS[file], self.values))
            if not any(self.has_value(query.expr, filled) for filled in chosen[file]):
                left.append((file, query))
        return left

    def empty_variables(self) -> list[str]:
        """Variables that bring nothing to choose from, whatever was chosen before them."""
        found = []
        for file, dashboard in BOARDS.items():
            for number, variable in enumerate(grafana.variables(dashboard)):
                selector, label = grafana.asked(variable)
                before = _without(dashboard, number)
                texts = [
                    grafana.fill(selector, interval_s=1, range_s=1, **filled)
                    for filled in grafana.choices(before, self.values)
                ]
                if not any(self.values(text, label) for text in texts):
                    found.append(f"{file}: {variable['name']}")
        return found


BOARDS = {file.name: grafana.load(file) for file in grafana.FILES}
ALL: list[Asked] = [(name, query) for name, made in BOARDS.items() for query in grafana.queries(made)]  # fmt: skip


def _without(dashboard: dict[str, Any], number: int) -> dict[str, Any]:
    """The dashboard with its first variables only."""
    return {"templating": {"list": grafana.variables(dashboard)[:number]}}


def named(asked: Iterable[Asked]) -> list[str]:
    """Which they are, for people."""
    return sorted({f"{file}: {query.panel}: {query.expr}" for file, query in asked})


def until_answered(check: Check, asked: Iterable[Asked], seconds: float, also: Callable[[], bool]) -> list[Asked]:  # fmt: skip
    """Ask until all have a value and `also` is so, or the time is up; return those that have none."""
    deadline = time.monotonic() + seconds
    left = check.unanswered(asked)
    while (left or not also()) and time.monotonic() < deadline:
        time.sleep(AGAIN_SECONDS)
        left = check.unanswered(left)
    return left
