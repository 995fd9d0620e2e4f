"""The example for Alertmanager: valid, routed as it says, and its texts in words."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.stories import ROOT

CONFIG = ROOT / "deploy/alertmanager.yml"
TEMPLATE = ROOT / "deploy/alertmanager.tmpl"
SUMMARY = "chat-0 (chat) is down: nothing listens on its port any more (crash)."
DETAILS = "Since 2026-01-01 00:00:30 UTC. No progress for 2m 0s."
SCOPE = "7 of chat at once. The worst, by time without progress: chat-6 2m 0s; chat-5 1m 50s;"


def amtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["amtool", *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_config_is_valid() -> None:
    """amtool finds nothing wrong with it, its template among it."""
    said = amtool("check-config", CONFIG)
    assert "SUCCESS" in said
    assert "1 templates" in said


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (("alertname=VllmEngineDown", "severity=page"), "page"),
        (("alertname=VllmEngineDown", "severity=ticket"), "ticket"),
        (("alertname=VllmWatchAbsent", "severity=page"), "page"),
        (("alertname=SomebodysOwn",), "ticket"),
        (("alertname=Mine", "severity=page", "restart=ask", "target=chat-0"), "restart,page"),
        (("alertname=Mine", "restart=ask", "target=chat-0"), "restart"),
    ],
)
def test_route(labels: tuple[str, ...], receivers: str) -> None:
    """Pages wake, the rest is a ticket, and only what asks for it goes to the restart receiver too."""
    said = amtool("config", "routes", "test", f"--config.file={CONFIG}", *labels)
    assert said.strip() == receivers


def render(name: str, folder: Path, *, firing: int, resolved: int = 0, later: str = SCOPE) -> str:
    """`later` is the scope of the alert that fires last; it is neither the first nor the last in the list."""
    alert: dict[str, Any] = {"annotations": {"summary": SUMMARY, "scope": SCOPE, "details": DETAILS, "page_url": "http://w:9470/#target-chat-0", "description": "This is not …",
                             "first_step": "Leave it.", "runbook_url": "http://w:9470/runbooks/engine_down"}, "labels": {}}  # fmt: skip
    labels = {"alertname": "VllmEngineDown", "group": "chat", "cause": "crash", "severity": "page"}
    data: dict[str, Any] = {
        "status": "firing" if firing else "resolved", "groupLabels": labels, "commonLabels": labels,
        "alerts": [{**alert, "status": "firing"}] * firing + [{**alert, "status": "resolved"}] * resolved,
    }  # fmt: skip
    last = {**alert["annotations"], "scope": later}
    for number, each in enumerate(data["alerts"]):
        is_last = number == len(data["alerts"]) // 2
        at = f"2026-01-01T00:00:{30 if is_last else number % 20:02}Z"
        data["alerts"][number] = (
            each | {"startsAt": at} | ({"annotations": last} if is_last else {})
        )
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    return amtool(
        "template", "render", f"--template.glob={TEMPLATE}", f"--template.data={file}",
        f'--template.text={{{{ template "vllm_watch.{name}" . }}}}',
    ).strip()  # fmt: skip


@pytest.mark.parametrize(
    ("firing", "resolved", "title"),
    [
        (1, 0, "[CRITICAL] VllmEngineDown chat: crash"),
        (7, 0, "[CRITICAL] VllmEngineDown chat: crash (7 firing, 0 resolved)"),
        (3, 4, "[CRITICAL] VllmEngineDown chat: crash (3 firing, 4 resolved)"),
        (0, 7, "[RESOLVED] VllmEngineDown chat: crash (0 firing, 7 resolved)"),
    ],
)
def test_title_counts(tmp_path: Path, firing: int, resolved: int, title: str) -> None:
    """The line on the pager says what, where, why and how many."""
    assert render("title", tmp_path, firing=firing, resolved=resolved) == title


def test_text_has_the_sentence_the_worst_and_the_runbook(tmp_path: Path) -> None:
    """Of many alerts the text is one: what the one that came last says, which counts all."""
    last = "200 of chat at once. The worst, by time without progress: chat-9 3m 0s;"
    assert render("text", tmp_path, firing=7, later=last).splitlines() == [
        SUMMARY, DETAILS, "Do: Leave it.", last, "This is not …", "Page: http://w:9470/#target-chat-0",
        "Runbook: http://w:9470/runbooks/engine_down",
    ]  # fmt: skip
