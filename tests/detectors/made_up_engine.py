"""A made-up engine whose steps take a + b · tokens + c · KV cache in use, shown look by look."""

from dataclasses import dataclass, field

from vllm_watch.detectors.base import View
from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Call, Observation, Reading
from vllm_watch.signals.records import TargetSignals

OK = Call(outcome="ok", status=200)
SIGNALS = TargetSignals(target="x", t=0.0, up=True, outcome="ok", state="serving", state_text="")
A, B, C = 0.010, 0.00005, 0.020  # seconds: a step, a token, a full KV cache

CAPACITY_TOKENS = 16_000.0  # as the engine's configuration says


def step_seconds(tokens, kv):
    return A + B * tokens + C * kv


@dataclass
class Engine:
    """Counters of one engine; `run` lets time pass."""

    name: str = "0"
    at_s: float = 0.0
    steps: float = 0.0
    tokens: float = 0.0
    generated: float = 0.0
    prompted: float = 0.0
    gaps: float = 0.0
    gaps_sum: float = 0.0
    finished: float = 0.0
    finished_prompts: float = 0.0
    finished_outputs: float = 0.0
    preempted: float = 0.0
    held: float = 0.0  # tokens in flight
    cached: float = 0.0  # prompt tokens that were not computed
    drafted: float | None = None  # tokens
    config: dict = field(default_factory=lambda: {"block_size": "16", "num_gpu_blocks": "1000"})
    turn: int = 0

    def run(
        self, seconds, *, running, waiting=0.0, kv, slow=1.0, read=1.0, prompt=200.0, output=200.0,
        preempted=0.0, drafts=0.0,
    ):  # fmt: skip
        """Serve so many requests for so long. `read`: the share of the KV cache in use that is read;
        `preempted`: times per second; `drafts`: tokens drafted per token; a request finishes with `prompt` and `output` tokens."""
        self.turn += 1
        wobble = 1.0 + 0.15 * (self.turn % 5 - 2) / 2  # load is never quite the same
        running *= wobble if waiting == 0.0 else 1.0
        kv *= 1.0 + 0.15 * (self.turn % 7 - 3) / 3 if waiting == 0.0 else 1.0
        self.at_s += seconds
        tokens_each = running * (1.0 + prompt / output)  # a request's prompt, spread over its steps
        each = slow * step_seconds(tokens_each, kv * read)
        steps = seconds / each if running else 0.0
        self.steps += steps
        self.tokens += steps * tokens_each
        self.generated += steps * running
        self.prompted += steps * (tokens_each - running)
        self.gaps += steps * running
        self.gaps_sum += steps * running * each
        done = steps * running / output
        self.finished += done
        self.finished_prompts += done * prompt
        self.finished_outputs += done * output
        self.preempted += preempted * seconds
        if drafts or self.drafted is not None:
            self.drafted = (self.drafted or 0.0) + drafts * steps * running
        self._hold(CAPACITY_TOKENS * kv * read)
        return EngineSample(
            engine=self.name, model_name="m", requests_running=float(round(running)),
            requests_waiting=waiting, kv_cache_usage=kv, preemptions=self.preempted,
            prompt_tokens=self.prompted, generation_tokens=self.generated,
            prefix_cache_queries=self.prompted, prefix_cache_hits=self.cached,
            spec_num_draft_tokens=self.drafted, request_success={"stop": self.finished}, cache_config_info=dict(self.config),
            iteration_tokens=Histogram(self.steps, self.tokens),
            inter_token_latency=Histogram(self.gaps, self.gaps_sum),
            request_prompt_tokens=Histogram(self.finished, self.finished_prompts),
            request_generation_tokens=Histogram(self.finished, self.finished_outputs),
        )  # fmt: skip

    def _hold(self, tokens):
        """Let so many tokens be in flight: more come as prompts out of the cache, fewer as longer finished ones."""
        more = tokens - self.held
        self.held = tokens
        self.prompted += max(0.0, more)
        self.cached += max(0.0, more)
        self.finished_outputs += max(0.0, -more)


def view(at_s, *samples, gpus=None, cpu=None, known=True, answered=True):
    reading = Reading(vllm=True, engine_kind="V1", engines=samples) if answered else None
    observation = Observation(t=at_s, target="x", scrape=OK, reading=reading, gpus=gpus, cpu=cpu)
    return View(at_s=at_s, known=known, observation=observation, signals=SIGNALS)


class Told:
    """A detector that is shown one engine's life, part by part."""

    def __init__(self, detector, interval=5.0):
        self.detector = detector
        self.engine = Engine()
        self.interval = interval
        self.gpus = None
        self.first = None  # (seconds into the part, verdict) of the first finding of the last part
        self.verdict = None

    def part(self, seconds, **load):
        self.first, began_s = None, self.engine.at_s
        for _ in range(round(seconds / self.interval)):
            sample = self.engine.run(self.interval, **load)
            (self.verdict,) = self.detector.update(view(self.engine.at_s, sample, gpus=self.gpus))
            if self.verdict.state == "firing" and self.first is None:
                self.first = self.engine.at_s - began_s, self.verdict
        return self


def gpu(**fields):
    return GpuSample(index=0, uuid="GPU-0", **fields)
