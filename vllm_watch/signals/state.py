"""Derives the state of an engine from its signals. incidents/states.py adds the states of open
incidents."""

from collections.abc import Mapping, Sequence

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Call, ServerSample
from vllm_watch.signals.loading import START_SECONDS, Loading
from vllm_watch.signals.progress import Progress
from vllm_watch.signals.records import EngineSignals
from vllm_watch.signals.scales import CONFIRMED, FIVE_MINUTES_SECONDS
from vllm_watch.support.quantities import in_words

STATES = (
    "starting", "idle", "serving", "prefilling", "overloaded", "collapsed", "failing", "stalled",
    "sleeping", "down", "unknown",
)  # fmt: skip

WORST_FIRST = (
    "down", "stalled", "failing", "collapsed", "overloaded", "unknown", "starting", "prefilling", "serving",
    "idle", "sleeping",
)  # fmt: skip

STILL_SECONDS = 2.0
"""A longer time without a step is a pause. A step of a long context takes about a second."""


WARM_UP_STEPS = 100
"""After this many steps, the kernels for the usual shapes are compiled."""

_WHOLE = frozenset(("serving", "idle", "prefilling", "overloaded"))
_SERVES_NOTHING = frozenset(("down", "stalled", "failing", "starting", "sleeping"))

_UNREACHABLE = frozenset(("connect_timeout", "read_timeout", "disconnected"))
"""A server is down after this many failed scrapes in a row. A busy server may miss one."""

_SERVER_ERROR = 500


def of_engine(
    sample: EngineSample, progress: Progress, server: ServerSample, *, sleeping: bool
) -> tuple[str, str]:
    """Return an engine's state and a sentence about it."""
    rests = on_purpose(sample, server, sleeping=sleeping)
    if rests is not None:
        return "sleeping", rests
    running, waiting = sample.requests_running or 0.0, sample.requests_waiting or 0.0
    load = f"{running:.0f} running, {waiting:.0f} waiting"
    if progress.output:
        return "serving", load
    if not progress.work:
        left = (
            f"{load} by its gauges; their clients left, and vLLM renews the gauges at its next step"
        )
        return "idle", left if progress.gone else "no request runs or waits"
    if progress.output_s == progress.last_s:
        return "serving", load + " (first scrape)" * progress.first
    if progress.moved:
        return "prefilling", f"{load}; it computes, but no token came since the last scrape"
    if waits_for_kv(sample):
        return "prefilling", f"{load}; they wait for KV from another server"
    still = progress.last_s - progress.life_s
    if still < STILL_SECONDS:
        return "serving", load
    if not progress.met:
        return "unknown", f"{load} by its gauges; no progress has been seen yet"
    return (
        "prefilling",
        f"{load}; no step has ended for {in_words(still)}: one long step, or the start of a stall",
    )


def on_purpose(sample: EngineSample, server: ServerSample, *, sleeping: bool) -> str | None:
    """Return why the engine is intentionally not serving, or None."""
    if sleeping:
        return "asleep: " + _sleep_text(sample.engine_sleep_state)
    if server.paused:
        return "paused through vLLM's /pause; it serves again after /resume"
    under_way = operation(sample, server)
    return None if under_way is None else f"{under_way} is under way; it serves again afterwards"


_OPERATIONS = {
    "sleep_mode_operations_in_flight": "a sleep or a wake-up",
    "rl_weight_update_operations_in_flight": "an update of its weights",
}


def operation(sample: EngineSample, server: ServerSample) -> str | None:
    """Return the operation (vLLM 0.32+) that keeps the engine from serving, or None."""
    if server.recovering is not None:
        return f"a recovery from {server.recovering}, for which vLLM waits for an orchestrator,"
    for name, count in (sample.operations_in_flight or {}).items():
        if count > 0:
            return _OPERATIONS.get(name, name)
    return None


def waits_for_kv(sample: EngineSample, *, paired: bool = False) -> bool:
    """Return True if requests wait for another server's KV and none runs.

    Unless `paired`, return False for an engine that only offloads its own KV.
    """
    if sample.requests_running or (_offloads_only(sample) and not paired):
        return False
    stages, reasons = sample.num_requests_kv_fetch_by_stage, sample.requests_waiting_by_reason
    return (stages, reasons) != (None, None) and requests_awaiting_kv(sample) > 0


def requests_awaiting_kv(sample: EngineSample) -> float:
    """Return the number of requests that hold pages for remote KV. Before vLLM 0.20 it is an upper bound."""
    if sample.num_requests_kv_fetch_by_stage is not None:
        return sum(sample.num_requests_kv_fetch_by_stage.values())
    if not is_connected(sample):
        return 0.0
    reasons = sample.requests_waiting_by_reason
    return (sample.requests_waiting or 0.0) if reasons is None else reasons.get("deferred", 0.0)


