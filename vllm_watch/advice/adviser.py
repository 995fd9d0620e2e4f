"""Advises on one target's settings. Counts are reset every few hours, so advice follows the load."""

from collections.abc import Callable, Iterator, Mapping

from vllm_watch.advice.records import AttentionBackend, Evidence, backend_name
from vllm_watch.advice.rules import (
    attention_fallback,
    context_unused,
    gpus_idle,
    kv_starved,
    preemptions,
    prefix_caching_off,
)
from vllm_watch.advice.tally import HostGpusSeen, Tally
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Observation
from vllm_watch.signals.records import Advice, TargetSignals

SCRAPE_SECONDS = 5.0
"""Scrapes closer together than this are not counted."""

GPU_SECONDS = 30.0
"""Minimum seconds between two records of the GPUs' processes. Processes change slowly."""

JUDGE_SECONDS = 60.0
"""Seconds between two evaluations. Operators do not act on advice within a minute."""

SPAN_SECONDS = 6 * 3600.0
"""Counts are reset after this many seconds."""

SETTLED_SECONDS = 1800.0
"""New counts replace the earlier advice after this many seconds."""


RULES: tuple[Callable[[Evidence], Iterator[Advice]], ...] = (
    kv_starved, preemptions, gpus_idle, prefix_caching_off, context_unused, attention_fallback,
)  # fmt: skip


class Adviser:
    """Advises on one target. Each Watch needs its own Adviser."""

    def __init__(self, attention: AttentionBackend | None = None) -> None:
        self._attention = attention
        self._tallies: dict[str, Tally] = {}
        self._configs: dict[str, Mapping[str, str] | None] = {}
        self._settled: dict[str, tuple[Advice, ...]] = {}  # from the earlier counts
        self._gpus = HostGpusSeen()
        self._scraped_s = self._gpus_s = self._judged_s = float("-inf")
        self._advice: tuple[Advice, ...] = ()

    def look(
        self, at_s: float, observation: Observation, signals: TargetSignals
    ) -> tuple[Advice, ...]:
        """Add a scrape taken at monotonic `at_s`, and return the current advice."""
        reading = observation.reading
        if reading is None or not reading.vllm or at_s - self._scraped_s < SCRAPE_SECONDS:
            return self._advice
        self._scraped_s = at_s
        if at_s - self._gpus_s >= GPU_SECONDS:
            self._gpus_s = at_s
            self._gpus.add(observation.gpus)
        here = {sample.engine for sample in reading.engines}
        # A server that has just started may not list its engines yet.
        for gone in self._tallies.keys() - here if here else ():
            self._forget(gone)
        for sample in reading.engines:
            if sample.engine in signals.engines:  # engines above the limit are ignored
                self._tally(at_s, sample).add(at_s, sample)
        if at_s - self._judged_s >= JUDGE_SECONDS:
            self._judged_s = at_s
            self._advice = tuple(self._judged(at_s, observation, signals))
        return self._advice

    def _tally(self, at_s: float, sample: EngineSample) -> Tally:
        name, config = sample.engine, sample.cache_config_info
        if config is not None and self._configs.get(name, config) != config:
            self._forget(name)
        if config is not None:
            self._configs[name] = config
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._tallies[name] = Tally(at_s)
        return tally

    def _judged(
        self, at_s: float, observation: Observation, signals: TargetSignals
    ) -> Iterator[Advice]:
        reading = observation.reading
        for sample in reading.engines if reading else ():
            tally, known = self._tallies.get(sample.engine), signals.engines.get(sample.engine)
            if tally is None or known is None or reading is None:
                continue
            evidence = tally.evidence(
                sample, engines=len(reading.engines), gpus=self._gpus.worst,
                capacity_tokens=known.kv_cache_capacity_tokens,
                max_model_len=reading.server.max_model_len, attention=self._attention_of(observation),
            )  # fmt: skip
            found = tuple(advice for rule in RULES for advice in rule(evidence))
            settled = self._settled.get(sample.engine)
            yield from settled if settled is not None and tally.seconds < SETTLED_SECONDS else found
            if tally.seconds >= SPAN_SECONDS:
                self._settled[sample.engine] = found
                self._tallies[sample.engine] = Tally(at_s)

    def _attention_of(self, observation: Observation) -> AttentionBackend | None:
        named = observation.attention_backend
        return self._attention if named is None else AttentionBackend(backend_name(named))

    def _forget(self, name: str) -> None:
        for kept in (self._tallies, self._configs, self._settled):
            kept.pop(name, None)
