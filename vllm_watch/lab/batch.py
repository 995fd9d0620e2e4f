"""The batch of a simulated engine with the scheduling order of vLLM's V1, and its paged KV cache."""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil

from vllm_watch.lab.ledger import Ledger
from vllm_watch.lab.workload import Request


class KvCache:
    """Blocks in use, and blocks due in the next decode steps."""

    def __init__(self, num_gpu_blocks: int, block_size: int, step_tokens: int = 1) -> None:
        if block_size % step_tokens:
            raise ValueError(f"{step_tokens} tokens a step do not divide a block of {block_size}")
        self.num_gpu_blocks = num_gpu_blocks
        self.block_size = block_size
        self.step_tokens = step_tokens
        self.step = 0
        self.num_decoding = 0
        self.decode_kv_tokens = 0
        self.used_blocks = 0  # without leaked blocks
        self.leaked_blocks = 0
        self._cycle = block_size // step_tokens
        # All counts are stored twice, end to end, so that any window is one slice.
        self._due_twice = [0] * (2 * self._cycle)

    @property
    def free_blocks(self) -> int:
        return self.num_gpu_blocks - self.leaked_blocks - self.used_blocks

    @property
    def usage_ratio(self) -> float:
        """The value of vLLM's gauge. Leaked blocks count as used."""
        return min(1.0, (self.used_blocks + self.leaked_blocks) / self.num_gpu_blocks)

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def blocks_due(self, steps: int) -> int:
        cycles, rest = divmod(steps, self._cycle)
        start = self.step % self._cycle
        return cycles * self.num_decoding + sum(self._due_twice[start : start + rest])

    def steps_that_fit(self, steps: int) -> int:
        free = self.free_blocks
        # This simple check is nearly always enough.
        if (steps // self._cycle + 1) * self.num_decoding <= free:
            return steps
        return bisect_right(range(1, steps + 1), free, key=self.blocks_due)

    def take_steps(self, steps: int) -> None:
        self.used_blocks += self.blocks_due(steps)
        self.decode_kv_tokens += self.num_decoding * self.step_tokens * steps
        self.step += steps

    def begin_decoding(self, kv_tokens: int) -> int:
        """Return the step of the cycle at which the request needs a new block."""
        slack = -kv_tokens % self.block_size
        phase = (self.step + slack // self.step_tokens) % self._cycle
        self._count(phase, 1)
        self.num_decoding += 1
        self.decode_kv_tokens += kv_tokens
        return phase

    def end_decoding(self, phase: int, kv_tokens: int) -> None:
        self._count(phase, -1)
        self.num_decoding -= 1
        self.decode_kv_tokens -= kv_tokens
        self.used_blocks -= self.blocks_of(kv_tokens)

    def _count(self, phase: int, change: int) -> None:
        self._due_twice[phase] += change
        self._due_twice[phase + self._cycle] += change


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The defaults approximate an 8B model on an 80 GB GPU."""

    num_gpu_blocks: int = 27_880
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    step_base_seconds: float = 0.008  # every step reads the weights once
    step_seconds_per_token: float = 3e-5  # 33,000 prompt tokens per second
    step_seconds_per_kv_token: float = 4e-8  # 128 KiB of KV cache per token, read at 3.3 TB/s
    step_tokens: int = 1  # more with speculative decoding


class Batch:
    """Running and waiting requests. `now` is the last step's end, in seconds."""

    def __init__(self, config: EngineConfig, ledger: Ledger) -> None:
        self.config = config
        self.ledger = ledger
        self.kv = KvCache(config.num_gpu_blocks, config.block_size, config.step_tokens)
        self.running: dict[Request, None] = {}
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.admission_blocked = False
        self.preempted = False
        self.computed_before = 0  # prompt tokens when the prefix cache was last emptied
        self._finish_heap: list[tuple[int, int, Request]] = []
        self._heap_order = 0

    def take_chunks(self, now: float) -> int:
        tokens = self._continue_prefills(now) if self.prefilling else 0
        if not self.preempted and not self.admission_blocked:
            tokens = self._admit(tokens, now)
        return tokens

    def _budget(self) -> int:
        return self.config.max_num_batched_tokens - self.kv.num_decoding * self.config.step_tokens

    def _continue_prefills(self, now: float) -> int:
        self.make_room_for_step(now)
        kv, tokens = self.kv, 0
        for request in self.prefilling[:]:
            if request not in self.running:
                break
            left = request.prefill_target_tokens - request.computed_tokens
            chunk = min(left, self._budget() - tokens)
            if chunk <= 0:
                break
            blocks = kv.blocks_of(request.computed_tokens + chunk) - request.blocks
            while blocks > kv.free_blocks - kv.blocks_due(1):
                if self.preempt_last(now) is request:
                    return tokens
            kv.used_blocks += blocks
            request.blocks += blocks
            request.computed_tokens += chunk
            tokens += chunk
        return tokens

    def _admit(self, tokens: int, now: float) -> int:
        kv, waiting = self.kv, self.waiting
        free = kv.free_blocks - kv.blocks_due(1)
        budget = self._budget()
        while waiting and tokens < budget and len(self.running) < self.config.max_num_seqs:
            request = waiting[0]
            held = self._held_tokens(request)
            chunk = min(request.prefill_target_tokens - held, budget - tokens)
            blocks = kv.blocks_of(held + chunk)
            if blocks > free:
                break
            waiting.popleft()
            free -= blocks
            kv.used_blocks += blocks
            request.blocks = blocks
            request.computed_tokens = held + chunk
            tokens += chunk
            self.running[request] = None
            self.prefilling.append(request)
            if request.scheduled_t < 0.0:
                request.scheduled_t = now
                self.ledger.admitted(request)
        return tokens

    def _held_tokens(self, request: Request) -> int:
        """Return the number of prompt tokens that need no computation. The last token is always computed."""
        if request.scheduled_t < 0.0:
            cached = request.cached_tokens
            if cached > self.ledger.prompt_tokens - self.computed_before:
                cached = 0
            held = min(cached + request.external_tokens, request.prompt_tokens - 1)
            request.external_tokens = min(request.external_tokens, held)
            local = held - request.external_tokens
            request.started_cached_tokens = local - local % self.config.block_size
        return request.started_cached_tokens + request.external_tokens

    def begin_decoding(self, request: Request) -> None:
        kv = self.kv
        left = request.output_tokens - request.generated_tokens
        request.kv_start_tokens = request.prefill_target_tokens
        request.phase = kv.begin_decoding(request.kv_start_tokens)
        request.decode_start_step = kv.step
        request.finish_step = kv.step + ceil(left / kv.step_tokens)
        self._heap_order += 1
        heappush(self._finish_heap, (request.finish_step, self._heap_order, request))

    def steps_to_finish(self) -> int:
        heap = self._finish_heap
        while heap[0][2].finish_step != heap[0][0]:
            heappop(heap)
        return heap[0][0] - self.kv.step

    def pop_finished(self, now: float) -> list[Request]:
        heap, step, finished = self._finish_heap, self.kv.step, []
        while heap and heap[0][0] <= step:
            finish_step, _, request = heappop(heap)
            if request.finish_step == finish_step:
                self.release(request, now)
                finished.append(request)
        return finished

    def release(self, request: Request, now: float) -> None:
        kv = self.kv
        del self.running[request]
        if request.decode_start_step < 0:
            kv.used_blocks -= request.blocks
            if request in self.prefilling:
                self.prefilling.remove(request)
        else:
            tokens = (kv.step - request.decode_start_step) * kv.step_tokens
            kv.end_decoding(request.phase, request.kv_start_tokens + tokens)
            over = max(0, request.generated_tokens + tokens - request.output_tokens)
            if over:  # the last speculative step yields fewer tokens
                self.ledger.take_back(over)
            request.generated_tokens += tokens - over
            request.last_token_t = now
        request.blocks = 0
        request.computed_tokens = 0
        request.decode_start_step = -1
        request.finish_step = -1

    def make_room_for_step(self, now: float) -> None:
        while self.kv.blocks_due(1) > self.kv.free_blocks:
            self.preempt_last(now)

    def preempt_last(self, now: float) -> Request:
        request = next(reversed(self.running))
        self.release(request, now)
        request.preemptions += 1
        request.prefill_target_tokens = request.prompt_tokens + request.generated_tokens
        self.ledger.preemptions += 1
        self.waiting.appendleft(request)
        self.preempted = True
        return request
