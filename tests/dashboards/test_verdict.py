"""The one word for the whole fleet, and who is shown to be ill: told in series, answered by Prometheus' own engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.alerts import stories
from tests.dashboards import grafana

BOARDS = {file.name: grafana.load(file) for file in grafana.FILES}
FILLED = {"target": "(a|b)", "instance": "w:9470", "engine": ".*", "gpu": ".*", "host": ".*", "group": "(g)", "namespace": ".*", "model_name": ".*"}  # fmt: skip
AT_S = 600

Said = Mapping[str, str]  # a series → its values, as promtool writes them


def series(name: str, values: str, **labels: str) -> Said:
    return dict([stories.series(f"vllm_watch_{name}", values, **labels)])


def seen(target: str, *, stopped: bool = False) -> Said:
    """A target that is looked at every ten seconds; `stopped`: not any more for the last minutes."""
    looks = "0+10x30 300x30" if stopped else "0+10x60"
    return {
        **series("target_info", "1x60", target=target, group="g", url="http://x"),
        **series("target_last_observation_timestamp_seconds", looks, target=target),
        **series("target_interval_seconds", "10x60", target=target),
        **series("engine_state", "0x60", target=target, engine="0", state="unknown"),
    }


def ill(target: str, severity: str, **labels: str) -> Said:
    known = {"engine": "", "kind": "engine_down", "cause": "crash"} | labels
    return {
        **series("incident_open", "1x60", target=target, severity=severity, **known),
        **series("incident_opened_timestamp_seconds", "480x60", target=target, severity=severity, **known),
        **series("incident_restart_advised", "0x60", target=target, severity=severity, **known),
        **series("incidents_total", "1x60", target=target, kind=known["kind"]),
    }  # fmt: skip


def answered(tmp_path: Path, expr: str, said: Said, expected: list[dict[str, Any]]) -> None:
    """promtool evaluates the expression over these series and compares."""
    filled = grafana.fill(expr, interval_s=15, range_s=3600, **FILLED)
    check = {"expr": filled, "eval_time": f"{AT_S}s", "exp_samples": expected}
    status, words = stories.answered(tmp_path, stories.asked([], said.items(), "10s", promql_expr_test=[check]))  # fmt: skip
    assert status == 0, words


def query(file: str, panel: str, number: int = 0) -> str:
    found = [each for each in grafana.queries(BOARDS[file]) if each.panel == panel]
    return found[number].expr


def word(file: str, panel: str, value: int) -> str:
    """What a number is shown as."""
    (stat,) = [each for each in grafana.panels(BOARDS[file]) if each["title"] == panel]
    (mapping,) = stat["fieldConfig"]["defaults"]["mappings"]
    text: str = mapping["options"][str(value)]["text"]
    return text


FLEETS: dict[str, tuple[Said, str | None]] = {
    "all is well": (seen("a") | seen("b"), "Nothing is wrong"),
    "a ticket is open": (seen("a") | ill("a", "ticket"), "Something to look at"),
    "nobody looked at one for minutes": (seen("a") | seen("b", stopped=True) | ill("a", "ticket"), "Not everything can be seen"),
    "of an engine nothing is known": (seen("a") | series("engine_state", "1x60", target="b", engine="0", state="unknown"), "Not everything can be seen"),
    "an incident pages": (seen("a") | seen("b", stopped=True) | ill("a", "page"), "Users are affected: act now"),
    "most fell silent at once": (seen("a") | ill("vllm-watch", "page"), "Users are affected: act now"),
    "a GPU of a host is lost": (seen("a") | ill("host:gpu-1", "page", kind="gpu_fault", cause="gpu_lost"), "Users are affected: act now"),
    "for your information only": (seen("a") | ill("a", "info"), "Nothing is wrong"),
    "another group's trouble": (seen("a") | seen("z") | ill("z", "page"), "Nothing is wrong"),
    "no watcher at all": ({}, None),
}  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), FLEETS.values(), ids=FLEETS)
def test_one_word_for_the_fleet(tmp_path: Path, said: Said, expected: str | None) -> None:
    """The worst that is so; where nobody looks there is no word at all, and the panel says just that."""
    panel = "Is anything wrong?"
    values = [n for n in range(4) if word("overview.json", panel, n) == expected]
    samples = [{"labels": "{}", "value": value} for value in values]
    assert bool(samples) == (expected is not None)
    answered(tmp_path, query("overview.json", panel), said, samples)
    (stat,) = [each for each in grafana.panels(BOARDS["overview.json"]) if each["title"] == panel]
    assert stat["fieldConfig"]["defaults"]["noValue"] == "No data from a watcher"


def test_who_has_it_names_the_group_and_what_is_of_none(tmp_path: Path) -> None:
    """An incident that many targets share is the watcher's, a GPU's is its host's: they are shown all the same."""
    said = (
        seen("a")
        | ill("a", "ticket")
        | ill("vllm-watch", "page", kind="engine_down", cause="unreachable")
    )
    said |= ill("host:gpu-1", "page", kind="gpu_fault", cause="gpu_lost")
    own = '{instance="w:9470", kind="engine_down", cause="unreachable", target="vllm-watch"}'
    host = '{instance="w:9470", kind="gpu_fault", cause="gpu_lost", target="host:gpu-1"}'
    one = '{instance="w:9470", group="g", kind="engine_down", cause="crash", target="a"}'
    expected = [
        {"labels": one, "value": 2},
        {"labels": own, "value": 3},
        {"labels": host, "value": 3},
    ]
    answered(tmp_path, query("overview.json", "Open incidents"), said, expected)


def test_one_trouble_of_many_is_one_row(tmp_path: Path) -> None:
    """With how many have it, and for how long the first of them."""
    said = seen("a") | seen("b") | ill("a", "ticket") | ill("b", "page")
    row = '{kind="engine_down", cause="crash"}'
    for number, value in enumerate((3, 2, AT_S - 480, 0)):
        answered(tmp_path, query("overview.json", "Incidents by cause", number), said, [{"labels": row, "value": value}])  # fmt: skip
