"""One simulated vLLM server, in virtual time. Its API server and engines fail independently."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from math import floor

from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.engine import Engine
from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.ledger import HttpLog
from vllm_watch.lab.release import V1, Release
from vllm_watch.lab.workload import Request, Workload

_BYTES_PER_TOKEN = 4
_RESTART_SECONDS = 20.0  # an 8B model from the page cache
_LORA_SETS_MAX = 64  # vLLM has no limit


@dataclass(eq=False, repr=False)
class SimulatedVllm:
    """Times are in seconds since `epoch`, a Unix time."""

    host_leak_bytes_per_second = 0.0

    name: str
    _: KW_ONLY
    workload: Workload = field(default_factory=Workload)
    config: EngineConfig = field(default_factory=EngineConfig)
    num_engines: int = 1
    release: Release = V1
    model_name: str = "example/model-8b"
    max_model_len: int = 8192
    max_loras: int = 0
    spec_tokens: int = 0
    api_key: str | None = None
    group: str = ""
    epoch: float = 0.0
    serving_from_start: InitVar[bool] = True
    generates: bool = True

    def __post_init__(self, serving_from_start: bool) -> None:
        self.t = 0.0
        self.engines: list[Engine] = []
        self.api_hung = False
        self.dead = False  # the engine core is dead, but the API server runs
        self.paused = False
        self.draining = False  # new requests are aborted, as on SIGTERM with --shutdown-timeout
        self.process_seen = False  # by the watcher
        self.sleep_level = 0
        self.faults: dict[str, None] = {}  # oldest first
        self.pins: list[tuple[Engine, Request]] = []
        self.leaks: list[tuple[float, float, float]] = []  # since, ramp seconds, block share
        self.lora_sets: dict[tuple[str, str], float] = {}  # running, waiting adapters → last seen
        self.http = HttpLog()
        self.incarnation = 0
        self.process_start_t = 0.0
        self.created_t = 0.0
        self._ready_t: float | None = None
        self._lingers_until_t = 0.0
        self._held: list[Request] = []
        self._next_engine = 0
        if serving_from_start:
            self.incarnation = 1
            self._begin(0.0)

    @property
    def serving(self) -> bool:
        return bool(self.engines)

    @property
    def alive(self) -> bool:
        return self.serving or self._ready_t is not None or self.t < self._lingers_until_t

    @property
    def outstanding(self) -> int:
        inside = sum(e.num_running + e.num_waiting + e.num_unseen for e in self.engines)
        return inside + len(self._held)

    @property
    def loaded_ratio(self) -> float:
        if self._ready_t is None:
            return float(self.serving)
        whole = self._ready_t - self.process_start_t
        return min(1.0, (self.t - self.process_start_t) / whole) if whole > 0.0 else 0.0

    def start(self, load_seconds: float = _RESTART_SECONDS) -> None:
        if not self.serving and self._ready_t is None:
            self.incarnation += 1
            self.process_start_t = self.t
            self._ready_t = self.t + load_seconds

    def stop(self, linger_seconds: float = 0.0) -> None:
        """Close the port, and fail all requests. The process remains for `linger_seconds`."""
        self._ready_t = None
        self._lingers_until_t = self.t + linger_seconds
        engines, self.engines = self.engines, []
        known = [*self._held, *(request for engine in engines for request in engine.requests())]
        self._held = []
        self.pins = []
        self.leaks = []
        self.api_hung = self.dead = self.paused = self.draining = False
        self.sleep_level = 0
        for request in known:
            if request.arrival_t > self.t:
                request.client.rejected(request, request.arrival_t)
                continue
            request.finish_reason = "error"
            request.finish_t = self.t
            if request.on_finish is not None:
                request.on_finish(request)
            request.client.rejected(request, self.t)

    def _begin(self, t: float) -> None:
        self._ready_t = None
        self.created_t = t
        self.http = HttpLog()
        self.lora_sets = {}
        self.engines = [self._new_engine(index, t) for index in range(self.num_engines)]

    def _new_engine(self, index: int, t: float) -> Engine:
        ended = partial(self._finished, index)
        return Engine(self.config, self.release, now=t, on_finish=ended)

    def advance(self, until_t: float) -> None:
        if self._ready_t is not None and self._ready_t <= until_t:
            ready_t = self._ready_t
            self._feed(ready_t)
            self._begin(ready_t)
        # A leak grows in steps of 1 s.
        while self.leaks and (tick_t := floor(self.t + 1.0)) < until_t:
            self._run(tick_t)
        self._run(until_t)

    def _run(self, until_t: float) -> None:
        self._feed(until_t)
        if self.leaks:
            self._leak(until_t)
        for engine in self.engines:
            engine.advance(until_t)
        self.t = max(self.t, until_t)
        if self.max_loras:
            self._note_loras()

    def _feed(self, until_t: float) -> None:
        workload = self.workload
        while requests := workload.arrivals(until_t):  # refused clients may retry
            for request in requests:
                request.client = workload
                if not self.submit(request):
                    workload.rejected(request, request.arrival_t)

    def submit(self, request: Request, engine: int | None = None) -> bool:
        """Send a request, and return False if it is refused. Without `engine`, the engines take turns."""
        if not self.engines:
            return False
        if self.api_hung:
            self._held.append(request)
            return True
        if request.prompt_tokens + request.output_tokens > self.max_model_len:
            self._log(request, "4xx", 0.001)
            return False
        if self.dead or self.paused:
            self._log(request, "5xx", 0.001)
            return False
        if self.draining:
            request.finish_reason, request.finish_t = "abort", request.arrival_t
            self.engines[0].ledger.finish(request)
            self._log(request, "5xx", 0.001)
            return False
        if engine is None:
            engine = self._next_engine = (self._next_engine + 1) % len(self.engines)
        self.engines[engine].submit(request)
        return True

    def abort(self, request: Request) -> None:
        if request in self._held:
            self._held.remove(request)
        for engine in self.engines:
            engine.abort(request)

    def _finished(self, engine: int, request: Request) -> None:
        status = "2xx" if request.finish_reason != "error" else "5xx"
        self._log(request, status, request.finish_t - request.arrival_t)
        if request.on_finish is not None:
            request.on_finish(request)
        following = request.client.finished(request)
        if following is not None:
            following.client = request.client
            if not self.submit(following, engine):
                following.client.rejected(following, self.t)

    def _log(self, request: Request, status: str, seconds: float) -> None:
        if self.release.http:
            self.http.record(
                request.handler,
                status,
                seconds,
                self.epoch + max(self.t, request.finish_t),
                request_bytes=request.prompt_tokens * _BYTES_PER_TOKEN,
                response_bytes=request.generated_tokens * _BYTES_PER_TOKEN,
            )

    def sleep(self, level: int) -> None:
        """Offload the weights (level 1) or drop them (level 2)."""
        self.sleep_level = level
        for engine in self.engines:
            engine.freeze(self.t)

    def wake_up(self) -> None:
        self.sleep_level = 0
        for engine in self.engines:
            engine.forget_prefixes()
            engine.thaw(self.t)

    def scale_up(self, num_engines: int) -> None:
        """Add engines and reset all counters, as vLLM's elastic scaling does."""
        self.created_t = self.t
        self.num_engines = num_engines
        for engine in self.engines:
            engine.begin_ledger()
        while len(self.engines) < num_engines:
            self.engines.append(self._new_engine(len(self.engines), self.t))

    def fault(self, slug: str, **options: float) -> None:
        FAULTS[slug].begin(self, **options)
        self.faults[slug] = None

    def clear(self, slug: str | None = None) -> None:
        for each in [slug] if slug else reversed(list(self.faults)):
            if each in self.faults:
                del self.faults[each]
                FAULTS[each].end(self)

    def resume_api(self) -> None:
        self.api_hung = False
        held, self._held = self._held, []
        for request in held:
            request.arrival_t = self.t
            if not self.submit(request):
                request.client.rejected(request, self.t)

    def _leak(self, t: float) -> None:
        total = self.config.num_gpu_blocks
        share = sum(
            share * (min(1.0, (t - since_t) / ramp_s) if ramp_s else 1.0)
            for since_t, ramp_s, share in self.leaks
        )
        for engine in self.engines:
            wanted = int(total * min(share, 1.0)) - engine.kv.leaked_blocks
            engine.kv.leaked_blocks += max(0, min(wanted, engine.kv.free_blocks))

    def _note_loras(self) -> None:
        running = {r.lora for e in self.engines for r in e.batch.running if r.lora}
        waiting = {r.lora for e in self.engines for r in e.batch.waiting if r.lora}
        key = (",".join(sorted(running)), ",".join(sorted(waiting)))
        if key in self.lora_sets or len(self.lora_sets) < _LORA_SETS_MAX:
            self.lora_sets[key] = self.epoch + self.t
