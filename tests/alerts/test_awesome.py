"""The form of awesome-prometheus-alerts: made into rules as that collection makes them, tried by promtool."""

from pathlib import Path
from typing import Any

import yaml

from tests.alerts.stories import ROOT, incident, promtool, series, server
from vllm_watch.story.kinds import KINDS

FILE = ROOT / "alerts" / "awesome" / "rules.yml"
NOTED = {"summary": "{name} (instance {{{{ $labels.instance }}}})", "description": "{description}"}


def exporters() -> dict[str, list[dict[str, Any]]]:
    """Slug → its rules, in the words of that form."""
    (group,) = yaml.safe_load(FILE.read_text())["groups"]
    (service,) = group["services"]
    return {each["slug"]: each["rules"] for each in service["exporters"]}


def as_prometheus(folder: Path) -> Path:
    """A rule file of Prometheus, as the collection's template writes one."""
    rules = [
        {
            "alert": "".join(word[:1].upper() + word[1:] for word in rule["name"].split()),
            "expr": rule["query"],
            "for": rule.get("for", "0m"),
            "labels": {"severity": rule["severity"]},
            "annotations": {key: text.format(**rule) for key, text in NOTED.items()},
        }
        for rules in exporters().values()
        for rule in rules
    ]
    file = folder / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "vllm", "rules": rules}]}, width=1000))
    return file


def test_prometheus_takes_every_rule(tmp_path: Path) -> None:
    """Names, severities and expressions are those of the form, and no rule needs a recorded series."""
    every = [rule for rules in exporters().values() for rule in rules]
    assert all({"name", "description", "query", "severity"} <= rule.keys() for rule in every)
    assert {rule["severity"] for rule in every} == {"critical", "warning"}
    assert len({rule["name"] for rule in exporters()["vllm-watch"]}) > len(KINDS)
    assert all(f'kind="{kind}"' in FILE.read_text() for kind in KINDS)
    status, said = promtool("check", "rules", as_prometheus(tmp_path))
    assert status == 0, said


def test_what_is_open_fires_and_what_recovers_does_not(tmp_path: Path) -> None:
    """One server is down, another recovers from it, a third has a ticket; vLLM itself is down at a fourth."""
    recovering = {"target": "b", "engine": "", "kind": "engine_down", "cause": "crash"}
    shown = [
        *server("a", "g"), *server("b", "g"), *server("c", "g"), series("vllm_watch_build_info", "1x40"),
        incident("a", "engine_down", "crash"), incident("b", "engine_down", "crash"),
        series("vllm_watch_incident_recovering", "1x40", **recovering),
        incident("c", "overload", "queue_growth", "ticket", engine="0"),
        ('up{job="vllm", instance="d:8000"}', "1x10 0x40"),
    ]  # fmt: skip
    test = {
        "rule_files": [str(as_prometheus(tmp_path))],
        "evaluation_interval": "15s",
        "tests": [{
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in shown],
            "promql_expr_test": [{
                "expr": 'count by (alertname, target, instance) (ALERTS{alertstate="firing"})',
                "eval_time": "8m",
                "exp_samples": [
                    {"labels": '{alertname="VLLMEngineDown", instance="w:9470", target="a"}', "value": 1},
                    {"labels": '{alertname="VLLMEngineDown", instance="d:8000"}', "value": 1},
                    {"labels": '{alertname="VLLMIncidentTicket", instance="w:9470", target="c"}', "value": 1},
                ],
            }],
        }],
    }  # fmt: skip
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(test))
    status, said = promtool("test", "rules", file)
    assert status == 0, said
