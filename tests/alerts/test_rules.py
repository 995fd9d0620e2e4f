"""The alert rules: valid, tested by promtool, over series that exist, each with its runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promql import LABELS, NAME, complaints

ROOT = Path(__file__).parents[2]
RULE_FILES = sorted((ROOT / "alerts").glob("*.yaml"))
RULES = [
    rule
    for file in RULE_FILES
    for group in yaml.safe_load(file.read_text())["groups"]
    for rule in group["rules"]
]


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("file", RULE_FILES, ids=lambda file: file.name)
def test_file_is_valid_and_has_stories(file: Path) -> None:
    """Every rule file passes promtool, and so do its stories in tests/alerts/."""
    assert "SUCCESS" in promtool("check", "rules", file)
    assert "SUCCESS" in promtool("test", "rules", ROOT / f"tests/alerts/{file.stem}_test.yaml")


@pytest.mark.parametrize("file", RULE_FILES, ids=lambda file: file.name)
def test_stories_are_evaluated_often(file: Path) -> None:
    """A story without an evaluation interval is looked at once a minute, and passes unseen."""
    stories = yaml.safe_load((ROOT / f"tests/alerts/{file.stem}_test.yaml").read_text())
    assert stories["evaluation_interval"] == "15s"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_fires_and_stays_quiet_in_stories(rule: dict[str, Any]) -> None:
    """Each alert has a story in which it fires, and one named quiet in which it does not."""
    fires, quiet = set(), set()
    for file in (ROOT / "tests/alerts").glob("*_test.yaml"):
        for story in yaml.safe_load(file.read_text())["tests"]:
            for check in story["alert_rule_test"]:
                if check.get("exp_alerts"):
                    fires.add(check["alertname"])
                elif story["name"].startswith("quiet"):
                    quiet.add(check["alertname"])
    assert rule["alert"] in fires & quiet


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_asks_for_what_exists(rule: dict[str, Any]) -> None:
    """Every series, label and label value that an alert names is exported."""
    assert complaints(rule["expr"]) == []
    assert set(NAME.findall(str(rule))) <= set(LABELS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_tells_its_reader_what_to_do(rule: dict[str, Any]) -> None:
    """A severity, a summary with values, what it is not, and a runbook that is there."""
    assert rule["labels"]["severity"] in {"page", "ticket"}
    notes = rule["annotations"]
    assert "{{" in notes["summary"]
    assert notes["summary"].endswith(".")
    assert re.search(r"\b(is not|says nothing|no proof)\b", notes["description"])
    page, _, anchor = notes["runbook_url"].partition("#")
    headings = re.findall(r"^## (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]
