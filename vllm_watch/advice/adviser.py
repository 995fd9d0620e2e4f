"""Counts one target's scrapes and advises on its settings. Counts are reset every few hours, so advice follows the load."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite

from vllm_watch.advice.rules import RULES, AttentionBackend, Evidence, HostGpus, backend_name
from vllm_watch.samples.engine import EngineSample, Histogram, served
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Observation
from vllm_watch.signals.holders import roles
from vllm_watch.signals.records import Advice, TargetSignals

FULL_RATIO = 0.95
"""From this usage on, a cache counts as full, because a new request needs many blocks."""

_COUNTERS = ("preemptions", "mm_cache_queries", "mm_cache_hits", "external_prefix_cache_queries",
             "external_prefix_cache_hits")  # fmt: skip
_QUERIES_MIN = 200.0
"""A hit ratio is meaningful only after this many lookups."""


class Tally:
    """All counts of one engine since `begun_s`."""

    def __init__(self, begun_s: float) -> None:
        self.config: Mapping[str, str] | None = None
        self.settled: tuple[Advice, ...] | None = None  # from the earlier counts
        self.begun_s = begun_s
        self._last_s = begun_s
        self._scrapes = 0
        self._known, self._seen = Counter[str](), Counter[str]()
        self._running_full = 0.0
        self._running_max: float | None = None
        self._before: EngineSample | None = None
        self._grown: dict[str, float] = {}
        self._sizes: dict[str, Histogram] = {}

    @property
    def seconds(self) -> float:
        return self._last_s - self.begun_s

    def add(self, at_s: float, sample: EngineSample) -> None:
        self._last_s = at_s
        self._scrapes += 1
        self._gauges(sample)
        before, self._before = self._before, sample
        if before is None:
            return
        for name in _COUNTERS:
            self._grow(name, getattr(before, name), getattr(sample, name))
        self._grow("finished", served(before), served(sample))
        for name in ("request_prompt_tokens", "request_generation_tokens"):
            self._widen(name, getattr(before, name), getattr(sample, name))

    def evidence(self, known: Evidence) -> Evidence:
        """Return the known facts of the engine together with the counts."""
        return replace(
            known, seconds=self.seconds, scrapes=self._scrapes, full_ratio=self._share("full", "usage"), waiting_ratio=self._share("waiting", "waiting"),
            short_ratio=self._share("short", "both"),
            running_full=self._running_full / self._seen["full"] if self._seen["full"] else None,
            running_max=self._running_max,
            finished=self._grown.get("finished"), preemptions=self._grown.get("preemptions"),
            prompts=_sizes(self._sizes.get("request_prompt_tokens")),
            generations=_sizes(self._sizes.get("request_generation_tokens")),
            media_hit_ratio=self._hits("mm_cache"),
            external_hit_ratio=self._hits("external_prefix_cache"),
        )  # fmt: skip

    def _gauges(self, sample: EngineSample) -> None:
        usage, waiting, running = (
            sample.kv_cache_usage, sample.requests_waiting, sample.requests_running,
        )  # fmt: skip
        full = usage is not None and usage >= FULL_RATIO
        waits = waiting is not None and waiting > 0
        self._known["usage"] += usage is not None
        self._known["waiting"] += waiting is not None
        self._known["both"] += usage is not None and waiting is not None
        self._seen["full"] += full
        self._seen["waiting"] += waits
        self._seen["short"] += full and waits
        if running is not None and isfinite(running):
            self._running_full += running if full else 0.0
            self._running_max = max(running, self._running_max or 0.0)

    def _grow(self, name: str, then: float | None, now: float | None) -> None:
        if then is None or now is None or not isfinite(then) or not isfinite(now):
            return
        # A counter that fell was reset, so its whole value is new.
        self._grown[name] = self._grown.get(name, 0.0) + (now - then if now >= then else now)

    def _widen(self, name: str, then: Histogram | None, now: Histogram | None) -> None:
        if now is None or (then is not None and then.count == now.count):
            return
        if then is None or now.count < then.count or then.bounds != now.bounds:
            then = Histogram(0.0, 0.0, now.bounds, (0.0,) * len(now.bounds))
        known = self._sizes.get(name)
        if known is None or known.bounds != now.bounds:
            known = Histogram(0.0, 0.0, now.bounds, (0.0,) * len(now.bounds))
        self._sizes[name] = Histogram(
            known.count + now.count - then.count,
            None if None in (known.sum, now.sum, then.sum) else (known.sum or 0.0) + (now.sum or 0.0) - (then.sum or 0.0),
            now.bounds,
            tuple(a + b - c for a, b, c in zip(known.cumulative, now.cumulative, then.cumulative, strict=True)),
        )  # fmt: skip

    def _share(self, seen: str, known: str) -> float | None:
        return self._seen[seen] / self._known[known] if self._known[known] else None

    def _hits(self, name: str) -> float | None:
        queries = self._grown.get(f"{name}_queries", 0.0)
        hits = self._grown.get(f"{name}_hits")
        return None if hits is None or queries < _QUERIES_MIN else hits / queries


def _sizes(histogram: Histogram | None) -> Histogram | None:
    return histogram if histogram and histogram.count > 0 and histogram.bounds else None


Seen = tuple[HostGpus, frozenset[str]]  # and the UUIDs of its idle GPUs

IDLE_RATIO = 0.02
"""On an idle GPU, at most this share of the memory is in use. The driver alone takes a few hundred MiB."""


def host_gpus(gpus: Sequence[GpuSample] | None) -> Seen | None:
    """Return the current state and the UUIDs of idle GPUs, or None if uncertain."""
    if not gpus or any(
        gpu.processes is None or gpu.processes_complete is False or gpu.lost or gpu.mig_parent_uuid
        for gpu in gpus
    ):
        return None
    own, servers = [], set()
    for gpu in gpus:
        engine = [each for each in gpu.processes or () if roles.role(each) in roles.VLLM_ROLES]
        if engine:
            own.append(gpu)
            servers |= {(each.cgroup, each.ppid) for each in engine}
    if len(servers) != 1 or any(_free(gpu) is None for gpu in own):
        return None
    least = min(own, key=lambda gpu: _free(gpu) or 0)
    idle = frozenset(gpu.uuid for gpu in gpus if _is_idle(gpu) and gpu.name == least.name)
    return (
        HostGpus(
            names=tuple(gpu.name for gpu in own),
            total_bytes=(least.memory_total_bytes or 0) - (least.memory_reserved_bytes or 0),
            free_bytes=_free(least) or 0,
            idle=len(idle),
        ),
        idle,
    )


def _free(gpu: GpuSample) -> int | None:
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    return gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0) - gpu.memory_used_bytes


def _is_idle(gpu: GpuSample) -> bool:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return not gpu.processes and used is not None and bool(total) and used < IDLE_RATIO * (total or 0)  # fmt: skip


def worst(before: Seen | None, now: Seen | None) -> Seen | None:
    """Return the minimum free memory and the GPUs that were always idle."""
    if before is None or now is None or before[0].names != now[0].names:
        return now or before
    idle = before[1] & now[1]
    free_bytes = min(before[0].free_bytes, now[0].free_bytes)
    return replace(before[0], free_bytes=free_bytes, idle=len(idle)), idle


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


class Adviser:
    """Advises on one target. Each Watch needs its own Adviser."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._gpus: Seen | None = None
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
            self._gpus = worst(self._gpus, host_gpus(observation.gpus))
        here = {sample.engine for sample in reading.engines}
        # A server that has just started may not list its engines yet.
        for gone in self._tallies.keys() - here if here else ():
            del self._tallies[gone]
        for sample in reading.engines:
            if sample.engine in signals.engines:  # engines above the limit are ignored
                self._tally(at_s, sample).add(at_s, sample)
        if at_s - self._judged_s >= JUDGE_SECONDS:
            self._judged_s = at_s
            self._advice = tuple(self._judged(at_s, observation, signals))
        return self._advice

    def _tally(self, at_s: float, sample: EngineSample) -> Tally:
        config, tally = sample.cache_config_info, self._tallies.get(sample.engine)
        if tally is None or (config is not None and tally.config not in (None, config)):
            tally = self._tallies[sample.engine] = Tally(at_s)
        tally.config = tally.config if config is None else config
        return tally

    def _judged(
        self, at_s: float, observation: Observation, signals: TargetSignals
    ) -> Iterator[Advice]:
        reading, named = observation.reading, observation.attention_backend
        attention = None if named is None else AttentionBackend(backend_name(named))
        for sample in reading.engines if reading else ():
            tally, known = self._tallies.get(sample.engine), signals.engines.get(sample.engine)
            if tally is None or known is None or reading is None:
                continue
            evidence = tally.evidence(Evidence(
                engine=sample.engine, engines=len(reading.engines), gpus=self._gpus and self._gpus[0],
                config=sample.cache_config_info or {}, capacity_tokens=known.kv_cache_capacity_tokens,
                max_model_len=reading.server.max_model_len, attention=attention,
            ))  # fmt: skip
            found = tuple(advice for rule in RULES for advice in rule(evidence))
            young = tally.settled is not None and tally.seconds < SETTLED_SECONDS
            yield from (tally.settled or ()) if young else found
            if tally.seconds >= SPAN_SECONDS:
                config, tally = tally.config, Tally(at_s)
                tally.config, tally.settled = config, found
                self._tallies[sample.engine] = tally
