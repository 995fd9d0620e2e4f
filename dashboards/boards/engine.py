"""What is wrong with this engine? Verdict and state in words, then every witness beside the others."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from vllm_watch.samples.observation import OUTCOMES

from . import links, promql, variables
from .annotations import incidents, processes, restarts
from .incident_tables import each
from .layout import Panel, Section, assembled
from .limits import THROUGHPUT_RATIO_MIN
from .panels import ATTENTION_FROM_1, Query, band, lines, number, stairs, word
from .promql import ENGINES, ONE_TARGET
from .runbooks import runbook
from .style import (
    NOW,
    OFF,
    PER_SECOND,
    PLAIN,
    QUIET,
    SEVERITY_RANKS,
    SOON,
    STATE_WORDS,
    TOKENS_PER_SECOND,
    WELL,
    Words,
)
from .tables import Column, filled

ENGINE = "engine {{engine}}"
GPU = "{{host}} GPU {{index}}"
ON_GPU = '* on (job, instance, gpu) group_left (host, index) vllm_watch_gpu_info{instance="$instance", index=~"$gpu"}'

VERDICTS: Words = (
    (0, "No incident", WELL), (SEVERITY_RANKS["info"], "For your information", QUIET),
    (SEVERITY_RANKS["ticket"], "Warning", SOON), (SEVERITY_RANKS["page"], "Act now", NOW),
)  # fmt: skip
ENDS: Words = tuple(
    (number, outcome, WELL if outcome == "ok" else NOW) for number, outcome in enumerate(OUTCOMES)
)
HEALTH: Words = ((200, "200", WELL), (503, "503: its engine is dead", NOW))


def _each(name: str, legend: str = ENGINE) -> Query:
    return f"vllm_watch_engine_{name}{{{ENGINES}}}", legend


def _quantiles(name: str) -> list[Query]:
    return [
        (f'vllm_watch_engine_{name}{{{ENGINES}, quantile="{q}"}}', f"p{float(q) * 100:g}, {ENGINE}")
        for q in ("0.5", "0.95")
    ]


def _verdict() -> list[Panel]:
    none = f"0 * vllm_watch_target_info{{{ONE_TARGET}}}"
    return [
        word("Verdict", [(f"max({promql.ranked_incidents(ONE_TARGET)} or {none})", "")],
             "The worst of its open incidents; which they are stands beside. The evidence is on the watcher's own page. "
             + runbook("alerts.md"), VERDICTS, nothing="No data from a watcher"),
        word("Engine state", [(promql.states(ENGINES), ENGINE)],
             "One state at a time. Unknown does not mean healthy: the watcher has no data.",
             STATE_WORDS, nothing="No data from a watcher"),
        number("Throughput ÷ baseline", f"min(vllm_watch_engine_throughput_ratio{{{ENGINES}}})",
               "At equal load; 100 % = unchanged. Lower with work waiting is a collapse, whatever the load. "
               + runbook("detectors/throughput_collapse.md"), units.PercentUnit,
               marks=((None, NOW), (THROUGHPUT_RATIO_MIN, WELL)), nothing="not known: idle, new or away", absent=OFF),
        number("Time since last progress",
               f"max(time() - vllm_watch_engine_last_progress_timestamp_seconds{{{ENGINES}}})",
               "Seconds with work present are a stall; an idle engine does nothing and is healthy. "
               + runbook("detectors/engine_stalled.md"), units.Seconds, nothing="never seen to work"),
        number("Restarts waiting", f"sum(vllm_watch_restart_waiting{{{ONE_TARGET}}})",
               "Waiting for a gate or for approval. The board of restarts lists the reasons and the results. " + runbook("restart.md"),
               marks=ATTENTION_FROM_1, nothing="off", absent=OFF),
    ]  # fmt: skip


def _witnesses() -> list[Panel]:
    """Side by side, on one axis of time: which of them fell first?"""
    return [*_work(), *_waits(), *_hardware()]


def _work() -> list[Panel]:
    return [
        lines("Requests running and waiting",
              [_each("requests_running", f"running, {ENGINE}"), _each("requests_waiting", f"waiting, {ENGINE}")],
              "Work that is present. With work and no steps it is a stall; waiting with nothing running is a deadlock.",
              units.Short),
        lines("Scheduler steps", [_each("steps_per_second")],
              "Scheduler steps: the heartbeat. 0 with requests running is a stall, even if /health answers 200. "
              + runbook("detectors/engine_stalled.md"), PER_SECOND),
        lines("Step time", [_each("step_time_seconds")],
              "Longer at the same load is a slow engine; longer with more tokens in it is only more work. "
              + runbook("detectors/throughput_collapse.md"), units.Seconds, nothing="it made no step"),
        lines("Token throughput",
              [_each("generation_tokens_per_second", f"generated, {ENGINE}"), _each("prompt_tokens_per_second", f"prompt, {ENGINE}")],
              "Work done. Prompt tokens come in bursts, as prefills complete.", TOKENS_PER_SECOND),
        lines("Throughput ÷ baseline", [_each("throughput_ratio")],
              "At equal load, so that a drop is the engine's and not its users'.", units.PercentUnit,
              marks=((None, NOW), (THROUGHPUT_RATIO_MIN, PLAIN)), nothing="not known: idle, new or away"),
        lines("KV cache usage", [_each("kv_cache_usage_ratio")],
              "Full and busy is used well. Full with few running: pages are pinned or lost.", units.PercentUnit, top=1),
    ]  # fmt: skip


def _waits() -> list[Panel]:
    return [
        lines("Queue time", _quantiles("queue_time_seconds"),
              "From arrival to the first schedule, of requests that were scheduled: in a stall none is, so the line ends.",
              units.Seconds, nothing="no request was scheduled"),
        lines("TTFT", _quantiles("time_to_first_token_seconds"),
              "Of requests that got one within the window.", units.Seconds, nothing="no request got a token"),
        lines("Inter-token latency", _quantiles("inter_token_latency_seconds"),
              "Inter-token latency, of tokens within the window.", units.Seconds, nothing="no request got a second token"),
    ]  # fmt: skip


def _hardware() -> list[Panel]:
    power = f"vllm_watch_gpu_power_watts / vllm_watch_gpu_power_limit_watts {ON_GPU}"
    return [
        lines("GPU power, share of limit", [(power, GPU)],
              "Little power while an engine claims to be busy: its kernels wait. Choose its GPUs above.",
              units.PercentUnit, nothing="the watcher sees no GPU"),
        lines("GPU utilization", [(f"vllm_watch_gpu_utilization_ratio {ON_GPU}", GPU)],
              "Share of time in which any kernel ran. A hung engine may spin: busy, yet cool.",
              units.PercentUnit, top=1, nothing="the watcher sees no GPU"),
        lines("SM clock, share of maximum",
              [(f"vllm_watch_gpu_sm_clock_hertz / vllm_watch_gpu_sm_clock_max_hertz {ON_GPU}", GPU)],
              "Low under load is heat or a power limit. " + runbook("detectors/throughput_collapse.md"),
              units.PercentUnit, top=1, nothing="the watcher sees no GPU"),
    ]  # fmt: skip


def _ends() -> list[Panel]:
    by_reason = f"vllm_watch_engine_requests_finished_by_reason_per_second{{{ENGINES}"
    failed = f'sum by (job, instance, target, engine) ({by_reason}, reason="error"}})'
    ended = f"sum by (job, instance, target, engine) ({by_reason}}})"
    return [
        lines("Preemptions", [_each("preemptions_per_second")],
              "Requests that lost their pages to others. A few are normal when the cache is full.", PER_SECOND),
        lines("Finished requests by reason", [_each("requests_finished_by_reason_per_second", "{{reason}}, " + ENGINE)],
              "By finish reason: aborts are users who stopped waiting, errors are the server's.", PER_SECOND),
        lines("Failed requests", [(f"{failed} / {ended}", ENGINE)],
              "Share of the requests that ended with an error: a failing engine still answers /health, and seems idle to a router. "
              + runbook("detectors/engine_failing.md"), units.PercentUnit, top=1, nothing="no request ended"),
        lines("Open file descriptors of the API server", [(f"vllm_watch_target_process_open_fds{{{ONE_TARGET}}}", "{{target}}")],
              "File descriptors: while an engine hangs, the only sign of new requests that wait.", units.Short),
    ]  # fmt: skip


def _server() -> list[Panel]:
    """What the API server answers, and the canary."""
    outcomes = " or ".join(
        f'vllm_watch_target_scrape_outcome{{{ONE_TARGET}, outcome="{outcome}"}} * {number}'
        for number, outcome in enumerate(OUTCOMES)
    )
    canary = f'source="canary", {ONE_TARGET}'
    return [
        band("Engine state over time", [(promql.states(ENGINES), ENGINE)],
             "The watcher's verdict at each scrape."),
        band("Scrape outcome", [(f"max by (target) ({outcomes})", "{{target}}")],
             "refused: no process listens; a time-out: it hangs, or the way to it does. " + runbook("detectors/engine_down.md"), ENDS),
        band("/health status", [(f"vllm_watch_target_health_status_code{{{ONE_TARGET}}}", "{{target}}")],
             "503: the engine died, its API server did not. 200 proves little: a hung engine answers 200, too.", HEALTH),
        lines("Response time of /metrics and /health",
              [(f'vllm_watch_source_duration_seconds{{{ONE_TARGET}, source=~"metrics|health"}}', "{{source}}")],
              "An idle API server answers in milliseconds; one that drowns in work takes seconds.", units.Seconds),
        lines("Canary latency", [(f"vllm_watch_source_duration_seconds{{{canary}}}", "one token")],
              "A one-token request to an idle engine: it finds an engine that only seems idle. "
              + runbook("canary.md"), units.Seconds, nothing="canaries are off, or none was due yet"),
        stairs("Failed canaries",
               [(f"sum by (reason) (vllm_watch_source_errors_total{{{canary}}})", "{{reason}}")],
               "Since the watcher began, by how. One that fails is a suspicion, two are a verdict. " + runbook("canary.md"),
               units.Short, nothing="no canary has failed"),
    ]  # fmt: skip


def _identity() -> list[Panel]:
    blind = f"vllm_watch_detector_blind{{{ONE_TARGET}}} == 1 or vllm_watch_detector_partly_blind{{{ONE_TARGET}}} == 1"
    capacity = (
        f"sum by (engine, model_name) (vllm_watch_engine_kv_cache_capacity_tokens{{{ENGINES}}})"
    )
    return [
        filled("Target",
               [Column(title="Group", label="group"), Column(title="Address", label="url"),
                Column(title="Namespace", label="namespace"), Column(title="Pod", label="pod"),
                Column(title="Node", label="node"),
                Column(title="Known", expr=f"vllm_watch_target_info{{{ONE_TARGET}}}", said=[(1, "yes", PLAIN)], width=80)],
               "The target as configured or discovered.", sort="Group",
               nothing="No such target is watched."),
        filled("Model and KV cache",
               [Column(title="Model", label="model_name"), Column(title="Engine", label="engine", width=90),
                Column(title="KV cache, tokens", expr=capacity, unit=units.Short)],
               "Models as vLLM names them, and what each engine's KV cache can hold.", sort="Engine",
               nothing="It shows no engine.", descending=False),
        filled("Blind detectors",
               [Column(title="Detector", label="detector"),
                Column(title="Lacks something", expr=f"max by (detector) ({blind})", said=[(1, "yes", SOON)], width=140)],
               "Detectors that lack a signal of this server; the watcher's page explains how to fix it.",
               sort="Detector", nothing="Every detector sees what it needs.", descending=False),
    ]  # fmt: skip


def board() -> dashboard.Dashboard:
    """The whole dashboard."""
    return assembled(
        links.ENGINE,
        "One vLLM server: what is wrong with it, and the evidence for and against it.",
        variables.of_engine(),
        (
            Section("", _verdict(), 4, (5, 6, 5, 4, 4)),
            Section("", [each("Open incidents", ONE_TARGET)], 6, (24,)),
            Section("Sources", _witnesses(), 7),
            Section("", _ends(), 7, (6,)),
            Section("The server", _server(), 7),
            Section("Target", _identity(), 6, (12, 6, 6)),
        ),
        [*incidents(ONE_TARGET), *restarts(ONE_TARGET), *processes(ONE_TARGET)],
    )
