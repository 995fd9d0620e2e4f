"""The paged KV cache of a simulated engine. A decoding request needs a new block once in a cycle of steps."""


class KvCache:
    """Blocks in use, and blocks due in the next decode steps."""

    __slots__ = (
        "_cycle", "_due_twice", "block_size", "decode_kv_tokens", "leaked_blocks",
        "num_decoding", "num_gpu_blocks", "step", "step_tokens", "used_blocks",
    )  # fmt: skip

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
        if self.blocks_due(steps) <= free:
            return steps
        low, high = 0, steps  # bisect: `low` fits, `high` does not
        while high - low > 1:
            middle = (low + high) // 2
            if self.blocks_due(middle) <= free:
                low = middle
            else:
                high = middle
        return low

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
        self.used_blocks -= -(-kv_tokens // self.block_size)

    def _count(self, phase: int, change: int) -> None:
        self._due_twice[phase] += change
        self._due_twice[phase + self._cycle] += change
