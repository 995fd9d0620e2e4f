"""One alert for each kind of incident, as text for alerts/incidents.yaml and docs/alerts.md, in the words of vllm_watch/story.

What is no word stands here: names that are not made of the kind's, what ranks the servers of one notification (the
recording rule vllm_watch:incident_alert:rank gives the numbers), and which kind waits until its cause is found.
"""

import re
import textwrap
from collections.abc import Mapping

from vllm_watch.samples.target import WATCHER
from vllm_watch.story.base import Story, runbook_path, severity_word
from vllm_watch.story.kinds import KINDS, MANY_AT_ONCE, STORIES

NAMES = {"overload": "VllmOverloaded"}
RANKED = {
    "engine_down": ("time without progress", "humanizeDuration"),
    "engine_stalled": ("time without progress", "humanizeDuration"),
    "throughput_collapse": ("what they lost of their throughput", "humanizePercentage"),
    "overload": ("requests that wait", "humanize"),
}
"""Kind → what the worst are ranked by, and how its value is written."""

EXPRESSIONS = {
    "throughput_collapse": """\
        # A collapse is seen a few looks before its cause is: whoever is woken should be told once, with the cause,
        # and not be woken at all where the cause makes it a ticket (preemption_thrash). So `unknown` waits.
        expr: |-
          vllm_watch:incident_alert{kind="throughput_collapse"}
            unless
          (
            vllm_watch:incident_alert{cause="unknown"}
              unless ignoring (severity)
            vllm_watch:incident_alert{cause="unknown"} offset 30s  # tune: cause_wait
          )"""
}

NEW = "a cause that these rules do not know"
WHO = (
    "{{ $labels.target }}{{ with $labels.engine }} engine {{ . }}{{ end }}"
    "{{ with $labels.group }}{{ if ne . $labels.target }} ({{ . }}){{ end }}{{ end }}"
)

BASE = (
    """{{ with printf "vllm_watch_external_url_info{job='%s', instance=~'%s.*'}" $labels.job $labels.instance | query }}"""
    """{{ . | first | label "url" }}{{ else }}{{ with $labels.instance }}http://{{ . }}{{ else }}"""
    """{{ with printf "vllm_watch_target_info{job='%s'}" $labels.job | query }}http://{{ . | first | label "instance" }}"""
    "{{ end }}{{ end }}{{ end }}"
)
"""Where the watcher's page is: what it says (external_url), else where Prometheus scrapes it; of several one."""

PAGE = BASE + "/{{ with $labels.target }}#target-{{ . }}{{ end }}"

OF = (
    """{{ $one := printf "job='%s', instance='%s', target='%s'" $labels.job $labels.instance $labels.target }}"""
    """{{ $of := $one }}{{ with $labels.engine }}{{ $of = printf "%s, engine='%s'" $one . }}{{ end }}"""
)
SINCE = (
    """{{ range printf "max(last_over_time(vllm_watch_incident_began_timestamp_seconds{%s, engine='%s', kind='%s', cause='%s'}[5m]))" $one """
    """$labels.engine $labels.kind $labels.cause | query }}Since {{ (. | value | toTime).UTC.Format "2006-01-02 15:04:05 UTC" }}.{{ end }}"""
)
PROGRESS = (
    """{{ range printf "floor(time() - max(last_over_time(vllm_watch_engine_last_progress_timestamp_seconds{%s}[5m])))" $of | query """
    "}} No progress for {{ . | value | humanizeDuration }}.{{ end }}"
)
THROUGHPUT = (
    """{{ range printf "min(vllm_watch_engine_throughput_ratio{%s})" $of | query }} Throughput: {{ . | value | """
    "humanizePercentage }} of its own when fresh.{{ end }}"
)
REQUESTS = (
    """{{ range printf "sum(last_over_time(vllm_watch_engine_requests_running{%s}[5m]))" $of | query }} Requests: {{ . | value }} running"""
    """{{ range printf "sum(last_over_time(vllm_watch_engine_requests_waiting{%s}[5m]))" $of | query }}, {{ . | value }} waiting{{ end }}."""
    "{{ end }}"
)
LAST_REQUESTS = REQUESTS.replace("Requests: {{", "When last scraped: {{")
PLACE = (
    """{{ range printf "vllm_watch_target_info{%s}" $one | query }}{{ with .Labels.pod }} Pod {{ . }}.{{ end }}{{ with .Labels.node }} """
    "Node {{ . }}.{{ end }}{{ end }}"
    """{{ range printf "count by (model_name) (last_over_time(vllm_watch_engine_state{%s}[5m]))" $of | query }}"""
    "{{ with .Labels.model_name }} Model {{ . }}.{{ end }}{{ end }}"
)
NUMBERS = {
    "engine_down": PROGRESS + LAST_REQUESTS,
    "engine_stalled": PROGRESS + REQUESTS,
    "throughput_collapse": THROUGHPUT + REQUESTS,
    "overload": REQUESTS,
}
"""Kind → what is said of its size, as last seen."""

ALIKE = (
    """{{ $like := printf "{job='%s', namespace='%s', group='%s', kind='%s', cause='%s', severity='%s'}" """
    "$labels.job $labels.namespace $labels.group $labels.kind $labels.cause $labels.severity "
    """}}{{ range printf "group:vllm_watch_incident_alert:count%s > 1" $like | query }}{{ . | value }} """
    "{{ with $labels.group }}of {{ . }} {{ end }}at once"
)
NAMED = (
    """, among them:{{- range printf "group:vllm_watch_incident_alert:worst%s" $like | query | sortByLabel "target" }} """
    "{{ .Labels.target }};{{ end }}{{ end }}"
)
WORST = (
    """. The worst, by BY:{{- range printf "sort_desc(group:vllm_watch_incident_alert:worst%s)" $like | query }} """
    "{{ .Labels.target }} {{ . | value | SHOWN }};{{ end }}{{ end }}"
)

