"""The simulated vLLM V1 engine core, in virtual time. All steps up to the next event are computed at once."""

from bisect import bisect_right, insort
from collections.abc import Callable
from math import ceil, sqrt
from operator import attrgetter

from vllm_watch.lab.batch import Batch, EngineConfig
from vllm_watch.lab.ledger import Ledger
from vllm_watch.lab.release import INF, Release
from vllm_watch.lab.workload import Request

_ARRIVAL = attrgetter("arrival_t")
_RAMP_STAIR_SECONDS = 1.0
_ROUNDING = 1e-9  # share of a step


class Engine:
    """One engine core. `now` is the end of the last completed step, in seconds."""

    def __init__(
        self,
        config: EngineConfig,
        release: Release,
        now: float = 0.0,
        on_finish: Callable[[Request], None] | None = None,
    ) -> None:
        self.config = config
        self._release = release
        self.ledger = Ledger(release)
        self.batch = Batch(config, self.ledger)
        self.kv = self.batch.kv
        self.now = now
        self.busy_seconds = 0.0
        self.slow_factor = 1.0
        self.slow_since_t = 0.0
        self.slow_ramp_seconds = 0.0
        self._on_finish = on_finish
        self._pending: list[Request] = []  # sorted by arrival
        self._next_pending = 0
        self._prefill_end_t: float | None = None
        self._prefill_step = (0, 0.0)  # decoding requests, duration
        self._frozen_since_t: float | None = None
        self._thawed_t = now
        self._seen_t = now  # the core knows arrivals up to this time
        self._lag_seconds = 0.0
        self._disconnected: list[Request] = []

    @property
    def num_running(self) -> int:
        return len(self.batch.running)

    @property
    def num_waiting(self) -> int:
        return len(self.batch.waiting) + self._arrived() - self._next_pending

    @property
    def num_unseen(self) -> int:
        """Number of requests that arrived at a frozen engine. No gauge shows them."""
        return len(self._pending) - self._arrived() if self.frozen else 0

    @property
    def frozen(self) -> bool:
        return self._frozen_since_t is not None

    def requests(self) -> list[Request]:
        return [*self.batch.running, *self.batch.waiting, *self._pending[self._next_pending :]]

    def submit(self, request: Request) -> None:
        if self._next_pending and self._next_pending * 2 > len(self._pending):
            del self._pending[: self._next_pending]
            self._next_pending = 0
        if self._pending and request.arrival_t < self._pending[-1].arrival_t:
            insort(self._pending, request, lo=self._next_pending, key=_ARRIVAL)
        else:
            self._pending.append(request)

    def abort(self, request: Request) -> None:
        """Free the request's blocks. A frozen core frees them after it thaws."""
        if self.frozen:
            if request in self._pending[self._next_pending :]:
                self._pending.remove(request)
            else:
                self._disconnected.append(request)
            return
        if request in self.batch.running:
            self.batch.release(request, self.now)
        elif request in self.batch.waiting:
            self.batch.waiting.remove(request)
        elif request in self._pending[self._next_pending :]:
            self._pending.remove(request)
        else:
            return
        request.finish_reason = "abort"
        self._end(request)

    def forget_prefixes(self) -> None:
        self.batch.computed_before = self.ledger.prompt_tokens

    def begin_ledger(self) -> None:
        self.ledger = self.batch.ledger = Ledger(self._release)
        self.batch.computed_before = 0

    def freeze(self, t: float) -> None:
        if self._frozen_since_t is None:
            self._frozen_since_t = t

    def thaw(self, t: float) -> None:
        if self._frozen_since_t is None:
            return
        delay = t - self._frozen_since_t
        self._frozen_since_t = None
        self._thawed_t = t
        if self._prefill_end_t is not None:
            self._prefill_end_t += delay
            self._prefill_step = (self._prefill_step[0], self._prefill_step[1] + delay)
        elif self.kv.num_decoding:
            self._lag_seconds += delay
        else:
            self.now = max(self.now, t)
        disconnected, self._disconnected = self._disconnected, []
        for request in disconnected:
            self.abort(request)

    def advance(self, until_t: float) -> None:
        if self._frozen_since_t is not None:
            return
        while self._step(until_t):
            pass
        self._seen_t = until_t
        if not self.batch.running:
            self.now = max(self.now, until_t)

    def _step(self, until_t: float) -> bool:
        if self._prefill_end_t is not None:
            if self._prefill_end_t > until_t:
                return False
            self._end_prefill_step(self._prefill_end_t)
            return True
        batch = self.batch
        self._take_arrivals()
        if (batch.waiting or batch.prefilling) and self._begin_prefill_step():
            return True
        if self.kv.num_decoding:
            return self._decode(until_t)
        if batch.preempted:  # the next step may admit requests again
            batch.preempted = False
            return True
        return not batch.waiting and self._skip_to_arrival(until_t)

    def _skip_to_arrival(self, until_t: float) -> bool:
        if self._next_arrival_t > until_t:
            return False
        self.now = max(self.now, self._next_arrival_t)
        return True

    @property
    def _next_arrival_t(self) -> float:
        left = self._next_pending < len(self._pending)
        return self._pending[self._next_pending].arrival_t if left else INF

    def _arrived(self) -> int:
        return bisect_right(self._pending, self._seen_t, lo=self._next_pending, key=_ARRIVAL)

    def _take_arrivals(self) -> None:
        pending, index, count = self._pending, self._next_pending, len(self._pending)
        while index < count and pending[index].arrival_t <= self.now:
            request = pending[index]
            request.queued_t = max(request.arrival_t, self._thawed_t)
            self.batch.waiting.append(request)
            index += 1
        self._next_pending = index

    def _speed_factor(self) -> float:
        if self.slow_ramp_seconds <= 0.0:
            return self.slow_factor
        share = min(1.0, (self.now - self.slow_since_t) / self.slow_ramp_seconds)
        return 1.0 + (self.slow_factor - 1.0) * max(0.0, share)

    def _decode(self, until_t: float) -> bool:
        batch, kv, config = self.batch, self.kv, self.config
        tokens = kv.num_decoding * config.step_tokens
        factor = 1.0 if self.slow_factor == 1.0 else self._speed_factor()
        per_kv = config.step_seconds_per_kv_token * factor
        slope = per_kv * tokens
        first = (
            (config.step_base_seconds + config.step_seconds_per_token * tokens) * factor
            + per_kv * kv.decode_kv_tokens
            + self._lag_seconds
        )
        steps = int(_steps_in(until_t - self.now, first, slope) + _ROUNDING)
        if steps < 1:
            return False
        single = self._lag_seconds or batch.preempted
        steps = 1 if single else min(steps, batch.steps_to_finish())
        if self.slow_ramp_seconds > 0.0:
            steps = min(steps, max(1, int(_RAMP_STAIR_SECONDS / first)))
        room = not batch.waiting and len(batch.running) < config.max_num_seqs
        if steps > 1 and room and self._next_arrival_t < INF:
            left = self._next_arrival_t - self.now
            steps = min(steps, max(1, ceil(_steps_in(left, first, slope) - _ROUNDING)))
        steps = kv.steps_that_fit(steps)
        if steps == 0:
            batch.make_room_for_step(self.now)
            return self._decode(until_t) if kv.num_decoding else True
        seconds = steps * (first + slope * 0.5 * (steps - 1))
        self.now += seconds
        self.busy_seconds += seconds
        self.ledger.decode_steps(kv.num_decoding, config.step_tokens, steps, first, slope)
        self.ledger.iteration_tokens.observe(tokens, steps)
        kv.take_steps(steps)
        self._step_done()
        return True

    def _begin_prefill_step(self) -> bool:
        batch, kv, config = self.batch, self.kv, self.config
        prompt_tokens = batch.take_chunks(self.now)
        if not prompt_tokens:
            return False
        tokens = kv.num_decoding * config.step_tokens + prompt_tokens
        context = kv.decode_kv_tokens + sum([r.computed_tokens for r in batch.prefilling])
        seconds = self._lag_seconds + self._speed_factor() * (
            config.step_base_seconds
            + config.step_seconds_per_token * tokens
            + config.step_seconds_per_kv_token * context
        )
        self._prefill_step = (kv.num_decoding, seconds)
        self._prefill_end_t = self.now + seconds
        kv.take_steps(1)
        return True

    def _end_prefill_step(self, end_t: float) -> None:
        decoding, seconds = self._prefill_step
        batch, ledger, step_tokens = self.batch, self.ledger, self.config.step_tokens
        self._prefill_end_t = None
        self.now = end_t
        self.busy_seconds += seconds
        tokens = decoding * step_tokens
        if decoding:
            ledger.decode_steps(decoding, step_tokens, 1, seconds, 0.0)
        prompts, batch.prefilling = batch.prefilling, []
        for request in prompts:
            if request.computed_tokens < request.prefill_target_tokens:
                batch.prefilling.append(request)
            else:
                tokens += ledger.prompt_done(request, end_t)
                if request.generated_tokens < request.output_tokens:
                    batch.begin_decoding(request)
                else:
                    batch.release(request, end_t)
                    self._end(request)
        if tokens:
            ledger.iteration_tokens.observe(tokens)
        self._step_done()

    def _step_done(self) -> None:
        self._lag_seconds = 0.0
        self.batch.preempted = False
        for request in self.batch.pop_finished(self.now):
            self._end(request)

    def _end(self, request: Request) -> None:
        request.finish_t = self.now
        self.ledger.finish(request)
        if self._on_finish is not None:
            self._on_finish(request)


def _steps_in(seconds: float, first: float, slope: float) -> float:
    """Return the number of steps in `seconds`. The first takes `first` seconds, and each later step takes `slope` more than the step before."""
    half = first - slope * 0.5
    return 2.0 * seconds / (half + sqrt(max(0.0, half * half + 2.0 * slope * seconds)))
