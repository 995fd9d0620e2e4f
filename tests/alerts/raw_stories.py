"""Stories of the rules for those who run no watcher: as vLLM's own series tell them, V0 and V1."""

from tests.alerts.stories import Fired, Series, Story, series

SCRAPED = {"job": "vllm", "instance": "gpu1:8000"}
PAGE, TICKET = {**SCRAPED, "severity": "page"}, {**SCRAPED, "severity": "ticket"}
V1 = {"engine": "0", "model_name": "m"}
V0 = {"model_name": "m"}
STEPS = {"V1": "vllm:iteration_tokens_total_count", "V0": "vllm:iteration_tokens_total_count"}
LATENCY = {"V1": "vllm:inter_token_latency_seconds", "V0": "vllm:time_per_output_token_seconds"}
LABELS = {"V1": V1, "V0": V0}
KINDS = ("V1", "V0")


def raw(name: str, values: str, **labels: str) -> Series:
    return series(name, values, SCRAPED, **labels)


def engine(
    kind: str, running: str = "3x60", waiting: str = "0x60", tokens: str = "0+500x60", prompt: str = "0+90x60",
    steps: str = "0+20x60",
) -> tuple[Series, ...]:  # fmt: skip
    """An engine that works, unless told otherwise. Without `steps` it is a V0 that does not count them."""
    labels = LABELS[kind]
    told = (
        raw("up", "1x60"),
        raw("vllm:num_requests_running", running, **labels),
        raw("vllm:num_requests_waiting", waiting, **labels),
        raw("vllm:generation_tokens_total", tokens, **labels),
        raw("vllm:prompt_tokens_total", prompt, **labels),
    )
    return (*told, raw(STEPS[kind], steps, **labels)) if steps else told


def _story(name: str, alert: str, told: tuple[Series, ...], at: str, *fires: Fired, every: str = "15s") -> Story:  # fmt: skip
    return Story(name, alert, told, at, fires, every, file="fallback/raw_vllm.yaml")


def _stalled(kind: str) -> Fired:
    which = " engine 0" if kind == "V1" else ""
    return Fired({**PAGE, **LABELS[kind]}, f"gpu1:8000{which} has requests and has done nothing for two minutes or longer.")  # fmt: skip


STOPS = {"tokens": "0+500x10 5000x50", "prompt": "0+90x10 900x50", "steps": "0+20x10 200x50"}
STALLED = "VllmRawEngineStalled"
DOWN = Fired(PAGE, "gpu1:8000 no longer answers Prometheus.")


def slow(kind: str, seconds: str, running: str = "8x300", counts: str = "0+600x300") -> tuple[Series, ...]:  # fmt: skip
    """Five hours, a minute apart: the sum of what tokens took, and how many there were."""
    labels, name = LABELS[kind], LATENCY[kind]
    return (
        raw(f"{name}_sum", seconds, **labels),
        raw(f"{name}_count", counts, **labels),
        raw("vllm:num_requests_running", running, **labels),
    )


def _slow(kind: str) -> Fired:
    which = " engine 0" if kind == "V1" else ""
    return Fired({**TICKET, **LABELS[kind]}, f"gpu1:8000{which} takes 60ms from token to token, over 1.5 times as long as in the hours before.")  # fmt: skip


def queue(kind: str, waiting: str, finished: str = "0+15x60") -> tuple[Series, ...]:
    reason = {"V1": "stop", "V0": "length"}[kind]
    return (
        *engine(kind, waiting=waiting),
        raw("vllm:request_success_total", finished, finished_reason=reason, **LABELS[kind]),
    )


