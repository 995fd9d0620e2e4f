"""Metric families of the engines."""

from operator import attrgetter

from vllm_watch.export.family import Family, by_label, flag, one_hot, quantiles, rows
from vllm_watch.signals.state import STATES, health_ratio
from vllm_watch.signals.totals import BOUNDS

_PREFIX = "vllm_watch_engine_"
_row = rows(_PREFIX, "engine")
_counter = rows(_PREFIX, "engine", "counter")
_summary = rows(_PREFIX, "engine", "summary")
_histogram = rows(_PREFIX, "engine", "histogram")
_WINDOW = "over the signal window"
_NO_STEPS = "Absent while the engine makes no steps, on vLLM V0 before 0.6.4, and without iteration_tokens_total."
_DOWN = "Absent while the engine cannot be read."


def _gauge(attribute: str, help_: str, absent: str = _DOWN) -> Family:
    return _row(attribute, help_, absent, value=attrgetter(attribute))


def _latency(attribute: str, what: str, lacks: str) -> Family:
    # Sum and count would not cover the window.
    help_ = f"{what}, in seconds: quantiles over the signal window."
    absent = f"Absent when nothing was observed in the window. {lacks}"
    return _summary(attribute, help_, absent, labels=("quantile",), series=quantiles(attribute))


def _reasons(attribute: str, help_: str, absent: str, label: str = "reason") -> Family:
    return _row(attribute, help_, absent, labels=(label,), series=by_label(attribute))


ENGINE_FAMILIES: tuple[Family, ...] = (
    _row("state", f"The engine's state: 1 for the state that holds, 0 for the others ({', '.join(STATES)}).",
         "`engine` is empty for a target that shows no engine; then it is the target's own state.",
         labels=("state",), series=one_hot("state", STATES, otherwise="unknown"), few=True),
    _row("health_ratio",
         "Health for routers: share of normal capacity, 0 to 1. 1: nothing is wrong with it; between: collapsed, to this share "
         "of its fresh throughput; 0: down, stalled, failing, starting or asleep. Load is not included.",
         "Absent while it is unknown, which is never 1. `engine` is empty for a target that shows no engine.",
         value=lambda row: health_ratio(row.state, row.throughput_ratio)),
    _gauge("requests_running", "Requests in the running batch, as vLLM gave them last."),
    _gauge("requests_waiting", "Requests that wait to be scheduled, as vLLM gave them last."),
    _reasons("requests_waiting_by_reason", "Requests that wait, by reason (capacity, deferred).",
             "Absent before vLLM 0.20."),
    _gauge("kv_cache_usage_ratio", "Share of the KV cache's blocks in use, 0 to 1.",
           "Absent while the engine cannot be read, and for models without a KV cache."),
    _gauge("kv_cache_capacity_tokens", "Tokens that the engine's KV cache can hold.",
           "Absent before vLLM 0.3.3 and on V1 0.8, which do not export the number of blocks."),
    _gauge("kv_cache_free_tokens", "Tokens for which the KV cache has room now.",
           "Absent if the capacity is unknown."),
    _gauge("kv_cache_time_to_full_seconds", f"Seconds until the KV cache is full, at the rate at which it fills {_WINDOW}.",
           "Absent while the cache is not filling, which is good news, or its usage is unknown."),
    _row("sleeping", "1 while the engine sleeps (weights offloaded or discarded), 0 while it is awake.",
         "Absent if vLLM does not report it: before 0.11.1 without /is_sleeping.", value=lambda row: flag(row.sleeping)),
    _gauge("current_generation_tokens_per_second", "Generated tokens per second between the last two scrapes: 0 as soon as an engine hangs.",
           "Absent until two scrapes of the same engine lie in the window, and while the engine cannot be read."),
    _gauge("generation_tokens_per_second", f"Generated tokens per second {_WINDOW}.",
           "Absent until two scrapes of the same engine lie in the window."),
    _gauge("prompt_tokens_per_second",
           f"Prompt tokens per second {_WINDOW}, counted as prefills complete, prefix cache hits included.",
           "Absent until two scrapes of the same engine lie in the window."),
    _gauge("requests_finished_per_second",
           f"Requests that ended per second {_WINDOW}, for any reason except engine errors; aborts count.",
           "Absent before vLLM 0.4.2 (V1: 0.7.2)."),
    _reasons("requests_finished_by_reason_per_second",
             f"Requests that ended per second {_WINDOW}, by reason (stop, length, abort, error, repetition).",
             "A reason that V0 has not yet seen is absent."),
    _gauge("preemptions_per_second", f"Requests per second that lost their KV blocks to others, {_WINDOW}.",
           "Absent before vLLM 0.4.3 (V1: 0.8.0)."),
    _gauge("steps_per_second", f"Scheduler steps per second {_WINDOW}; 0 with requests running is a stall.",
           "Absent on vLLM V0 before 0.6.4, and without iteration_tokens_total."),
    _gauge("tokens_per_step", f"Mean tokens per step {_WINDOW}: how well steps are filled.", _NO_STEPS),
    _gauge("step_time_seconds", f"Mean seconds per step {_WINDOW}.", _NO_STEPS),
    _gauge("throughput_ratio", "Throughput now ÷ throughput after the engine's start, at equal load; 1 = unchanged.",
           "Absent for the first minute or two of work, while idle, and while the engine cannot be read."),
    _gauge("cpu_wait_ratio",
           f"Share of time that the engine's most delayed thread waited for a CPU, {_WINDOW}.",
           "Absent where the engine's processes are not seen: on another host, or in a /proc that hides them."),
    _gauge("prefix_cache_hit_ratio", f"Share of looked-up prompt tokens found in the prefix cache {_WINDOW}, 0 to 1.",
           "Absent with prefix caching off, without look-ups, and on V0 before 0.5.5."),
    _gauge("spec_acceptance_ratio", f"Share of drafted tokens accepted {_WINDOW}, 0 to 1.",
           "Absent without speculative decoding."),
    _latency("time_to_first_token_seconds", "Time from a request's arrival to its first token",
             "vLLM has it from 0.3.1 (V1: 0.7.1)."),
    _latency("inter_token_latency_seconds", "Time between a request's tokens",
             "Up to vLLM 0.10.1 this is time_per_output_token; with speculative decoding it is per output event."),
    _latency("queue_time_seconds", "Time that requests wait to be scheduled", "vLLM has it from 0.6.4 (V1: 0.7.3)."),
    _latency("e2e_latency_seconds", "Time from a request's arrival to its end", "vLLM has it from 0.3.1 (V1: 0.7.3)."),
    _reasons("slo_attainment_ratio", "Share of the window's observations that met the objective you set, 0 to 1.",
             "Absent if no objective is set, or nothing was observed in the window.", label="objective"),
    _gauge("goodput_requests_per_second",
           "Finished requests per second × the lowest slo_attainment_ratio: an upper bound for requests that met all objectives.",
           "Absent where no objective is set, or nothing was observed in the window."),
    _gauge("last_progress_timestamp_seconds", "Unix time of the last scrape that saw a token or a finished request.",
           "Absent until the first progress was seen."),
    _counter("restarts_total", "Resets of the engine's counters.",
             "Absent for a target that shows no engine.", value=lambda row: row.restarts if row.engine else None),
)  # fmt: skip


