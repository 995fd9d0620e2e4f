"""Stories for promtool, written as tables: what is exported, which alert is looked at, and what it says.

A story without `fires` is a quiet one. What an alert always says (description, runbook) is taken from its
rule, so that a story holds only what it is about: labels, the summary, the count and the worst. Of the details,
which ask for much else, test_details.py has stories.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from vllm_watch.story.kinds import story_of

ROOT = Path(__file__).parents[2]
RULE_FILES = sorted((ROOT / "alerts").glob("*.yaml"))
RAW_FILES = sorted((ROOT / "alerts" / "fallback").glob("*.yaml"))
SCRAPED = {"job": "vllm-watch", "instance": "w:9470"}

Series = tuple[str, str]  # selector, promtool's values


def rules(files: list[Path]) -> list[dict[str, Any]]:
    """Every rule of these files, recording rules too."""
    return [
        rule
        for file in files
        for group in yaml.load(file.read_text(), yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]


ALERTS = [rule for rule in rules(RULE_FILES + RAW_FILES) if "alert" in rule]


@dataclass(frozen=True)
class Fired:
    """One alert as it is expected: its labels beyond alertname, and what it says of this case."""

    labels: Mapping[str, str]
    summary: str
    scope: str = ""


@dataclass(frozen=True)
class Story:
    """`at` is promtool's time; `every` the distance of the series' values and of the evaluations.

    `file` is the rule file; several, with a space between them, where one needs what another records.
    """

    name: str
    alert: str
    series: tuple[Series, ...]
    at: str = "3m"
    fires: tuple[Fired, ...] = ()
    every: str = "15s"
    file: str = "incidents.yaml"


def series(name: str, values: str, scraped: Mapping[str, str] = SCRAPED, **labels: str) -> Series:
    """A series of the watcher at w:9470; labels that are empty are left out."""
    pairs = [f'{key}="{value}"' for key, value in {**scraped, **labels}.items() if value]
    return f"{name}{{{', '.join(pairs)}}}", values


def server(target: str, group: str, state: str = "serving", values: str = "1x40") -> tuple[Series, ...]:  # fmt: skip
    """A server that is watched, and its one engine's state."""
    return (
        series("vllm_watch_target_info", values, target=target, group=group, url=f"http://{target}"),
        series("vllm_watch_engine_state", values, target=target, engine="0", model_name="m", state=state),
        series("vllm_watch_target_up", "1x40", target=target),
    )  # fmt: skip


def incident(
    target: str, kind: str, cause: str, severity: str = "page", values: str = "1x40", engine: str = ""
) -> Series:  # fmt: skip
    """An open incident."""
    return series(
        "vllm_watch_incident_open", values,
        target=target, engine=engine, kind=kind, cause=cause, severity=severity,
    )  # fmt: skip


def _alert(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The rule of an alert; of several with one name that of the severity."""
    found = [rule for rule in ALERTS if rule["alert"] == name]
    of_severity = [r for r in found if r.get("labels", {}).get("severity") == labels["severity"]]
    return (of_severity or found)[0]


def alert_of(kind: str) -> str:
    """The alert of a kind of incident."""
    return next(r["alert"] for r in ALERTS if f'alert{{kind="{kind}"}}' in r["expr"])


def _expected(name: str, fired: Fired) -> dict[str, Any]:
    notes = _alert(name, fired.labels)["annotations"]
    said = {key: notes[key] for key in ("description", "first_step") if key in notes}
    said |= _links(notes, fired.labels)
    if "{{" in said.get("first_step", ""):
        labels = fired.labels
        said["first_step"] = story_of(labels["kind"]).first_step_of(labels["cause"])
    if "scope" in notes:
        said["scope"] = fired.scope
    return {"exp_labels": dict(fired.labels), "exp_annotations": {**said, "summary": fired.summary}}


def _links(notes: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Where its page and its runbook are, of a watcher that has no external_url."""
    served = re.search(r"/runbooks/.*$", notes["runbook_url"])
    if served is None:
        return {"runbook_url": notes["runbook_url"]}
    instance = labels.get("instance", SCRAPED["instance"])  # else a watcher of the job
    base = f"http://{instance}"
    place = f"#target-{labels['target']}" if "target" in labels else ""
    return {"page_url": f"{base}/{place}", "runbook_url": base + served[0]}


@cache
def without_details() -> Path:
    """A folder with the rule files, less the details of their alerts."""
    folder = Path(tempfile.mkdtemp(prefix="rules-"))
    for file in RULE_FILES + RAW_FILES:
        loaded = yaml.safe_load(file.read_text())
        for group in loaded["groups"]:
            for rule in group["rules"]:
                rule.get("annotations", {}).pop("details", None)
        copy = folder / file.relative_to(ROOT / "alerts")
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(yaml.safe_dump(loaded, sort_keys=False))
    return folder


def as_promtool(story: Story) -> dict[str, Any]:
    """The file that promtool takes."""
    check: dict[str, Any] = {"eval_time": story.at, "alertname": story.alert}
    if story.fires:
        check["exp_alerts"] = [_expected(story.alert, fired) for fired in story.fires]
    files = [without_details() / name for name in story.file.split()]
    return asked(files, story.series, story.every, alert_rule_test=[check], name=story.name)


def asked(files: Iterable[Path], told: Iterable[Series], every: str = "15s", **checks: object) -> dict[str, Any]:  # fmt: skip
    """A file of promtool's: these rules over these series, and what is to be seen of them."""
    inputs = [{"series": selector, "values": values} for selector, values in told]
    return {
        "rule_files": [str(file) for file in files], "evaluation_interval": every,
        "tests": [{"interval": every, "input_series": inputs, **checks}],
    }  # fmt: skip


def answered(folder: Path, question: dict[str, Any]) -> tuple[int, str]:
    """What promtool says of such a file."""
    file = folder / "asked.yaml"
    file.write_text(yaml.safe_dump(question, sort_keys=False))
    return promtool("test", "rules", file)


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and all that it says."""
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout + done.stderr
