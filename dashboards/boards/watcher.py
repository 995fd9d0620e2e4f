"""Is the watcher healthy? Whether the other dashboards can be believed, and what the watching costs."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from vllm_watch.export.families import GPU_STATUSES

from . import limits, links, variables
from .layout import Panel, Section, assembled
from .panels import ATTENTION_FROM_1, band, lines, number, stairs, word
from .promql import WATCHERS, worst
from .runbooks import runbook
from .style import NOW, OFF, PER_SECOND, PLAIN, SOON, WELL, Words
from .tables import Column, filled

UP_TARGETS = "and on (job, instance, target) vllm_watch_target_up == 1"
OURS = "and on (job, instance) vllm_watch_build_info"  # process_* is not ours alone
UP: Words = ((0, "does not answer", NOW), (1, "answers", WELL))
READINGS: Words = tuple(
    (number_, status, {"ok": WELL, "no_driver": PLAIN}.get(status, NOW))
    for number_, status in enumerate(GPU_STATUSES)
)
FEW = 10


def _age(name: str, selector: str = WATCHERS) -> str:
    return f"time() - vllm_watch_{name}_timestamp_seconds{{{selector}}}"


def _glance() -> list[Panel]:
    looked = f"({_age('target_last_observation')}) / on (job, instance, target) vllm_watch_target_interval_seconds{{{WATCHERS}}}"
    return [
        word("Watchers up", [(f"min(up{{{WATCHERS}}} {_KNOWN})", "")],
             "Prometheus' own word on the last scrape of each watcher. While one is away nothing that it watches can raise an "
             "alert. " + runbook("alerts.md#vllmwatchabsent"), UP, nothing="No watcher was ever seen"),
        number("Targets", f"sum(vllm_watch_targets{{{WATCHERS}}})", "Targets that are watched, by all watchers together."),
        number("Longest without a scrape, in intervals", f"max({looked})",
               f"From {limits.BLIND_INTERVALS} on a target is not watched: the watcher hangs, fails or has no CPU. "
               + runbook("alerts.md#vllmwatchblind"),
               marks=((None, WELL), (limits.BLIND_INTERVALS, NOW)), decimals=1),
        number("Scrape lateness", f"max(vllm_watch_target_lateness_seconds{{{WATCHERS}}})",
               f"Delay of the start of a scrape. From {limits.LATE_LOOK_SECONDS:g} s, incidents mention that the watcher was delayed.",
               units.Seconds, marks=((None, WELL), (limits.LATE_LOOK_SECONDS, SOON)), decimals=1),
        number("Blind detectors", f"sum(vllm_watch_detector_blind{{{WATCHERS}}})",
               "Detectors that find nothing on a target for lack of a signal; which, and how to fix it, below. "
               + runbook("alerts.md#vllmwatchdetectorblind"), marks=ATTENTION_FROM_1),
        number("Age of the saved state", f"max({_age('store_last_success')})",
               f"Kept once a minute; from {limits.STATE_NOT_KEPT_SECONDS} s on a restart of the watcher forgets. "
               + runbook("alerts.md#vllmwatchstatenotkept"), units.Seconds,
               marks=((None, WELL), (limits.STATE_NOT_KEPT_SECONDS, NOW)), nothing="no state folder", absent=OFF),
        number("Restart journal", f"min(vllm_watch_restart_journal_ok{{{WATCHERS}}})",
               "Nothing is restarted that cannot be written to the journal. " + runbook("restart-safety.md"),
               said=((1, "Can be written", WELL), (0, "Cannot", NOW)), nothing="Restarts are off", absent=OFF),
    ]  # fmt: skip


_KNOWN = "and on (job, instance) last_over_time(vllm_watch_build_info[$__range])"


def _watchers() -> Panel:
    def own(expr: str) -> str:
        return f"max by (instance, version) ({expr} * on (job, instance) group_left (version) vllm_watch_build_info)"

    page = {"title": "Its status page", "url": "http://${__data.fields.Watcher}/"}
    cpu = f"rate(process_cpu_seconds_total{{{WATCHERS}}}[$__rate_interval])"
    return filled(
        "Watchers",
        [
            Column(title="Watcher", label="instance", links=[page]),
            Column(title="Version", label="version"),
            Column(title="Targets", expr=own(f"vllm_watch_targets{{{WATCHERS}}}"), width=100),
            Column(title="Runs for", expr=own(f"(time() - process_start_time_seconds{{{WATCHERS}}})"), unit=units.Seconds, decimals=0),
            Column(title="CPU, of a core", expr=own(cpu), unit=units.PercentUnit, decimals=1),
            Column(title="Memory", expr=own(f"process_resident_memory_bytes{{{WATCHERS}}}"), unit=units.BytesIEC, decimals=0),
        ],
        "Every vllm-watch that Prometheus scrapes; its name leads to its page where your browser reaches it by plain HTTP.",
        sort="Targets", nothing="No watcher was ever seen.",
    )  # fmt: skip


def _blind() -> Panel:
    def lacking(name: str) -> str:
        return (
            f"max by (instance, target, detector) (vllm_watch_detector_{name}{{{WATCHERS}}} == 1)"
        )

    return filled(
        "Blind detectors by target",
        [
            Column(title="Target", label="target", links=[links.to_engine()]),
            Column(title="Detector", label="detector"),
            Column(title="Finds nothing", expr=lacking("blind"), said=[(1, "yes", SOON)], width=120),
            Column(title="Finds less, or later", expr=lacking("partly_blind"), said=[(1, "yes", PLAIN)], width=160),
            Column(title="Watcher", label="instance"),
        ],
        "Detectors that lack a signal of their target; /api/v1/status lists the missing signal and the fix, most often: remove "
        "--disable-log-stats. " + runbook("alerts.md#vllmwatchdetectorblind"),
        sort="Finds nothing", nothing="Every detector sees what it needs.",
    )  # fmt: skip


def _sources() -> list[Panel]:
    gpus = _age("source_last_success", f'{WATCHERS}, source="nvml"')
    identity = _age("source_last_success", f'{WATCHERS}, source=~"version|models"')
    return [
        lines("Age of the last scrape", [(f"max by (instance) ({_age('target_last_observation')})", "{{instance}}")],
              "The oldest, successful or not: a server that is away is scraped all the same. "
              + runbook("alerts.md#vllmwatchblind"), units.Seconds),
        lines("Age of the last GPU reading", [(gpus, "{{instance}}")],
              f"From {limits.GPUS_STALE_SECONDS} s on a driver hangs. " + runbook("alerts.md#vllmwatchsourcestale"), units.Seconds,
              marks=((None, PLAIN), (limits.GPUS_STALE_SECONDS, NOW)), nothing="no GPUs, or no driver"),
        lines("Age of version and models", [(f"max by (source) ({identity} {UP_TARGETS})", "{{source}}")],
              f"Of servers that answer. Asked every ten minutes; {limits.IDENTITY_STALE_SECONDS} s are two in a row that failed. "
              + runbook("alerts.md#vllmwatchsourcestale"), units.Seconds,
              marks=((None, PLAIN), (limits.IDENTITY_STALE_SECONDS, SOON))),
        lines("Source calls", [(f"sum by (source) (rate(vllm_watch_source_calls_total{{{WATCHERS}}}[$__rate_interval]))", "{{source}}")],
              "Requests per second, by source. A falling line: the watcher cannot keep up.",
              PER_SECOND),
        lines("Failed source calls",
              [(f"sum by (source, reason) (rate(vllm_watch_source_errors_total{{{WATCHERS}}}[$__rate_interval]))", "{{source}}: {{reason}}")],
              "By how they failed. Of a server that is away this is news of the server, not of the watcher.", PER_SECOND,
              nothing="no call has failed"),
        lines("Source call duration", [(f"max by (source) (vllm_watch_source_duration_seconds{{{WATCHERS}}})", "{{source}}")],
              "The slowest of all targets, successful or not.", units.Seconds),
    ]  # fmt: skip


def _inside() -> list[Panel]:
    late = f"vllm_watch_target_lateness_seconds{{{WATCHERS}}}"
    gpus = " or ".join(
        f'vllm_watch_gpu_reading_status{{{WATCHERS}, status="{status}"}} * {n}'
        for n, status in enumerate(GPU_STATUSES)
    )
    return [
        lines("Scrape lateness by target", [(worst(late, FEW, by="job, instance, target"), "{{target}}")],
              f"The {FEW} latest targets: the watcher's own delay, for lack of CPU.", units.Seconds,
              marks=((None, PLAIN), (limits.LATE_LOOK_SECONDS, SOON))),
        band("GPU reading status", [(f"max by (instance) ({gpus})", "{{instance}}")],
             "no_driver is a machine without GPUs. hung is a driver that did not answer in time. " + runbook("gpu.md"), READINGS),
        stairs("State folder errors", [(f"sum by (instance, reason) (vllm_watch_store_errors_total{{{WATCHERS}}})", "{{instance}}: {{reason}}")],
               "Since the watcher began, by how: a full disk, rights, a second vllm-watch in the folder. " + runbook("state.md"),
               units.Short, nothing="it never failed, or there is none"),
        lines("Unknown vLLM metric families", [(f"max by (instance) (vllm_watch_target_unknown_families{{{WATCHERS}}})", "{{instance}}")],
              "Of the target with most: a vLLM that is newer than this watcher. Nothing is wrong, and an update may see more.",
              units.Short),
    ]  # fmt: skip


def _cost() -> list[Panel]:
    def own(name: str) -> str:
        return f"{worst(f'{name}{{{WATCHERS}}}', FEW, by='job, instance')} {OURS}"

    cpu = f"process_cpu_seconds_total{{{WATCHERS}}}"
    most = f"topk({FEW}, rate({cpu}[$__range] @ end()))"
    return [
        lines("CPU, of a core", [(f"rate({cpu}[$__rate_interval]) and on (job, instance) {most} {OURS}", "{{instance}}")],
              f"The {FEW} busiest. What the watching costs. It grows with targets and their intervals; scrape.interval_seconds is the knob.",
              units.PercentUnit),
        lines("Memory", [(own("process_resident_memory_bytes"), "{{instance}}")],
              "Resident. It levels off with the number of targets; recorder.bytes_max bounds what each keeps. "
              + runbook("configuration.md"), units.BytesIEC),
        lines("Open files", [(own("process_open_fds"), "{{instance}}")],
              "Connections to targets and readers. Near the limit (ulimit -n) scrapes fail.", units.Short),
        lines("How long a scrape of it takes", [(own("scrape_duration_seconds"), "{{instance}}")],
              "Prometheus' own word. Its /metrics is served from memory, so seconds are a lack of CPU.", units.Seconds),
        lines("Series", [(own("scrape_samples_scraped"), "{{instance}}")],
              "Series per scrape: about 60 per engine.", units.Short),
        stairs("Starts", [(f"changes(process_start_time_seconds{{{WATCHERS}}}[$__range]) {OURS}", "{{instance}}")],
               "Within the time range before each moment. Three in a quarter of an hour are a loop. "
               + runbook("alerts.md#vllmwatchrestartloop"), units.Short, nothing="no watcher was ever seen"),
    ]  # fmt: skip


def board() -> dashboard.Dashboard:
    """The whole dashboard."""
    return assembled(
        links.WATCHER,
        "The vllm-watch processes themselves: are they there, on time, and seeing everything?",
        variables.of_watchers(),
        (
            Section("", _glance(), 4, (4, 2, 4, 3, 3, 4, 4)),
            Section("", [_watchers()], 6, (24,)),
            Section("What it asks", _sources(), 7),
            Section("What it sees and keeps", [_blind(), *_inside()], 7, (12, 12, 8, 8, 8)),
            Section("What it costs", _cost(), 7),
        ),
    )
