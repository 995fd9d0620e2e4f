"""In one word, what an engine is doing, and in one sentence why we think so.

A state is what is shown, not a verdict: nobody is paged for it. So it may notice early.
"""

from collections.abc import Mapping

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Call, ServerSample
from vllm_watch.signals.loading import START_SECONDS, Loading
from vllm_watch.signals.progress import Progress

STATES = (
    "starting", "idle", "serving", "prefilling", "overloaded", "collapsed", "failing", "stalled",
    "sleeping", "down", "unknown",
)  # fmt: skip

_WORST_FIRST = (
    "down", "stalled", "failing", "collapsed", "overloaded", "unknown", "starting", "prefilling", "serving",
    "idle", "sleeping",
)  # fmt: skip

STILL_SECONDS = 2.0
"""Up to here one look between two steps is nothing: a step of a long context takes about a second."""

STALL_NOTICE_SECONDS = 5.0
"""Without a step for so long while work is present, an engine is shown as stalled. Steps of engines
that count them (V1; V0 from 0.6.4) take milliseconds to a second, since prefills are chunked."""

STALL_NOTICE_COARSE_SECONDS = 30.0
"""The same for engines whose progress shows late: those without a step counter, where one whole prefill
is one step, and those that are warming up."""

WARM_UP_SECONDS = 300.0
"""How long a process may be warming up: kernels compile on the first requests, shape by shape."""

WARM_UP_STEPS = 100
"""... but an engine that has taken so many steps has met its shapes."""

_UNREACHABLE = frozenset(("connect_timeout", "read_timeout", "disconnected"))
_MISSES_UNTIL_DOWN = 2
"""One look without an answer may have met a busy server."""

_SERVER_ERROR = 500  # HTTP status of the first kind of server errors


def of_engine(
    sample: EngineSample, progress: Progress, server: ServerSample, uptime_seconds: float | None, *, sleeping: bool
) -> tuple[str, str]:  # fmt: skip
    """(state, sentence) of an engine that was read."""
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
    if progress.output_s == progress.last_s:  # work came a moment ago
        return "serving", load + ", at first sight" * progress.first
    if progress.overdue:
        silent = progress.last_s - progress.output_s
        return "stalled", f"{load}, but no token for {silent:.0f} s: {progress.overdue}"
    if progress.moved:
        return "prefilling", f"{load}; it computes, and has given no token since the last scrape"
    if waits_for_kv(sample):
        return "prefilling", f"{load}; they wait for KV from another server"
    return _of_silence(
        progress.last_s - progress.life_s, load, _notice_seconds(sample, uptime_seconds)
    )


def _of_silence(still_s: float, load: str, notice_s: float) -> tuple[str, str]:
    if still_s < STILL_SECONDS:
        return "serving", load
    if still_s >= notice_s:
        return "stalled", f"{load}, but no step for {still_s:.0f} s"
    text = f"{load}; no step has ended for {still_s:.0f} s: one long step, or the start of a stall"
    return "prefilling", text


def on_purpose(sample: EngineSample, server: ServerSample, *, sleeping: bool) -> str | None:
    """Why it serves nobody, where that is somebody's wish; in words."""
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
    """What is being done to the engine on purpose, while which it serves nobody; in words (vLLM 0.32+)."""
    if server.recovering is not None:
        return f"a recovery from {server.recovering}, for which vLLM waits for an orchestrator,"
    running = (name for name, count in (sample.operations_in_flight or {}).items() if count > 0)
    return next((_OPERATIONS.get(name, name) for name in running), None)


def waits_for_kv(sample: EngineSample, *, paired: bool = False) -> bool:
    """Return True if nothing runs, and the requests that wait need KV from another server.

    From vLLM 0.32 on it says so; before, they are deferred where a KV connector is at work. KV that is offloaded to this
    host comes from no other server, unless it is `paired` with one by the configuration.
    """
    if sample.requests_running or (_offloads_only(sample) and not paired):
        return False
    if sample.num_requests_kv_fetch_by_stage is not None:
        return sum(sample.num_requests_kv_fetch_by_stage.values()) > 0
    connected = bool(_kv_families(sample)) or bool(sample.external_prefix_cache_queries)
    return connected and (sample.requests_waiting_by_reason or {}).get("deferred", 0.0) > 0


def _kv_families(sample: EngineSample) -> set[str]:
    return {*(sample.kv_failures or ()), *(sample.kv_transfers or ())}


def _offloads_only(sample: EngineSample) -> bool:
    """Is its own offload the only KV connector that it names?"""
    families, config = _kv_families(sample), sample.cache_config_info or {}
    set_up = any(config.get(name, "None") != "None" for name in _OFFLOAD_SETTINGS)
    own = all(name.startswith("kv_offload_") for name in families)
    return own and (bool(families) or set_up)


_OFFLOAD_SETTINGS = ("kv_offloading_size", "simple_cpu_offload_num_blocks")


def _notice_seconds(sample: EngineSample, uptime_seconds: float | None) -> float:
    if sample.iteration_tokens is None:
        return STALL_NOTICE_COARSE_SECONDS
    if is_warming_up(sample, uptime_seconds):
        return STALL_NOTICE_COARSE_SECONDS
    return STALL_NOTICE_SECONDS


def is_warming_up(sample: EngineSample, uptime_seconds: float | None) -> bool:
    """May it still be compiling, shape by shape?"""
    if uptime_seconds is None or uptime_seconds >= WARM_UP_SECONDS:
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
    return "vLLM says so"


def is_asleep(states: Mapping[str, float] | None) -> bool | None:
    """From the sleep state gauge (vLLM 0.11.1+); None where there is none."""
    if not states or "awake" not in states:
        return None
    return states["awake"] == 0


def of_silence(
    call: Call, health: Call | None, misses: int, loading: Loading, *, waited_s: float, at_s: float
) -> tuple[str, str]:
    """(state, sentence) of a server whose metrics could not be read `misses` times in a row.

    `waited_s`: since it was first looked at.
    """
    said = call.error or call.outcome
    if call.outcome == "refused":
        return _of_refusal(said, loading, waited_s, at_s)
    if call.outcome in _UNREACHABLE:
        if misses < _MISSES_UNTIL_DOWN:
            return "unknown", f"{said}; a single failed scrape may only mean a busy server"
        return "down", f"{said}, {misses} times in a row"
    if call.scaling:
        return "sleeping", "elastic scaling is under way; it serves again afterwards"
    if call.outcome == "http" and health is not None and (health.status or 0) >= _SERVER_ERROR:
        return "down", f"/metrics and /health both fail ({said}, /health HTTP {health.status})"
    return "unknown", f"/metrics cannot be read: {said}"


def _of_refusal(said: str, loading: Loading, waited_s: float, at_s: float) -> tuple[str, str]:
    loads_s, longest_s = loading.for_s(at_s), loading.longest_s
    before = "" if longest_s is None else f"; its starts took up to {longest_s:.0f} s"
    if loads_s is not None:
        text = f"{said}; {loading.by} has been loading for {loads_s:.0f} s{before}"
        return ("starting" if loading.in_time(at_s) else "down"), text
    if not loading.ever_up and not loading.is_gone and waited_s < START_SECONDS:
        return "starting", f"{said}; vLLM refuses connections until its weights are loaded"
    return "down", said + before


def worst(states: list[tuple[str, str]]) -> tuple[str, str]:
    """The least healthy of several (state, sentence)."""
    return min(states, key=lambda pair: _WORST_FIRST.index(pair[0]))
