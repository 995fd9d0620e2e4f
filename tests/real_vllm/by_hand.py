"""What a recording's raw bodies say, computed with other code than ours: the witness of the values test.

Bodies are read by prometheus_client's parser; rates and quantiles follow PromQL. Nothing of
`vllm_watch` is imported here, and the names of vLLM's metrics are written out again on purpose.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]  # ascending by label
Series = dict[str, dict[Labels, float]]
Found = dict[
    tuple[str, str], float
]  # our name without prefix, value of its one label or "" → value

GAUGES = {
    "requests_running": "vllm:num_requests_running",
    "requests_waiting": "vllm:num_requests_waiting",
    "kv_cache_usage_ratio": "vllm:kv_cache_usage_perc",
}
RATES = {
    "generation_tokens_per_second": "vllm:generation_tokens_total",
    "prompt_tokens_per_second": "vllm:prompt_tokens_total",
    "requests_finished_per_second": "vllm:request_success_total",
    "preemptions_per_second": "vllm:num_preemptions_total",
    "steps_per_second": "vllm:iteration_tokens_total_count",
}
RATIOS = {
    "tokens_per_step": ("vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count"),
    "prefix_cache_hit_ratio": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
}
HISTOGRAMS = {
    "time_to_first_token": "vllm:time_to_first_token_seconds",
    "inter_token_latency": "vllm:inter_token_latency_seconds",
    "queue_time": "vllm:request_queue_time_seconds",
    "e2e_latency": "vllm:e2e_request_latency_seconds",
}
FILLING_MIN = 0.01  # growth of usage from which the KV cache is said to be filling: documented


def parse(body: str) -> Series:
    """Name → labels → value of every sample."""
    found: Series = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


class Window:
    """The observations of the last `seconds` of a recording that could be read.

    `objectives` are limits in seconds, by the name of the latency.
    """

    def __init__(
        self,
        recording: Iterable[Mapping[str, Any]],
        seconds: float,
        objectives: Mapping[str, float],
    ) -> None:
        read = [each for each in recording if each["metrics"]]
        ends = read[-1]["monotonic_s"]
        within = [each for each in read if each["monotonic_s"] >= ends - seconds]
        self.seconds = within[-1]["monotonic_s"] - within[0]["monotonic_s"]
        self._last_seconds = within[-1]["monotonic_s"] - within[-2]["monotonic_s"]
        self.bodies = [parse(each["metrics"]) for each in within]
        self._objectives = objectives
        # (time, seconds waited) of each look; None where it did not see the engine's processes
        self._waits = [
            (each["monotonic_s"], each["cpu"][0]["waited_seconds"] if each.get("cpu") else None)
            for each in within
        ]

    @property
    def first(self) -> Series:
        """The oldest observation."""
        return self.bodies[0]

    @property
    def last(self) -> Series:
        """The newest observation."""
        return self.bodies[-1]

    def gauges(self) -> Found:
        """Values that must be equal to the last bit."""
        found = {(ours, ""): _value(self.last, raw) for ours, raw in GAUGES.items()}
        for labels, value in self.last["vllm:num_requests_waiting_by_reason"].items():
            found["requests_waiting_by_reason", dict(labels)["reason"]] = value
        found["kv_cache_capacity_tokens", ""] = self._capacity_tokens()
        found["sleeping", ""] = 1 - _value(
            self.last, "vllm:engine_sleep_state", sleep_state="awake"
        )
        return found

    def derived(self) -> Found:
        """Rates, ratios and quantiles; those of which the window holds no event are left out."""
        found = {(ours, ""): self._increase(raw) / self.seconds for ours, raw in RATES.items()}
        last_two = self._increase("vllm:generation_tokens_total", bodies=self.bodies[-2:])
        found["current_generation_tokens_per_second", ""] = last_two / self._last_seconds
        for labels in self.last["vllm:request_success_total"]:
            reason = dict(labels)["finished_reason"]
            increase = self._increase("vllm:request_success_total", finished_reason=reason)
            found["requests_finished_by_reason_per_second", reason] = increase / self.seconds
        for ours, (above, below) in RATIOS.items():
            if events := self._increase(below):
                found[ours, ""] = self._increase(above) / events
        found.update(self._step_time())
        found.update(self._cpu_wait())
        found.update(self._kv_cache())
        found.update(self._latencies())
        return found

    def _step_time(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Time by steps, or the mean inter-token latency where idle time makes that the smaller one."""
        steps = self._increase("vllm:iteration_tokens_total_count")
        tokens = self._increase("vllm:inter_token_latency_seconds_count")
        latency = self._increase("vllm:inter_token_latency_seconds_sum")
        if steps:
            elapsed = self.seconds / steps
            yield ("step_time_seconds", ""), min(elapsed, latency / tokens) if tokens else elapsed

    def _cpu_wait(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Seconds that the engine waited for a CPU, by the seconds that went by, as the recording has them."""
        seen: list[tuple[float, float]] = []
        for at_s, waited in self._waits:
            if waited is not None:
                # Less than before: another process has begun to count.
                seen = [*(seen if not seen or waited >= seen[-1][1] else []), (at_s, waited)]
        if len(seen) > 1 and seen[-1][0] == self._waits[-1][0]:
            (begin_s, first), (end_s, last) = seen[0], seen[-1]
            yield ("cpu_wait_ratio", ""), min(1.0, (last - first) / (end_s - begin_s))

    def _kv_cache(self) -> Iterator[tuple[tuple[str, str], float]]:
        usage = _value(self.last, GAUGES["kv_cache_usage_ratio"])
        grown = usage - _value(self.first, GAUGES["kv_cache_usage_ratio"])
        yield ("kv_cache_free_tokens", ""), self._capacity_tokens() * (1 - usage)
        if grown >= FILLING_MIN:
            yield ("kv_cache_time_to_full_seconds", ""), (1 - usage) / (grown / self.seconds)

    def _latencies(self) -> Iterator[tuple[tuple[str, str], float]]:
        shares = {}
        for ours, raw in HISTOGRAMS.items():
            buckets = self._buckets(raw)
            if buckets[-1][1]:
                for q in (0.5, 0.95, 0.99):
                    mean = self._increase(f"{raw}_sum") / buckets[-1][1]
                    yield (f"{ours}_seconds", f"{q:g}"), _quantile(buckets, q, mean)
                if ours in self._objectives:
                    shares[ours] = _share(buckets, self._objectives[ours])
                    yield ("slo_attainment_ratio", ours), shares[ours]
        if shares and len(shares) == len(self._objectives):
            finished = self._increase("vllm:request_success_total") / self.seconds
            yield ("goodput_requests_per_second", ""), finished * min(shares.values())

    def _capacity_tokens(self) -> float:
        """Blocks times their size, as the engine's configuration says."""
        (labels,) = self.last["vllm:cache_config_info"]
        config = dict(labels)
        return float(config["num_gpu_blocks"]) * float(config["block_size"])

    def _increase(self, name: str, bodies: list[Series] | None = None, **labels: str) -> float:
        """Return the growth of all series with these labels; from 0 if the server restarted in between."""
        wanted = set(labels.items())
        total = 0.0
        for old, new in itertools.pairwise(bodies or self.bodies):
            began_anew = old["process_start_time_seconds"] != new["process_start_time_seconds"]
            for key, value in new[name].items():
                if wanted <= set(key):
                    total += value - (0.0 if began_anew else old[name][key])
        return total

    def _buckets(self, name: str) -> list[tuple[float, float]]:
        """(upper bound, increase of its cumulative count), ascending."""
        bounds = {dict(key)["le"] for key in self.last[f"{name}_bucket"]}
        return [
            (float(le), self._increase(f"{name}_bucket", le=le)) for le in sorted(bounds, key=float)
        ]


def _value(body: Series, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    (value,) = (value for key, value in body[name].items() if wanted <= set(key))
    return value


def _quantile(buckets: list[tuple[float, float]], q: float, mean: float) -> float:
    """histogram_quantile(); in the lowest bucket at most what the mean allows, by Markov's inequality."""
    rank = q * buckets[-1][1]
    low, under = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if math.isinf(bound):
                return low
            value = low + (bound - low) * (rank - under) / (count - under)
            return value if low else min(value, mean / (1 - q))
        low, under = bound, count
    raise AssertionError("counts do not ascend")


def _share(buckets: list[tuple[float, float]], limit: float) -> float:
    """Share of observations at or under `limit`, which are evenly spread within a bucket."""
    low, under = 0.0, 0.0
    for bound, count in buckets:
        if limit <= bound:
            return (under + (count - under) * (limit - low) / (bound - low)) / buckets[-1][1]
        low, under = bound, count
    raise AssertionError("the last bound is not infinite")
