"""In one word, what an engine is doing, and in one sentence why we think so.

A state is what is shown, not a verdict: nobody is paged for it. So it may notice early.
"""

from collections.abc import Mapping

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Call, ServerSample
from vllm_watch.samples.record import short_record
from vllm_watch.signals.loading import START_SECONDS, Loading

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


@short_record
class Progress:
    """What is known of an engine's progress at one look."""

    work: float  # requests that run, wait or are swapped out
    moved: bool  # did any counter of work grow since the look before?
    generated: bool  # were tokens generated since the look before?
    still_seconds: (
        float  # since the last look that saw progress, or since work first stood without any
    )
    first_look: bool  # nothing to compare with
    uptime_seconds: float | None  # of the server's process


def of_engine(
    sample: EngineSample, progress: Progress, server: ServerSample, *, sleeping: bool
) -> tuple[str, str]:
    """(state, sentence) of an engine that was read."""
    on_purpose = _on_purpose(sample, server, sleeping=sleeping)
    if on_purpose is not None:
        return "sleeping", on_purpose
    running, waiting = sample.requests_running or 0.0, sample.requests_waiting or 0.0
    load = f"{running:.0f} running, {waiting:.0f} waiting"
    if progress.moved:
        if progress.generated or not progress.work:
            return "serving", load
        return (
            "prefilling",
            f"{load}; steps go on, but none has generated a token since the last scrape",
        )
    if not progress.work:
        return "idle", "no request runs or waits"
    if progress.first_look:
        return "serving", f"{load}, at first sight"
    if waits_for_kv(sample):
        return "prefilling", f"{load}; they wait for KV from another server"
    still = progress.still_seconds
    if still < STILL_SECONDS:
        return "serving", load
    if still >= _notice_seconds(sample, progress.uptime_seconds):
        return "stalled", f"{load}, but no step for {still:.0f} s"
    return (
        "prefilling",
        f"{load}; no step has ended for {still:.0f} s: one long step, or the start of a stall",
    )


def _on_purpose(sample: EngineSample, server: ServerSample, *, sleeping: bool) -> str | None:
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


def waits_for_kv(sample: EngineSample) -> bool:
    """Does nothing run, and does what waits wait for KV from another server? From vLLM 0.32 on it says so; before,
    what is deferred where a KV connector is at work."""
    known = (sample.num_requests_kv_fetch_by_stage, sample.requests_waiting_by_reason) != (
        None,
        None,
    )
    return not sample.requests_running and known and requests_awaiting_kv(sample) > 0


def requests_awaiting_kv(sample: EngineSample) -> float:
    """Return how many requests wait for KV from elsewhere, and hold their pages meanwhile; at most, before vLLM 0.20."""
    if sample.num_requests_kv_fetch_by_stage is not None:
        return sum(sample.num_requests_kv_fetch_by_stage.values())
    if not is_connected(sample):
        return 0.0
    reasons = sample.requests_waiting_by_reason
    return (sample.requests_waiting or 0.0) if reasons is None else reasons.get("deferred", 0.0)


def is_connected(sample: EngineSample) -> bool:
    """Return True if a KV connector is at work."""
    told = sample.kv_failures is not None or sample.kv_transfers is not None
    return told or bool(sample.external_prefix_cache_queries)


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
