"""The other forms of the rules: in step with their source, complete, and tuned as asked for."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import rjsonnet
import yaml

from tests.alerts.incident_stories import crashes, fleet
from tests.alerts.stories import (
    ROOT,
    RULE_FILES,
    Story,
    answered,
    as_promtool,
    promtool,
    rules,
)
from vllm_watch.export.engine_families import BOUNDS
from vllm_watch.story.kinds import KINDS

GENERATOR = ROOT / "alerts/generate.py"
KUBERNETES = ROOT / "deploy/kubernetes/monitoring/prometheus-rule.yaml"
MIXIN = ROOT / "alerts/mixin"
AWESOME = ROOT / "alerts/awesome/rules.yml"
NOTED = {"summary": "{name} (instance {{{{ $labels.instance }}}})", "description": "{description}"}
SHORT = {"ttft": "ttft", "itl": "inter_token_latency", "e2e": "e2e_latency"}


def generate(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, GENERATOR, *arguments], capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    return done.returncode, done.stderr


def groups_of(text: str) -> list[dict[str, Any]]:
    loaded = yaml.load(text, yaml.CSafeLoader)
    found: list[dict[str, Any]] = loaded.get("spec", loaded)["groups"]
    return found


SOURCE = [group for file in RULE_FILES for group in groups_of(file.read_text())]


def without_comments(value: Any) -> Any:
    """The groups as Prometheus understands them: a comment in an expression says nothing to it."""
    return json.loads(re.sub(r"[ \t]+# tune: \w+", "", json.dumps(value)))


def test_forms_are_in_step() -> None:
    """The PrometheusRule and the mixin's rules are what the generator makes of alerts/*.yaml."""
    assert generate("--check") == (0, "")


ELSEWHERE = re.compile(r"systemd|systemctl|journalctl|\b[Dd]ocker\b")
BRACKET = re.compile(r" ?\([^()]*(?:kubectl|Kubernetes)[^()]*\)")


def test_prometheus_rule_holds_the_same_rules() -> None:
    """Kubernetes gets every group of the files, word for word but for the comments and the brackets of platforms."""
    made, files = (json.dumps(each) for each in (groups_of(KUBERNETES.read_text()), without_comments(SOURCE)))  # fmt: skip
    assert BRACKET.sub("", made) == BRACKET.sub("", files)


def test_no_alert_in_kubernetes_names_another_platform() -> None:
    """Its first step is one that can be done there: `kubectl`, and never systemd."""
    assert ELSEWHERE.search(json.dumps(without_comments(SOURCE)))
    made = json.dumps(groups_of(KUBERNETES.read_text()))
    assert not ELSEWHERE.search(made)
    assert "kubectl get pods" in made
    assert "kubectl logs --previous" in made


def test_mixin_is_rendered_by_jsonnet() -> None:
    """Its rules are those of the files, its dashboards those that we ship, and a number can be set."""
    rendered = json.loads(rjsonnet.evaluate_snippet("here", f"""
        local mixin = (import '{MIXIN}/mixin.libsonnet') + {{ _config+:: {{ unhealthy_share_page: '0.25', without: ['VllmOverloaded'] }} }};
        {{ alerts: mixin.prometheusAlerts, dashboards: mixin.grafanaDashboards }}
    """))  # fmt: skip
    names = {rule.get("alert") for group in rendered["alerts"]["groups"] for rule in group["rules"]}
    ours = {rule.get("alert") for group in SOURCE for rule in group["rules"]}
    assert names == ours - {"VllmOverloaded"}
    assert "0.25" in json.dumps(rendered["alerts"])
    assert rendered["dashboards"] == {
        f"vllm-watch-{file.name}": json.loads(file.read_text()) for file in (ROOT / "dashboards").glob("*.json")
    }  # fmt: skip


def test_grafana_has_every_alert_once() -> None:
    """Each alert with the same query, labels and wait; no annotation asks Prometheus, which Grafana's templates cannot."""
    groups = yaml.load((ROOT / "alerts/grafana/vllm-watch.yaml").read_text(), yaml.CSafeLoader)[
        "groups"
    ]
    made = [rule for group in groups for rule in group["rules"]]
    source = [
        rule for group in without_comments(SOURCE) for rule in group["rules"] if "alert" in rule
    ]
    assert [rule["data"][0]["model"]["expr"] for rule in made] == [rule["expr"] for rule in source]
    assert [rule["labels"] for rule in made] == [rule.get("labels", {}) for rule in source]
    assert [rule["for"] for rule in made] == [rule.get("for", "0s") for rule in source]
    assert len({rule["uid"] for rule in made}) == len({rule["title"] for rule in made}) == len(made)
    assert all(len(rule["uid"]) <= 40 for rule in made)
    annotations = json.dumps([rule["annotations"] for rule in made])
    assert "| query" not in annotations
    assert "$value " not in annotations  # a text in Grafana, which no function of ours takes
    assert all(rule["annotations"]["summary"] for rule in made)