def is_connected(sample: EngineSample) -> bool:
    """Return True if a KV connector is active."""
    told = sample.kv_failures is not None or sample.kv_transfers is not None
    return told or bool(sample.external_prefix_cache_queries)


def _offloads_only(sample: EngineSample) -> bool:
    families = {*(sample.kv_failures or ()), *(sample.kv_transfers or ())}
    config = sample.cache_config_info or {}
    set_up = any(config.get(name, "None") != "None" for name in _OFFLOAD_SETTINGS)
    own = all(name.startswith("kv_offload_") for name in families)
    return own and (bool(families) or set_up)


_OFFLOAD_SETTINGS = ("kv_offloading_size", "simple_cpu_offload_num_blocks")


def is_warming_up(sample: EngineSample, uptime_seconds: float | None) -> bool:
    """Return True if the engine may still compile kernels."""
    # The first requests of each shape may compile kernels.
    if uptime_seconds is None or uptime_seconds >= FIVE_MINUTES_SECONDS:
        return False
    steps = sample.iteration_tokens
    return steps is None or steps.count < WARM_UP_STEPS


def _sleep_text(states: Mapping[str, float] | None) -> str:
    for name, value in (states or {}).items():
        if value and name != "awake":
            return {
                "weights_offloaded": "level 1, weights offloaded",
                "discard_all": "level 2, weights discarded",
            }.get(name, name)
    return "vLLM reports it"


def is_asleep(states: Mapping[str, float] | None) -> bool | None:
    """Return True if the gauge of vLLM 0.11.1+ reports sleep, or None without the gauge."""
    if not states or "awake" not in states:
        return None
    return states["awake"] == 0


def sleep_level(states: Mapping[str, float] | None, *, sleeping: bool) -> int:
    """Return 1 or 2 for a sleep that frees GPU memory, else 0."""
    if not sleeping or not states:
        return int(sleeping)  # releases with only /is_sleeping have no level 0
    return 2 if states.get("discard_all") else int(bool(states.get("weights_offloaded")))


def of_silence(
    call: Call, health: Call | None, misses: int, loading: Loading, *, waited_s: float, at_s: float
) -> tuple[str, str]:
    """Return a server's state and a sentence about it, after `misses` failed scrapes. `waited_s` is the time since the first poll."""
    said = call.error or call.outcome
    if call.outcome == "refused":
        return _of_refusal(said, loading, waited_s, at_s)
    if call.outcome in _UNREACHABLE:
        # A busy server may miss one.
        if misses < CONFIRMED:
            return "unknown", f"{said}; a single failed scrape may only mean a busy server"
        return "down", f"{said}, {misses} times in a row"
    if call.scaling:
        return "sleeping", "elastic scaling is under way; it serves again afterwards"
    if call.outcome == "http" and health is not None and (health.status or 0) >= _SERVER_ERROR:
        return "down", f"/metrics and /health both fail ({said}, /health HTTP {health.status})"
    return "unknown", f"/metrics cannot be read: {said}"


def _of_refusal(said: str, loading: Loading, waited_s: float, at_s: float) -> tuple[str, str]:
    loads_s, longest_s = loading.for_s(at_s), loading.longest_s
    before = "" if longest_s is None else f"; its longest start so far took {in_words(longest_s)}"
    if loads_s is not None:
        text = f"{said}; {loading.by} has been loading for {in_words(loads_s)}{before}"
        return ("starting" if loading.in_time(at_s) else "down"), text
    if loading.answered_t is None and not loading.is_gone and waited_s < START_SECONDS:
        return "starting", f"{said}; vLLM refuses connections until its weights are loaded"
    return "down", said + before


def of_all(engines: Sequence[EngineSignals]) -> tuple[str, str]:
    """Return the state and the sentence of the least healthy engine."""
    if len(engines) == 1:
        return engines[0].state, engines[0].state_text
    word = min((engine.state for engine in engines), key=WORST_FIRST.index)
    so = [engine for engine in engines if engine.state == word]
    if word in ("serving", "idle"):
        running = sum(each.requests_running or 0.0 for each in engines)
        waiting = sum(each.requests_waiting or 0.0 for each in engines)
        return word, f"{running:.0f} running, {waiting:.0f} waiting ({len(engines)} engines)"
    return word, f"{len(so)} of {len(engines)} engines; engine {so[0].engine}: {so[0].state_text}"


def health_ratio(word: str, throughput_ratio: float | None) -> float | None:
    """Return the ratio of an engine's work to its normal work, or None."""
    if word == "collapsed":
        return None if throughput_ratio is None else min(1.0, max(0.0, throughput_ratio))
    return 1 if word in _WHOLE else 0 if word in _SERVES_NOTHING else None
