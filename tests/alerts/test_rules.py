"""The alert rules: valid, told as stories, over series that exist, each with its runbook and its page."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.stories import ALERTS, RAW_FILES, ROOT, RULE_FILES, Story, promtool, rules
from tests.alerts.test_stories import STORIES
from tests.for_each import for_each
from tests.promql import LABELS, NAME, complaints, recorded, selectors
from vllm_watch.export import page_files
from vllm_watch.story.base import severity_word
from vllm_watch.story.kinds import KINDS

WRITTEN_OUT = ROOT / "tests/alerts/watcher_test.yaml"  # the older stories, in promtool's own form
RULES = rules(RULE_FILES)
RAW = rules(RAW_FILES)
MADE = recorded(RULES)
CAPTURES = {
    kind: {
        name
        for file in (ROOT / "tests/sources/captures").glob(f"*-{kind.lower()}*.txt")
        for name in re.findall(r"^[a-z_:0-9]+", file.read_text(), re.MULTILINE)
    }
    for kind in ("V0", "V1")
}
# What vLLM's process exports beside its own names, and what Prometheus knows of a scrape.
NUMBER = re.compile(r"\$value|\| value\b|\bcount\b")
NOT_VLLM = {"up", "process_start_time_seconds", "process_resident_memory_bytes"}


def name(rule: dict[str, Any]) -> str:
    severity = rule.get("labels", {}).get("severity", "")
    return f"{rule.get('alert') or rule['record']} {severity}".strip()


def asked(rule: dict[str, Any]) -> list[str]:
    """Its expression, and those that its annotations ask for, with something in place of each %s."""
    notes = " ".join(rule.get("annotations", {}).values())
    said = [
        re.sub(r"'%s(\.\*)?'", "'$'", each) for each in re.findall(r'printf\s+"([^"]*)"', notes)
    ]
    labels = next((each for each in said if each.startswith("{")), "")  # put behind a name later on
    within = [each.replace("{%s", "{job='$'") for each in said if "vllm_watch" in each]
    found = [each.replace("%s", labels) for each in within]
    return [rule["expr"], *found]


@pytest.mark.parametrize("file", [*RULE_FILES, *RAW_FILES], ids=lambda file: file.name)
def test_file_is_valid(file: Path) -> None:
    status, said = promtool("check", "rules", "--lint=all", "--lint-fatal", file)
    assert status == 0, said


def test_stories_that_are_written_out() -> None:
    """Those of the watcher, in promtool's own form. Without an interval it would look once a minute."""
    assert yaml.safe_load(WRITTEN_OUT.read_text())["evaluation_interval"] == "15s"
    status, said = promtool("test", "rules", WRITTEN_OUT)
    assert status == 0, said


def told() -> tuple[set[tuple[str, str]], set[str]]:
    """(alert, severity) that fire in a story, and the alerts that are quiet in one."""
    fires = {(story.alert, fired.labels["severity"]) for story in STORIES for fired in story.fires}
    quiet = {story.alert for story in STORIES if not story.fires}
    for story in yaml.safe_load(WRITTEN_OUT.read_text())["tests"]:
        for check in story["alert_rule_test"]:
            for fired in check.get("exp_alerts", ()):
                fires.add((check["alertname"], fired["exp_labels"]["severity"]))
            if story["name"].startswith("quiet"):
                quiet.add(check["alertname"])
    return fires, quiet


@for_each({name(rule): rule for rule in ALERTS})
def test_alert_fires_and_stays_quiet_in_stories(rule: dict[str, Any]) -> None:
    """Each alert has a story in which it fires with its severity, and one in which it does not."""
    fires, quiet = told()
    wanted = rule.get("labels", {}).get("severity")
    assert any(alert == rule["alert"] and wanted in (severity, None) for alert, severity in fires)
    assert rule["alert"] in quiet


@for_each({f"{story.alert}: {story.name}": story for story in STORIES})
def test_story_without_an_alert_is_called_quiet(story: Story) -> None:
    """A story that expects nothing says so, and is not one that lost what it expected."""
    assert story.name.startswith("quiet - ") == (not story.fires)


@for_each({f"{number}: {name(rule)}": rule for number, rule in enumerate(RULES)})
def test_rule_asks_for_what_exists(rule: dict[str, Any]) -> None:
    """Every series, label and label value that a rule or its words ask for is exported or recorded."""
    assert [found for expr in asked(rule) for found in complaints(expr, MADE)] == []
    assert {n for n in NAME.findall(str(rule)) if f":{n}" not in str(rule)} <= set(LABELS)


