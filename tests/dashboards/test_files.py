"""The dashboards as files: made by their builder, asking only for what we export, in its unit, and leading somewhere."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.dashboards import grafana, shape
from tests.for_each import for_each
from tests.promql import complaints

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / "dashboards" / "build.py"
DASHBOARDS = {file.name: grafana.load(file) for file in grafana.FILES}
QUERIES = {
    f"{name}: {query.panel}: {number}": query
    for name, dashboard in DASHBOARDS.items()
    for number, query in enumerate(grafana.queries(dashboard))
}
UIDS = {dashboard["uid"]: dashboard for dashboard in DASHBOARDS.values()}

# What an expression gives → Grafana's units that show it rightly. Words are numbers with a mapping, without a unit.
UNITS = {
    shape.COUNT: {"short", None}, shape.SECONDS: {"s"}, shape.RATIO: {"percentunit", "short"}, "bytes": {"bytes"},
    "per second": {"suffix:/s"}, "tokens per second": {"suffix: tokens/s"}, "watts": {"watt"}, "celsius": {"celsius"},
    shape.MILLISECONDS: {"dateTimeFromNow"},
}  # fmt: skip


def filled(expr: str) -> str:
    names = ("target", "group", "instance", "engine", "host", "gpu", "namespace", "model_name")
    return grafana.fill(expr, interval_s=15, range_s=3600, **dict.fromkeys(names, ".*"))


PANELS = {
    f"{file}: {panel['title']}: {panel['id']}": panel
    for file, dashboard in DASHBOARDS.items()
    for panel in grafana.panels(dashboard)
}
TABLES = {name: panel for name, panel in PANELS.items() if panel["type"] == "table"}


def overrides(panel: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Which fields → the value of one property that they are given."""
    for override in panel["fieldConfig"]["overrides"]:
        for found in override["properties"]:
            if found["id"] == name:
                yield override["matcher"]["options"], found["value"]


# --- as files


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BUILDER, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_files_are_what_the_builder_builds() -> None:
    """No file is edited by hand, left behind, or built by nobody."""
    done = build("--check")
    assert done.returncode == 0, done.stderr


