"""Is anything wrong? One word for the whole fleet, then what is wrong, then which group, then what users get."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from . import links, promql, variables
from .annotations import incidents
from .incident_tables import each, summed
from .layout import Panel, Section, assembled
from .limits import BLIND_INTERVALS, LATE_LOOK_SECONDS, THROUGHPUT_RATIO_MIN
from .panels import (
    ATTENTION_FROM_1,
    NO_JUDGEMENT,
    TROUBLE_FROM_1,
    Query,
    areas,
    band,
    lines,
    number,
    word,
)
from .promql import OF_ALL, OF_TARGETS, TOP, TROUBLE
from .runbooks import runbook
from .style import (
    IN_TROUBLE,
    NOW,
    OFF,
    PER_SECOND,
    PLAIN,
    SOON,
    STATE_COLORS,
    TOKENS_PER_SECOND,
    UNKNOWN,
    WELL,
    Words,
)
from .tables import Column, filled

FEW = 10  # lines that can be told apart where each swings

VERDICTS: Words = (
    (0, "Nothing is wrong", WELL),
    (1, "Something to look at", SOON),
    (2, "Not everything can be seen", UNKNOWN),
    (3, "Users are affected: act now", NOW),
)


def _verdict() -> Panel:
    seen = f"vllm_watch_target_last_observation_timestamp_seconds{{{OF_TARGETS}}}"
    told = f"vllm_watch_incident_open{{{OF_ALL}"
    interval = f"vllm_watch_target_interval_seconds{{{OF_TARGETS}}}"
    return word(
        "Is anything wrong?",
        [(
            f'max(3 * {told}, severity="page"}} or 1 * {told}, severity="ticket"}} '
            f"or 2 * ((time() - {seen}) > bool {BLIND_INTERVALS} * {interval}) "
            f'or 2 * vllm_watch_engine_state{{{OF_TARGETS}, state="unknown"}})', "",
        )],
        "The worst that is so now: an open incident that pages, a target that was not scraped for "
        f"{BLIND_INTERVALS} intervals or an engine of which nothing is known, an open warning. The rows below show which. "
        + runbook("alerts.md"),
        VERDICTS, nothing="No data from a watcher",
    )  # fmt: skip


def _now() -> list[Panel]:
    """To be read from a distance."""
    open_ = f"vllm_watch_incident_open{{{OF_ALL}"
    any_target = f"0 * count(vllm_watch_target_info{{{OF_TARGETS}}})"
    return [
        _verdict(),
        number(
            "Critical incidents", f'count({open_}, severity="page"}}) or {any_target}',
            "Open incidents that cost users something and will not heal by themselves. " + runbook("alerts.md"),
            marks=TROUBLE_FROM_1),
        number(
            "Warnings", f'count({open_}, severity="ticket"}}) or {any_target}',
            "Open incidents to fix in working hours.", marks=ATTENTION_FROM_1),
        number(
            "Unhealthy engines", f'sum(vllm_watch_engine_state{{{OF_TARGETS}, state=~"{TROUBLE}"}})',
            f"Engines whose state is one of: {', '.join(IN_TROUBLE)}. A state may be early; the incident is the judgement.",
            marks=ATTENTION_FROM_1),
        number(
            "Engines", f"count(count by ({promql.ENGINE_LABELS}) (vllm_watch_engine_state{{{OF_TARGETS}}}))",
            "All engines that are watched; a target that shows none counts as one.", marks=NO_JUDGEMENT),
    ]  # fmt: skip


def _look() -> list[Panel]:
    """What asks for a look, and how old all this is."""
    return [
        number(
            "Targets whose scrape fails", f"sum(1 - vllm_watch_target_up{{{OF_TARGETS}}})",
            "Servers whose /metrics could not be read at the last scrape, those that are starting included. "
            + runbook("detectors/engine_down.md"), marks=ATTENTION_FROM_1),
        number(
            "Failing engines", f'sum(vllm_watch_engine_state{{{OF_TARGETS}, state="failing"}})',
            "Engines that answer and fail their requests. " + runbook("detectors/engine_failing.md"), marks=TROUBLE_FROM_1),
        number(
            "Restarts waiting for approval", f'sum(vllm_watch_restart_waiting{{{OF_TARGETS}, for="approval"}})',
            "Approve it on the incident's card, or with vllm-watch approve. " + runbook("restart.md"),
            marks=ATTENTION_FROM_1, nothing="off", absent=OFF),
        number(
            "Oldest scrape", f"max(time() - vllm_watch_target_last_observation_timestamp_seconds{{{OF_TARGETS}}})",
            "Age of the newest data; the watcher scrapes every few seconds. If it is old, open the board of the watcher.",
            units.Seconds),
    ]  # fmt: skip


def _groups() -> Panel:
    """One row per group, those with the most trouble first."""

    def engine(name: str) -> str:
        return f"vllm_watch_engine_{name}{{{OF_TARGETS}}}"

    state = f"vllm_watch_engine_state{{{OF_TARGETS}"
    slow = f'vllm_watch_engine_time_to_first_token_seconds{{{OF_TARGETS}, quantile="0.95"}}'
    by = promql.by_group
    return filled(
        "Groups",
        [
            Column(title="Group", label="group", links=[links.to(links.OVERVIEW, "Only this group", group="${__data.fields.Group}")]),
            Column(title="In trouble", expr=by("sum", f'{state}, state=~"{TROUBLE}"}}'),
                   marks=((None, WELL), (1, SOON)), width=100),
            Column(title="Serve", expr=by("sum", f'{state}, state=~"idle|serving|prefilling|overloaded"}}'), width=80),
            Column(title="Start or sleep", expr=by("sum", f'{state}, state=~"starting|sleeping"}}'), width=110),
            Column(title="Running", expr=by("sum", engine("requests_running")), width=90),
            Column(title="Waiting", expr=by("sum", engine("requests_waiting")), width=90),
            Column(title="Generated", expr=by("sum", engine("generation_tokens_per_second")), unit=TOKENS_PER_SECOND, decimals=0),
            Column(title="TTFT p95, worst", expr=by("max", slow), unit=units.Seconds, decimals=2),
            Column(title="Throughput, worst", expr=by("min", engine("throughput_ratio")), unit=units.PercentUnit, decimals=0),
        ],
        "Counts are engines. Throughput is relative to the engine's own baseline at equal load; below "
        f"{THROUGHPUT_RATIO_MIN:.0%} with requests waiting, throughput is lost. " + runbook("detectors/throughput_collapse.md"),
        sort="In trouble", nothing="no target is watched",
    )  # fmt: skip


def _over_time() -> list[Panel]:
    """For one engine and for 500."""
    return [
        band(
            "Engine state", [(promql.most_troubled(OF_TARGETS), "{{target}} {{engine}}")],
            f"Up to {TOP} engines; of more those that were in trouble longest within this time. A gap is a time without "
            "scrapes; unknown is never fine. A target without engines has a row of its own.",
            links=[links.to_engine("${__field.labels.target}", "${__field.labels.instance}")]),
        areas(
            "Engines by state", [(f"sum by (state) (vllm_watch_engine_state{{{OF_TARGETS}}})", "{{state}}")],
            "How many engines were in each state.", units.Short, STATE_COLORS),
    ]  # fmt: skip


def _bad(name: str, *, quantile: bool = False, least: bool = False) -> list[Query]:
    chosen = f'{OF_TARGETS}, quantile="0.95"' if quantile else OF_TARGETS
    series = f"vllm_watch_engine_{name}{{{chosen}}}"
    return [(promql.worst(series, FEW, least=least), "{{target}} {{engine}}")]


def _users() -> list[Panel]:
    """What users get, of the engines that are worst."""
    return [
        lines("TTFT, p95", _bad("time_to_first_token_seconds", quantile=True),
              f"The {FEW} worst engines. From a request's arrival to its first token; a gap is a window in which none came.",
              units.Seconds),
        lines("Inter-token latency, p95", _bad("inter_token_latency_seconds", quantile=True),
              f"The {FEW} worst engines. Grows with the batch; slow steps at equal load are a collapse.",
              units.Seconds),
        lines("Requests waiting", _bad("requests_waiting"),
              f"The {FEW} longest queues. Growing while tokens hold is more demand than capacity; growing while they fall is "
              "trouble. " + runbook("detectors/overload.md"), units.Short),
        lines("Throughput ÷ baseline", _bad("throughput_ratio", least=True),
              f"The {FEW} lowest engines, at equal load; 100 % = unchanged. Unknown for the first minute of work and while idle.",
              units.PercentUnit, marks=((None, NOW), (THROUGHPUT_RATIO_MIN, PLAIN))),
    ]  # fmt: skip


def _done() -> list[Panel]:
    """What is got done, and what of it is lost."""
    return [
        lines("Token throughput",
              [(f"sum(vllm_watch_engine_generation_tokens_per_second{{{OF_TARGETS}}})", "generated"),
               (f"sum(vllm_watch_engine_prompt_tokens_per_second{{{OF_TARGETS}}})", "prompt")],
              "Of all chosen engines together, over the signal window. By group: see the table above.", TOKENS_PER_SECOND),
        lines("SLO attainment",
              [(f"min by (objective) (vllm_watch_engine_slo_attainment_ratio{{{OF_TARGETS}}})", "{{objective}}")],
              "Share of requests or tokens that met the objective, of the engine that meets it least. " + runbook("alerts.md"),
              units.PercentUnit, top=1, nothing="no objective is set (slo in the configuration), or nobody asks anything"),
        lines("Finished requests by reason",
              [(f"sum by (reason) (vllm_watch_engine_requests_finished_by_reason_per_second{{{OF_TARGETS}}})", "{{reason}}")],
              "By finish reason. Many aborts: users stopped waiting.", PER_SECOND),
        lines("Preemptions", _bad("preemptions_per_second"),
              "Requests that lost their KV blocks to others and are computed again. Many of them: fewer sequences, shorter "
              "limits, more KV cache. " + runbook("detectors/throughput_collapse.md"), PER_SECOND),
        lines("Scrape lateness", [(promql.worst(f"vllm_watch_target_lateness_seconds{{{OF_TARGETS}}}", FEW, by="job, instance, target"), "{{target}}")],
              f"The {FEW} latest. The watcher's own delay: from {LATE_LOOK_SECONDS:g} s its host is short of CPU, and "
              "its data are less reliable.", units.Seconds, marks=((None, PLAIN), (LATE_LOOK_SECONDS, SOON))),
    ]  # fmt: skip


def board() -> dashboard.Dashboard:
    """The whole dashboard."""
    return assembled(
        links.OVERVIEW,
        "Every engine that vllm-watch sees: the worst first, one engine or 500.",
        variables.of_fleet(),
        (
            Section("", _now(), 5, (8, 4, 4, 4, 4)),
            Section("", _look(), 3, (6, 6, 6, 6)),
            Section("", [summed(OF_ALL)], 6, (24,)),
            Section("", [_groups()], 8, (24,)),
            Section("Open incidents", [each("Open incidents", OF_ALL)], 9, (24,)),
            Section("Over time", _over_time(), 9, (14, 10)),
            Section("What users get", [*_users(), *_done()], 8),
        ),
        incidents(OF_ALL),
    )  # fmt: skip