def test_openslo_asks_for_series_that_we_export() -> None:
    """Each query parses, and its limit is a bucket of its histogram."""
    service, *objectives = yaml.load_all(
        (ROOT / "alerts/openslo/objectives.yaml").read_text(), yaml.CSafeLoader
    )
    bounds = {f"vllm_watch_engine_{short}_seconds": BOUNDS[name] for short, name in SHORT.items()}
    assert len(objectives) == len(bounds)
    for objective in objectives:
        assert objective["spec"]["service"] == service["metadata"]["name"]
        assert 0 < objective["spec"]["objectives"][0]["target"] < 1
        metric = objective["spec"]["indicator"]["spec"]["ratioMetric"]
        good, total = (metric[key]["metricSource"]["spec"]["query"] for key in ("good", "total"))
        promql_parser.parse(total)
        promql_parser.parse(good)
        family, limit = re.findall(r'(\w+)_bucket\{le="([\d.]+)"\}', good)[0]
        assert float(limit) in bounds[family]
        assert f"{family}_count" in total


def test_every_number_can_be_set(tmp_path: Path) -> None:
    """Whatever is marked `# tune` takes another value, everywhere, and the rules stay valid."""
    names = {name for file in RULE_FILES for name in re.findall(r"# tune: (\w+)", file.read_text())}
    values = {
        name: f"{7 + n}m"
        if name.startswith("keep_firing") or name.endswith("_wait")
        else f"0.{123 + n}"
        for n, name in enumerate(sorted(names))
    }
    wanted = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    assert generate("--out", tmp_path, "--job", "mine", *wanted) == (0, "")
    file = tmp_path / "vllm-watch-rules.yaml"
    status, said = promtool("check", "rules", file)
    assert status == 0, said
    text = file.read_text()
    assert all(value in text for value in values.values())
    assert 'job="mine"' in text
    assert 'job="vllm-watch"' not in text


@pytest.mark.parametrize(
    ("share", "down", "of", "severity"),
    [("0.2", 1, 5, "page"), ("0.2", 1, 6, "ticket"), ("0.3", 6, 20, "page"), ("0.1", 1, 10, "page")],
)  # fmt: skip
def test_a_share_that_is_met_exactly_pages(
    tmp_path: Path, share: str, down: int, of: int, severity: str
) -> None:
    """One of five is 0.2, to the last bit: whoever sets that number is woken at it, and not at less."""
    assert generate("--out", tmp_path, "--set", f"unhealthy_share_page={share}") == (0, "")
    story = Story("", "VllmEngineDown", (*fleet(of), *crashes(range(down))))
    told = as_promtool(story) | {"rule_files": [str(tmp_path / "vllm-watch-rules.yaml")]}
    (check,) = told["tests"][0].pop("alert_rule_test")
    expression = f'count(ALERTS{{alertname="VllmEngineDown", severity="{severity}"}})'
    expected = [{"labels": "{}", "value": down}]
    told["tests"][0]["promql_expr_test"] = [
        {"expr": expression, "eval_time": check["eval_time"], "exp_samples": expected}
    ]
    status, said = answered(tmp_path, told)
    assert status == 0, said


def test_an_alert_is_left_out_and_runbooks_have_an_address(tmp_path: Path) -> None:
    """--without takes just that alert; --runbooks stands before every page."""
    arguments = ("--without", "VllmOverloaded", "--runbooks", "https://runbooks.example/")
    assert generate("--out", tmp_path, *arguments) == (0, "")
    left = {
        rule["alert"] for rule in rules([tmp_path / "vllm-watch-rules.yaml"]) if "alert" in rule
    }
    assert {rule["alert"] for rule in rules(RULE_FILES) if "alert" in rule} - left == {
        "VllmOverloaded"
    }
    pages = re.findall(r"runbook_url: (\S+)", (tmp_path / "prometheus-rule.yaml").read_text())
    assert "https://runbooks.example/engine_down#many-at-once" in pages
    assert "https://runbooks.example/alerts#vllmwatchabsent" in pages
    assert all(page.startswith("https://runbooks.example/") for page in pages)


def test_what_there_is_not_is_named(tmp_path: Path) -> None:
    """A misspelt number or alert is no silent success."""
    status, said = generate("--out", tmp_path, "--set", "unhealthy=1", "--without", "VllmGone")
    assert status == 2
    assert "There is no VllmGone, unhealthy." in said
    assert list(tmp_path.iterdir()) == []


def exporters() -> dict[str, list[dict[str, Any]]]:
    (group,) = yaml.safe_load(AWESOME.read_text())["groups"]
    (service,) = group["services"]
    return {each["slug"]: each["rules"] for each in service["exporters"]}


def as_prometheus(folder: Path) -> Path:
    """A rule file of Prometheus, as the collection's template writes one."""
    made = [
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
    file.write_text(yaml.safe_dump({"groups": [{"name": "vllm", "rules": made}]}, width=1000))
    return file


def test_prometheus_takes_every_rule(tmp_path: Path) -> None:
    """Names, severities and expressions are those of the form, and no rule needs a recorded series."""
    every = [rule for rules in exporters().values() for rule in rules]
    assert all({"name", "description", "query", "severity"} <= rule.keys() for rule in every)
    assert {rule["severity"] for rule in every} == {"critical", "warning"}
    assert len({rule["name"] for rule in exporters()["vllm-watch"]}) > len(KINDS)
    assert all(f'kind="{kind}"' in AWESOME.read_text() for kind in KINDS)
    status, said = promtool("check", "rules", as_prometheus(tmp_path))
    assert status == 0, said
