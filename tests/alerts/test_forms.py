"""The other forms of the rules: in step with their source, complete, and tuned as asked for."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.incident_stories import crashes, fleet
from tests.alerts.stories import ROOT, RULE_FILES, Story, as_promtool, promtool, rules

GENERATOR = ROOT / "alerts/generate.py"
KUBERNETES = ROOT / "deploy/kubernetes/monitoring/prometheus-rule.yaml"
MIXIN = ROOT / "alerts/mixin"
HOLE = re.compile(r"<<(\w+)>>")


def generate(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, GENERATOR, *arguments], capture_output=True, text=True, timeout=60, check=False
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


def test_mixin_holds_the_same_rules() -> None:
    """The mixin's defaults, put into its holes, give the rules of the files."""
    mixin = json.loads((MIXIN / "rules.json").read_text())
    text = json.dumps(mixin["groups"])
    assert set(HOLE.findall(text)) == set(mixin["defaults"])
    filled = HOLE.sub(lambda hole: json.dumps(mixin["defaults"][hole[1]])[1:-1], text)
    assert json.loads(filled) == without_comments(SOURCE)
    assert "import 'rules.json'" in (MIXIN / "mixin.libsonnet").read_text()


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
    file = tmp_path / "story.yaml"
    file.write_text(yaml.safe_dump(told))
    status, said = promtool("test", "rules", file)
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
