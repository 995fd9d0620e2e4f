"""Counters and histograms of each engine that add up over engines and over their restarts: from signals.totals."""

from operator import attrgetter

from vllm_watch.export.family import Family, by_label
from vllm_watch.signals.totals import BOUNDS

_PREFIX = "vllm_watch_engine_"
_SINCE = "since the watcher first saw the engine"
_LACKS = "Absent where this vLLM does not export it."


def _counter(attribute: str, what: str) -> Family:
    return Family(
        name=f"{_PREFIX}{attribute}_total", kind="counter", scope="engine",
        help=f"{what} {_SINCE}.", absent=_LACKS, value=attrgetter(f"totals.{attribute}"),
    )  # fmt: skip


def _histogram(name: str, attribute: str, what: str) -> Family:
    return Family(
        name=f"{_PREFIX}{name}_seconds", kind="histogram", scope="engine", help=f"{what}, in seconds, {_SINCE}.",
        absent=_LACKS, bounds=BOUNDS[attribute], histogram=attrgetter(f"totals.{attribute}"),
    )  # fmt: skip


TOTAL_FAMILIES: tuple[Family, ...] = (
    _counter("prompt_tokens", "Prompt tokens of completed prefills, prefix cache hits included,"),
    _counter("generation_tokens", "Tokens generated"),
    _counter("preemptions", "Preemptions: requests that lost their KV blocks to others,"),
    Family(
        name=f"{_PREFIX}requests_finished_total", kind="counter", scope="engine", labels=("reason",),
        help=f"Requests that ended {_SINCE}, by reason (stop, length, abort, error, repetition).",
        absent="A reason that was never seen is absent.", series=by_label("totals.requests_finished"),
    ),
    _histogram("ttft", "ttft", "Time to first token"),
    _histogram("itl", "inter_token_latency", "Inter-token latency"),
    _histogram("e2e", "e2e_latency", "End-to-end latency of requests, from arrival to end"),
)  # fmt: skip