@for_each(DASHBOARDS)
def test_ids_are_unique_and_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    """Grafana shifts what overlaps, and confuses panels of one id."""
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in itertools.combinations([p["gridPos"] for p in dashboard["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in dashboard["panels"])


@for_each(DASHBOARDS)
def test_data_source_is_a_variable_everywhere(dashboard: dict[str, Any]) -> None:
    """A dashboard that names its author's data source works at nobody else's."""
    uses = [panel["datasource"] for panel in grafana.panels(dashboard)]
    uses += [t["datasource"] for panel in grafana.panels(dashboard) for t in panel["targets"]]
    uses += [v["datasource"] for v in grafana.variables(dashboard)]
    uses += [each["datasource"] for each in dashboard["annotations"]["list"]]
    assert all(use == {"type": "prometheus", "uid": "${datasource}"} for use in uses)


@for_each(DASHBOARDS)
def test_variables_are_there_and_used(dashboard: dict[str, Any]) -> None:
    """Each variable that is asked for can be chosen, and each that can be chosen changes something."""
    own = [variable["name"] for variable in dashboard["templating"]["list"]]
    shown = json.dumps([dashboard["panels"], dashboard["annotations"]])
    used = set(re.findall(r"\$\{?(\w+)", shown))
    grafanas = {name for name in used if name.startswith("__")}
    narrowing = {"group", "namespace", "model_name"}
    assert set(own) - used <= narrowing, "they only narrow the list of targets or watchers"
    assert {"namespace", "model_name", "instance"} <= set(own)
    assert used - grafanas <= set(own)
    assert grafanas <= {"__rate_interval", "__range", "__data", "__field", "__url_time_range"}


# --- what they say


@for_each(PANELS)
def test_panel_says_what_it_means(panel: dict[str, Any]) -> None:
    """A number without an explanation is taken for what it is not, and "No data" for an answer."""
    assert re.match(r"[A-Za-z0-9].{30,}", panel["description"]), "a sentence"
    assert panel["fieldConfig"]["defaults"]["noValue"]


STATS = {name: panel for name, panel in PANELS.items() if panel["type"] == "stat"}


@for_each(STATS)
def test_what_is_not_known_is_never_green(panel: dict[str, Any]) -> None:
    """Grafana colours what is absent as if it were less than every number."""
    first, *others = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert first["value"] is None
    if panel["options"]["colorMode"] == "background_solid":
        assert first["color"] in ("purple", "transparent")
        assert others[0]["value"] <= -1e12, (
            "a number of its own, be it negative for clocks that differ"
        )


@for_each({file: file for file in DASHBOARDS})
def test_runbooks_exist(file: str) -> None:
    """Each page that a description names is in this repository, with the heading that is meant."""
    pages = re.findall(r"docs/[\w/.-]+\.md(?:#[\w-]+)?", json.dumps(DASHBOARDS[file]))
    assert pages
    for page in pages:
        path, _, anchor = page.partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
        assert not anchor or anchor in slugs, page


def test_runbooks_can_be_given_an_address(tmp_path: Path) -> None:
    """With one, pages are links, in a table's cells, too; without, a page is named and nothing leads nowhere."""
    assert build("--out", tmp_path, "--runbooks", "https://wiki/").returncode == 0
    for file, dashboard in DASHBOARDS.items():
        text, plain = (tmp_path / file).read_text(), json.dumps(dashboard)
        assert "](https://wiki/docs/" in text
        assert "<<" not in text + plain
        assert "](" not in plain
    linked = json.loads((tmp_path / "overview.json").read_text())
    kinds = {v[0]["url"] for p in grafana.panels(linked) for f, v in overrides(p, "links") if f == "Kind"}  # fmt: skip
    assert kinds == {"https://wiki/docs/detectors/${__data.fields.Kind}.md"}


def test_limits_are_those_of_the_alerts() -> None:
    """What is coloured red at a number is what an alert fires at."""
    said = subprocess.run(
        [sys.executable, "-c", "from boards import limits; print(*(v for k, v in vars(limits).items() if k.isupper()))"],
        cwd=BUILDER.parent, capture_output=True, text=True, timeout=600, check=True,
        env={"PYTHONPATH": str(ROOT)},
    ).stdout.split()  # fmt: skip
    rules = (ROOT / "alerts" / "watcher.yaml").read_text()
    ours = {"VllmWatchBlind": "10", "VllmWatchSourceStale": "300", "VllmWatchStateNotKept": "600"}
    assert {*ours.values(), "1500"} <= set(said)
    for alert, number in ours.items():
        rule = rules.partition(f"alert: {alert}\n")[2].partition("annotations:")[0]
        assert re.search(rf"\b{number}\b", rule), alert
    assert "> 1500" in rules


# --- what they ask


@for_each(QUERIES)
def test_query_asks_for_what_exists(query: grafana.Query) -> None:
    """Every series, label and label value that is named is exported."""
    assert complaints(filled(query.expr)) == []


@for_each(QUERIES)
def test_unit_is_the_metrics_own(query: grafana.Query) -> None:
    """Units are those of the metrics, through all arithmetic: seconds by seconds are a ratio, and so on."""
    unit = shape.of(filled(query.expr)).unit
    if query.annotation:
        assert unit in (shape.COUNT, shape.MILLISECONDS)
    else:
        assert query.unit in UNITS[unit], (unit, query.unit)


@for_each(QUERIES)
def test_legend_names_labels_that_are_left(query: grafana.Query) -> None:
    """A legend's label is one that the series have and that aggregation and joins keep."""
    wanted = set(re.findall(r"{{\s*(\w+)\s*}}", query.legend))
    assert wanted <= (shape.of(filled(query.expr)).labels or set())
    assert wanted or query.instant or query.legend, "lines without labels cannot be told apart"


@for_each({file: file for file in DASHBOARDS})
def test_variables_ask_for_what_exists(file: str) -> None:
    """The series and the label that a variable takes its values from."""
    for variable in grafana.variables(DASHBOARDS[file]):
        selector, label = grafana.asked(variable)
        assert complaints(filled(selector)) == []
        assert label in (shape.of(filled(selector)).labels or set())


@for_each({file: file for file in DASHBOARDS})
def test_annotations_stand_where_they_happened(file: str) -> None:
    """A time is taken from the value exactly where the value is one."""
    for each in DASHBOARDS[file]["annotations"]["list"]:
        is_time = shape.of(filled(each["expr"])).unit == shape.MILLISECONDS
        assert each["useValueForTime"] is is_time


# --- where they lead


def addresses(dashboard: dict[str, Any]) -> Iterator[str]:
    yield from (link["url"] for link in dashboard["links"] if link["type"] == "link")
    for panel in grafana.panels(dashboard):
        for _, links in overrides(panel, "links"):
            yield from (link["url"] for link in links)


@for_each({file: file for file in DASHBOARDS})
def test_links_lead_somewhere(file: str) -> None:
    """To a dashboard that there is, with variables that it has; all four others are linked, and vLLM's own."""
    dashboard = DASHBOARDS[file]
    for address in addresses(dashboard):
        if address.startswith("/d/"):
            uid, _, query = address.removeprefix("/d/").partition("?")
            names = {variable["name"] for variable in UIDS[uid]["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", query)) <= names
        else:
            assert address == "http://${__data.fields.Watcher}/", "the watcher's own page"
    tops = {link["url"] for link in dashboard["links"] if link["type"] == "link"}
    assert tops == {f"/d/{uid}" for uid in UIDS if uid != dashboard["uid"]}
    (others,) = [link for link in dashboard["links"] if link["type"] == "dashboards"]
    assert others["tags"] == ["vllm"]
    assert all(link["includeVars"] and link["keepTime"] for link in dashboard["links"])


@for_each(TABLES)
def test_columns_and_overrides_name_what_is_there(panel: dict[str, Any]) -> None:
    """A renamed column would lose its unit, its colours and its link without a word."""
    fields, titles = grafana.columns(panel), set(grafana.columns(panel).values())
    labels = [shape.of(filled(target["expr"])).labels or set() for target in panel["targets"]]
    values = {f"Value #{t['refId']}" for t in panel["targets"]} if len(labels) > 1 else {"Value"}
    for field in fields:
        assert field in values or any(field in each for each in labels), field
    assert values <= set(fields)
    assert {each["displayName"] for each in panel["options"]["sortBy"]} <= titles
    matched = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
    assert matched <= titles
    for _, links in overrides(panel, "links"):
        named = set(re.findall(r"__data\.fields\.(\w+)", json.dumps(links)))
        assert named <= titles


@for_each(TABLES)
def test_rows_of_a_table_are_one_thing_each(panel: dict[str, Any]) -> None:
    """Queries of one table have the same labels: else their rows would not be joined, and stand twice."""
    labels = {shape.of(filled(target["expr"])).labels for target in panel["targets"]}
    assert len(labels) == 1
