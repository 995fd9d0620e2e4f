"""Who is in the batch of a simulated engine, who waits, and which pages each one holds.

The rules are those of vLLM's V1 scheduler: first come, first served; prompts in chunks beside the
decoding requests; preemption of the last admitted request, which loses its pages, goes to the head of
the queue and is computed anew; and no admission in a step that had to preempt.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil

from vllm_watch.lab.kv_cache import KvCache
from vllm_watch.lab.ledger import Ledger
from vllm_watch.lab.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The defaults are an 8B model in 16 bits on an 80 GB GPU, to within what a demo needs."""

    num_gpu_blocks: int = 27_880
    block_size: int = 16  # tokens
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    step_base_seconds: float = 0.008  # the weights are read once in every step
    step_seconds_per_token: float = 3e-5  # compute: 33,000 prompt tokens per second
    step_seconds_per_kv_token: float = 4e-8  # 128 KiB of KV per token, read at 3.3 TB/s
    step_tokens: int = 1  # tokens a decoding request gets per step; more with speculative decoding


class Batch:
    """Running and waiting requests. `now`, where asked for, is the end of the last step, in seconds."""

    def __init__(self, config: EngineConfig, ledger: Ledger) -> None:
        self.config = config
        self.ledger = ledger
        self.kv = KvCache(config.num_gpu_blocks, config.block_size, config.step_tokens)
        self.running: dict[Request, None] = {}  # in order of admission
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.admission_blocked = False
        self.preempted = False  # since the last step
        self.computed_before = 0  # prompt tokens that the prefix cache has forgotten by now
        self._finish_heap: list[tuple[int, int, Request]] = []
        self._heap_order = 0

    def take_chunks(self, now: float) -> int:
        """Take up the chunks of prompts of the coming step; returns their tokens."""
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
        """Start prompts from the head of the queue beside `tokens` of others; returns all their tokens."""
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
        """Tokens of the prompt that need no computing: a cached prefix, or fetched from elsewhere.

        A prefix can only hit once this engine has computed that much; the last token is always computed.
        """
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
        """A prompt is computed and wants more tokens."""
        kv = self.kv
        left = request.output_tokens - request.generated_tokens
        request.kv_start_tokens = request.prefill_target_tokens
        request.phase = kv.begin_decoding(request.kv_start_tokens)
        request.decode_start_step = kv.step
        request.finish_step = kv.step + ceil(left / kv.step_tokens)
        self._heap_order += 1
        heappush(self._finish_heap, (request.finish_step, self._heap_order, request))

    def steps_to_finish(self) -> int:
        """Steps until the first decoding request ends; there is one."""
        heap = self._finish_heap
        while heap[0][2].finish_step != heap[0][0]:  # it was preempted or aborted meanwhile
            heappop(heap)
        return heap[0][0] - self.kv.step

    def pop_finished(self, now: float) -> list[Request]:
        """Take those out that have all their tokens by now."""
        heap, step, finished = self._finish_heap, self.kv.step, []
        while heap and heap[0][0] <= step:
            finish_step, _, request = heappop(heap)
            if request.finish_step == finish_step:
                self.release(request, now)
                finished.append(request)
        return finished

    def release(self, request: Request, now: float) -> None:
        """Take a request out of the batch, with its pages; what it has generated is settled."""
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
            if over:  # the last step of speculative decoding gives fewer
                self.ledger.take_back(over)
            request.generated_tokens += tokens - over
            request.last_token_t = now
        request.blocks = 0
        request.computed_tokens = 0
        request.decode_start_step = -1
        request.finish_step = -1

    def make_room_for_step(self, now: float) -> None:
        """Preempt until every request that still decodes can have its next token."""
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