RSS = "process_resident_memory_bytes"
STORIES = (
    _story("it answered, and does not for four minutes", "VllmRawEngineDown", (raw("up", "1x10 0x50"),), "7m", DOWN),
    _story("quiet - it answered never: it starts", "VllmRawEngineDown", (raw("up", "0x60"),), "7m"),
    _story("quiet - it was away for two minutes", "VllmRawEngineDown", (raw("up", "1x10 0x8 1x42"),), "4m30s"),
    _story("discovery finds none", "VllmRawNoEngines", (series("up", "1x60", {"job": "node"}),), "7m",
           Fired({"job": "vllm", "severity": "page"}, "Prometheus knows no server of the job vllm.")),
    _story("quiet - one is known, and down", "VllmRawNoEngines", (raw("up", "0x60"),), "7m"),

    *(_story(f"{kind}: requests run and nothing moves", STALLED, engine(kind, **STOPS), "7m", _stalled(kind)) for kind in KINDS),
    *(_story(f"{kind}: requests wait, none runs and nothing moves", STALLED,
             engine(kind, running="3x10 0x50", waiting="0x10 6x50", **STOPS), "7m", _stalled(kind)) for kind in KINDS),
    _story("V0 that does not count steps: nothing moves", STALLED, engine("V0", **{**STOPS, "steps": ""}), "7m", _stalled("V0")),
    *(_story(f"quiet - {kind}: at work", STALLED, engine(kind), "7m") for kind in KINDS),
    _story("quiet - idle", STALLED, engine("V1", running="3x10 0x50", **STOPS), "7m"),
    _story("quiet - a long prefill in chunks: steps, but no token", STALLED, engine("V1", **{**STOPS, "steps": "0+20x60"}), "7m"),
    _story("quiet - a pause of a minute and a half", STALLED,
           engine("V1", tokens="0+500x10 5000x6 5500+500x43", prompt="0+90x10 900x6 990+90x43", steps="0+20x10 200x6 220+20x43"), "4m30s"),
    _story("quiet - a server that has just come up and compiles", STALLED,
           (raw("up", "_x20 1x40"), raw("vllm:num_requests_running", "_x20 1x6 1x34", **V1),
            raw("vllm:generation_tokens_total", "_x20 0x6 10+500x33", **V1), raw("vllm:prompt_tokens_total", "_x20 0x6 10+500x33", **V1)), "6m30s"),

    _story("three starts in two hours", "VllmRawCrashLoop", (raw("process_start_time_seconds", "0x20 1x20 2x20 3x20"),), "70m",
           Fired(PAGE, "gpu1:8000 has restarted 3 times within two hours."), every="1m"),
    _story("several API servers hide the start; the counters begin anew", "VllmRawCrashLoop",
           (raw("vllm:generation_tokens_total", "0+9x20 0+9x20 0+9x20 0+9x20", **V1),), "70m",
           Fired(PAGE, "gpu1:8000 has restarted 3 times within two hours."), every="1m"),
    _story("quiet - one restart", "VllmRawCrashLoop", (raw("process_start_time_seconds", "0x20 1x60"),), "70m", every="1m"),

    *(_story(f"{kind}: twice as long from token to token as for hours, at the same load", "VllmRawThroughputCollapse",
             slow(kind, "0+18x240 4338+36x59"), "270m", _slow(kind), every="1m") for kind in KINDS),
    _story("quiet - as ever", "VllmRawThroughputCollapse", slow("V1", "0+18x300"), "270m", every="1m"),
    _story("quiet - slower with four times the requests", "VllmRawThroughputCollapse",
           slow("V1", "0+18x240 4338+36x59", running="8x240 32x60"), "270m", every="1m"),
    _story("quiet - slow from the start, nothing to compare with", "VllmRawThroughputCollapse",
           slow("V1", "0+18x12 234+36x59"), "28m", every="1m"),

    *(_story(f"{kind}: a queue of two minutes that grows", "VllmRawOverloaded", queue(kind, "0x10 101+1x50"), "7m30s",
             Fired({**TICKET, **LABELS[kind]},
                   f"The queue of gpu1:8000{' engine 0' if kind == 'V1' else ''} takes 2m 0s to drain, and does not shrink."))
      for kind in KINDS),
    _story("quiet - a short queue", "VllmRawOverloaded", queue("V1", "0x10 5x50"), "7m"),
    _story("quiet - a burst that is being worked off", "VllmRawOverloaded", queue("V1", "0x10 400-4x50"), "7m"),
    _story("quiet - nothing is finished at all: that is another alert", "VllmRawOverloaded", queue("V1", "0x10 100+1x50", "0x60"), "7m"),

    _story("it grows by 600 MiB an hour and does not level off", "VllmRawHostMemoryGrowth", (raw(RSS, "4000000000+10485760x200"),), "2h",
           Fired(TICKET, "The API server of gpu1:8000 has grown by 300MiB in half an hour, and as much in the one before."), every="1m"),
    _story("quiet - it fills a cache and levels off", "VllmRawHostMemoryGrowth",
           (raw(RSS, "4000000000+20000000x45 4920000000+10000000x155"),), "85m", every="1m"),
    _story("quiet - one jump", "VllmRawHostMemoryGrowth", (raw(RSS, "4000000000x60 5000000000x140"),), "85m", every="1m"),
)  # fmt: skip