@for_each({name(rule): rule for rule in RAW})
def test_raw_rule_asks_for_what_vllm_exports(rule: dict[str, Any]) -> None:
    """Every series of the rules without a watcher is in what a vLLM once answered."""
    made = {each["record"] for each in RAW if "record" in each}
    names = {selector.name for selector in selectors(rule["expr"])} - made - NOT_VLLM
    assert names <= CAPTURES["V0"] | CAPTURES["V1"]


@for_each({s.name: s for s in STORIES if "Raw" in s.alert and s.fires})
def test_raw_story_is_of_its_engine(story: Story) -> None:
    """What a story calls V0 or V1 has the names that such a vLLM exported."""
    kind = story.name[:2]
    names = {selector.partition("{")[0] for selector, _ in story.series} - NOT_VLLM
    assert names <= CAPTURES.get(kind, CAPTURES["V0"] | CAPTURES["V1"])


@for_each({name(rule): rule for rule in ALERTS})
def test_alert_tells_its_reader_what_to_do(rule: dict[str, Any]) -> None:
    """A sentence with values, what it is not, what to do first, and a runbook that is there and served."""
    notes = rule["annotations"]
    if "Raw" not in rule["alert"]:
        assert NUMBER.search(f"{notes['summary']} {notes.get('details', '')}")
        assert notes["first_step"].rstrip().endswith((".", "{{ end }}"))
        assert "page_url" in notes or rule["alert"] == "VllmWatchAbsent", "it does not answer"
    assert "{{" in notes["summary"]
    assert notes["summary"].endswith(".")
    assert re.search(
        r"\b(is not|are not|says nothing|no proof|not known|may be healthy)\b", notes["description"]
    )
    page, _, anchor = _page(rule).partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert not anchor or anchor in [heading.lower().replace(" ", "-") for heading in headings]
    if "/runbooks/" in notes["runbook_url"]:
        assert f"{Path(page).stem}.html" in page_files.contents("runbooks")


def _page(rule: dict[str, Any]) -> str:
    url = rule["annotations"]["runbook_url"]
    name, hash_, anchor = url.rpartition("/runbooks/")[2].removeprefix("docs/").partition("#")
    name = name.removesuffix(".md")
    folder = "" if name in {"alerts", "restart"} else "detectors/"
    return f"{folder}{name}.md{hash_}{anchor}"


def test_severities() -> None:
    """A rule says page or ticket, or takes over what was decided for the incident."""
    for rule in ALERTS:
        severity = rule.get("labels", {}).get("severity")
        assert severity in {"page", "ticket"} or "vllm_watch:incident_alert" in rule["expr"]


def test_every_kind_of_incident_has_its_alert() -> None:
    """No detector finds what no alert tells, and the catch-all leaves out just those that have one."""
    own = {kind for r in ALERTS for kind in re.findall(r'incident_alert{kind="(\w+)"}', r["expr"])}
    assert own == set(KINDS)
    (rest,) = [rule["expr"] for rule in ALERTS if rule["alert"] == "VllmIncident"]
    assert set(re.findall(r'kind!~"([\w|]+)"', rest)[0].split("|")) == set(KINDS)


def _sections() -> dict[str, str]:
    text = (ROOT / "docs/alerts.md").read_text()
    parts = re.split(r"^### (\w+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@for_each({name(rule): rule for rule in ALERTS})
def test_page_of_the_alert(rule: dict[str, Any]) -> None:
    """docs/alerts.md says of each alert whom it wakes, what it means, what it is not and what to do."""
    section = _sections()[rule["alert"]]
    severity = rule.get("labels", {}).get("severity")
    severities = re.findall(r"\b(critical|warning)\b", section.strip().splitlines()[0])
    assert severity_word(severity) in severities if severity else severities
    assert "**It is not**" in section
    runbook = _page(rule)
    assert "**Do**" in section or f"({runbook})" in section
    if not runbook.startswith("alerts.md"):
        assert f"({runbook})" in section


def test_page_has_no_alert_that_there_is_not() -> None:
    """What was renamed or dropped is gone from the page too, and so are numbers that nobody can set."""
    assert set(_sections()) == {rule["alert"] for rule in ALERTS}
    texts = "".join(file.read_text() for file in RULE_FILES)
    page = (ROOT / "docs/alerts.md").read_text()
    table = page.partition("## Switch off, tune")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(
        re.findall(r"# tune: (\w+)", texts)
    )
