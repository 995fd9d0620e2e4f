"""What happened when, drawn over the lines: incidents as spans, restarts as spans and marks."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from .style import DATASOURCE, NOW, QUIET, SOON


class _Query(model.AnnotationQuery):
    """With the fields of Prometheus' annotations, which the SDK's model lacks."""

    further: dict[str, object]

    def to_json(self) -> dict[str, object]:
        return super().to_json() | self.further


class Annotation(dashboard.AnnotationQuery):
    """Every series of `expr` is an event; what follows each other without a gap is one span.

    With `at_value` the event is at the series' value, Unix milliseconds, instead of where it was sampled.
    """

    def __init__(self, name: str, color: str, expr: str, title: str, text: str, *, at_value: bool = False) -> None:  # fmt: skip
        query = _Query(name=name, datasource=DATASOURCE, icon_color=color, expr=expr)
        query.further = {
            "titleFormat": title, "textFormat": text, "tagKeys": "target",
            "useValueForTime": at_value, "step": "15s",
        }  # fmt: skip
        self._internal = query


def incidents(selector: str) -> list[Annotation]:
    """Pages and tickets in a colour each."""
    return [
        Annotation(
            f"Incidents: {severity}", color,
            f'vllm_watch_incident_open{{{selector}, severity="{severity}"}}',
            "{{kind}}: {{cause}}", "{{target}} {{engine}}",
        )
        for severity, color in (("page", NOW), ("ticket", SOON))
    ]  # fmt: skip


def restarts(selector: str) -> list[Annotation]:
    """Attempts while they are under way, and how they ended."""
    return [
        Annotation(
            "Restart under way", QUIET, f"vllm_watch_restart_under_way{{{selector}}} == 1",
            "A restart is under way", "{{target}}, from its intent to the end of its verification",
        ),
        Annotation(
            "Restart ended", QUIET, f"vllm_watch_restart_last_timestamp_seconds{{{selector}}} * 1000",
            "Restart: {{outcome}}", "{{target}}, asked for by: {{trigger}}", at_value=True,
        ),
    ]  # fmt: skip


def processes(selector: str) -> list[Annotation]:
    """Every start of a server, whoever started it."""
    return [
        Annotation(
            "Process started", QUIET, f"vllm_watch_target_process_start_timestamp_seconds{{{selector}}} * 1000",
            "The server's process started", "{{target}}", at_value=True,
        ),
    ]  # fmt: skip