_SINCE_FIRST_SEEN = "since the watcher first saw the engine"
_NOT_EXPORTED = "Absent if this vLLM does not export it."


def _total(attribute: str, what: str) -> Family:
    value = attrgetter(f"totals.{attribute}")
    return _counter(
        f"{attribute}_total", f"{what} {_SINCE_FIRST_SEEN}.", _NOT_EXPORTED, value=value
    )


def _total_histogram(name: str, attribute: str, what: str) -> Family:
    return _histogram(
        f"{name}_seconds", f"{what}, in seconds, {_SINCE_FIRST_SEEN}.", _NOT_EXPORTED,
        bounds=BOUNDS[attribute], histogram=attrgetter(f"totals.{attribute}"),
    )  # fmt: skip


TOTAL_FAMILIES: tuple[Family, ...] = (
    _total("prompt_tokens", "Prompt tokens of completed prefills, prefix cache hits included,"),
    _total("generation_tokens", "Tokens generated"),
    _total("preemptions", "Preemptions: requests that lost their KV blocks to others,"),
    _counter("requests_finished_total",
             f"Requests that ended {_SINCE_FIRST_SEEN}, by reason (stop, length, abort, error, repetition).",
             "A reason that was never seen is absent.", labels=("reason",), series=by_label("totals.requests_finished")),
    _total_histogram("ttft", "ttft", "Time to first token"),
    _total_histogram("itl", "inter_token_latency", "Inter-token latency"),
    _total_histogram("e2e", "e2e_latency", "End-to-end latency of requests, from arrival to end"),
)  # fmt: skip