SCOPE = re.compile(r" {10}scope: >-\n(?: {12}.*\n)+")


def alert_of(kind: str) -> str:
    """The name of its alert."""
    return NAMES.get(kind) or f"Vllm{kind.title().replace('_', '')}"


def rules() -> str:
    """The alerts of all kinds, the one for kinds that the rules do not know, and that of the watcher's own incident."""
    of_kinds = (_of_kind(kind, STORIES[kind]) for kind in KINDS)
    text = "\n".join([*of_kinds, _of_the_rest(), _of_many()])
    # What alerts share is written once.
    for number, block in enumerate(dict.fromkeys(SCOPE.findall(text)), 1):
        first, *others = text.split(block)
        anchored = block.replace(">-", f"&scope{number} >-", 1) if others[1:] else block
        text = first + anchored + f"          scope: *scope{number}\n".join(others)
    return text


def sections() -> str:
    """The same for docs/alerts.md."""
    return "\n".join(_section(alert_of(kind), STORIES[kind]) for kind in KINDS)


def _section(alert: str, story: Story) -> str:
    severities = " or ".join(severity_word(each) for each in story.severities if each != "info")
    return f"### {alert}\n\n{severities}. [Runbook]({story.runbook}).\n\n- **It is not** {story.is_not}.\n"


def _of_kind(kind: str, story: Story) -> str:
    seen = {slug: each.seen for slug, each in story.causes.items()}
    steps = {slug: each.first_step for slug, each in story.causes.items() if each.first_step}
    by, shown = RANKED.get(kind, ("", ""))
    worst = WORST.replace("BY", by).replace("SHOWN", shown) if by else NAMED
    return _rule(
        alert_of(kind), EXPRESSIONS.get(kind) or f'        expr: vllm_watch:incident_alert{{kind="{kind}"}}',
        summary=f"{WHO} {story.says}: {_by_cause(seen, NEW)} ({{{{ $labels.cause }}}}).",
        description=f"{story.about} This is not {story.is_not}.",
        details=OF + SINCE + NUMBERS.get(kind, "") + ("" if story.of_gpus else PLACE),
        first_step=_by_cause(steps, story.first_step), scope=ALIKE + worst, runbook=story.runbook,
    )  # fmt: skip


def _of_the_rest() -> str:
    return _rule(
        "VllmIncident",
        "        # Kinds that a later vllm-watch may find and these rules do not know: nothing that pages is lost.\n"
        f'        expr: >-\n          vllm_watch:incident_alert{{kind!~"{"|".join(KINDS)}"}}',
        summary=f"{WHO} has an incident: {{{{ $labels.kind }}}}, {{{{ $labels.cause }}}}.",
        description="These rules are older than the watcher and have no alert for this kind of incident. That is not a fault of the engine.",
        details=OF + SINCE + PLACE,
        first_step="Open the status page: it explains the incident and the first step.",
        scope=ALIKE + NAMED, runbook="alerts.md#vllmincident",
    )  # fmt: skip


def _of_many() -> str:
    story = MANY_AT_ONCE
    return _rule(
        "VllmFleetSilent",
        "        # The watcher's own incident, of target vllm-watch: the single ones are warnings while it is open.\n"
        f'        expr: vllm_watch_incident_open{{target="{WATCHER}", severity="page"}}',
        summary="""Most targets of {{ $labels.instance }} fell silent within a minute ({{ $labels.cause }}): {{ with printf """
        """"count(vllm_watch_target_up{job='%s', instance='%s'} == 0)" $labels.job $labels.instance | query }}{{ . | first """
        """| value }}{{ else }}0{{ end }} of {{ with printf "vllm_watch_targets{job='%s', instance='%s'}" $labels.job """
        """$labels.instance | query }}{{ . | first | value }}{{ else }}an unknown number{{ end }} cannot be read.""",
        description=f"{story.about} This is not {story.is_not}. {story.restart}",
        first_step=story.first_step, runbook=story.runbook, severity="page",
    )  # fmt: skip


def _rule(name: str, expression: str, *, runbook: str, severity: str = "", **notes: str) -> str:
    labels = f"        labels:\n          severity: {severity}\n" if severity else ""
    said = "".join(f"          {key}: >-\n{_folded(text)}\n" for key, text in notes.items())
    return (
        f"      - alert: {name}\n{expression}\n        keep_firing_for: 1m  # tune: keep_firing\n{labels}"
        f"        annotations:\n{said}{_links(runbook)}"
    )


def _links(runbook: str) -> str:
    """The annotations that every alert has: where on the status page it shows, and its runbook there."""
    told = {"page_url": PAGE, "runbook_url": f"{BASE}/{runbook_path(runbook)}"}
    return "".join(f"          {key}: >-\n{_folded(text)}\n" for key, text in told.items())


def _by_cause(texts: Mapping[str, str], otherwise: str) -> str:
    """A template that says the text of the alert's cause."""
    chain = "{{ else ".join(
        f'if eq $labels.cause "{cause}" }}}}{text}' for cause, text in texts.items()
    )
    return f"{{{{ {chain}{{{{ else }}}}{otherwise}{{{{ end }}}}" if texts else otherwise


def _folded(text: str) -> str:
    """Lines of a folded block of YAML: a break stands for one blank."""
    lines = textwrap.wrap(
        re.sub(r" +", " ", text), 110, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(f"            {line}" for line in lines)
