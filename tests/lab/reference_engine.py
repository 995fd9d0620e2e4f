"""The same scheduler as the lab's, written the slow way: one pass of a loop per engine step.

It shares no code with the engine. Both must agree on when each request ends.
"""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Job:
    arrival_t: float
    prompt: int
    output: int
    kv: int = 0  # slots in use
    blocks: int = 0
    target: int = 0
    generated: int = 0
    preemptions: int = 0
    scheduled_t: float | None = None
    finish_t: float | None = None

    def __post_init__(self):
        self.target = self.prompt

    @property
    def decoding(self):
        return self.kv >= self.target


@dataclass(eq=False)
class ReferenceEngine:
    config: object
    jobs: list
    now: float = 0.0
    running: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    preempted: bool = False

    def run(self):
        self.coming = sorted(self.jobs, key=lambda job: job.arrival_t)
        while self.coming or self.waiting or self.running:
            if not self.running and not self.waiting:
                self.now = max(self.now, self.coming[0].arrival_t)
            while self.coming and self.coming[0].arrival_t <= self.now:
                self.waiting.append(self.coming.pop(0))
            self.step()

    def blocks(self, tokens):
        return -(-tokens // self.config.block_size)

    @property
    def free(self):
        return self.config.num_gpu_blocks - sum(job.blocks for job in self.running)

    def decoders(self):
        return [job for job in self.running if job.decoding]

    def due(self):
        """Blocks that the coming decode step takes."""
        return sum(self.blocks(job.kv + 1) - job.blocks for job in self.decoders())

    def preempt_last(self):
        job = self.running.pop()
        job.target = job.prompt + job.generated
        job.kv = job.blocks = 0
        job.preemptions += 1
        self.waiting.insert(0, job)
        self.preempted = True
        return job

    def step(self):
        self.preempted = False
        while self.due() > self.free:
            self.preempt_last()
        chunks = self.continue_prefills()
        if not self.preempted:
            self.admit(chunks)
        decoders = [job for job in self.decoders() if job not in dict(chunks)]
        if not decoders and not chunks:
            assert self.preempted, "the reference is stuck"
            return
        tokens = len(decoders) + sum(chunk for _, chunk in chunks)
        context = sum(job.kv for job in self.running)
        config = self.config
        self.now += (
            config.step_base_seconds
            + config.step_seconds_per_token * tokens
            + config.step_seconds_per_kv_token * context
        )
        for job in decoders:
            job.kv += 1
            job.blocks = self.blocks(job.kv)
            self.emit(job)
        for job, _ in chunks:
            if job.decoding:
                self.emit(job)

    def continue_prefills(self):
        chunks = []
        for job in [job for job in self.running if not job.decoding]:
            if job not in self.running:
                break
            chunk = min(job.target - job.kv, self.budget(chunks))
            if chunk <= 0:
                break
            need = self.blocks(job.kv + chunk) - job.blocks
            while need > self.free - self.due_without(chunks):
                if self.preempt_last() is job:
                    return chunks
            self.take(job, chunk, chunks)
        return chunks

    def due_without(self, chunks):
        """As `due`, but a prompt that this very step completes does not decode yet."""
        done = [job for job, _ in chunks if job.decoding]
        return self.due() - sum(self.blocks(job.kv + 1) - job.blocks for job in done)

    def budget(self, chunks):
        done = sum(1 for job, _ in chunks if job.decoding)
        decoders = len(self.decoders()) - done
        return self.config.max_num_batched_tokens - decoders - sum(chunk for _, chunk in chunks)

    def take(self, job, chunk, chunks):
        job.kv += chunk
        job.blocks = self.blocks(job.kv)
        chunks.append((job, chunk))

    def admit(self, chunks):
        while self.waiting and len(self.running) < self.config.max_num_seqs:
            job = self.waiting[0]
            chunk = min(job.target, self.budget(chunks))
            if chunk <= 0 or self.blocks(chunk) > self.free - self.due_without(chunks):
                return
            self.waiting.pop(0)
            self.running.append(job)
            if job.scheduled_t is None:
                job.scheduled_t = self.now
            self.take(job, chunk, chunks)

    def emit(self, job):
        job.generated += 1
        if job.generated >= job.output:
            job.finish_t = self.now
            self.running.remove(job)
