"""One engine's judge, shown blocks whose comparison with the engine's past is given."""

from dataclasses import fields, replace
from math import exp
from types import SimpleNamespace

from tests.detectors.made_up_engine import gpu
from vllm_watch.detectors.collapse_engine import EngineJudge
from vllm_watch.detectors.per_engine import EngineLook
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import EngineCpu
from vllm_watch.signals.baseline import Comparison
from vllm_watch.signals.blocks import Block

BLOCK = Block(
    at_s=0.0, seconds=5.0, steps=250.0, step_seconds=0.02, tokens_per_step=80.0, kv_usage=0.3, running=40.0, waiting=0.0,
    waiting_min=0.0, running_min=40.0, generated=2000.0, prompted=2000.0, finished=50.0, finished_tokens=20_000.0,
    preempted=0.0, prompts=50.0, first_token_seconds=1.0, kv_usage_end=0.3, tokens_in_flight=4800.0,
)  # fmt: skip
"""Of an engine that is well: 40 requests of 400 tokens each, for whom the tokens in flight account."""

COMPARISON = Comparison(
    block=BLOCK, known=True, slow_log_ratio=0.0, expected_step_seconds=0.02, deviation=0.05, throughput_ratio=1.0,
    running_expected=40.0, familiar=True, sure=True, slow=False, slow_now=False, starved=False, starved_now=False, starved_seen=True,
)  # fmt: skip

STARVED = {
    "starved": True, "starved_now": True, "running": 4.0, "generated": 200.0, "kv_usage": 0.9, "kv_usage_end": 0.9,
    "waiting": 60.0, "running_expected": 120.0, "finished": 5.0, "finished_tokens": 2000.0, "prompts": 5.0, "prompted": 200.0,
}  # fmt: skip
LOST = STARVED | {"tokens_in_flight": 4800.0}  # nobody accounts for 60 % of the cache
HELD = STARVED | {"tokens_in_flight": 14_400.0}
LONG_PROMPT = HELD | {"prompts": 1.0, "prompted": 1000.0}
CHUNKED = HELD | {"long_prompts": True}
SLOW = {"slow": True, "slow_now": True, "slow_log_ratio": 1.1}


class Throughput:
    """What the engine was like when fresh, as a test says."""

    def __init__(self):
        self.ready = True
        self.running, self.kv_usage = SimpleNamespace(value=40.0), SimpleNamespace(value=0.3)
        self.done, self.tokens, self.life_s = 0.2, 400.0, 4.0

    def ratio(self):
        return self.done

    def request_tokens(self):
        return self.tokens

    def life_seconds(self):
        return self.life_s


class Past:
    """A baseline that compares as it is told."""

    def __init__(self):
        self.throughput = Throughput()
        self.model = SimpleNamespace(coefficients=(0.01, 0.00005, 0.02))
        self.slow, self.starved = (
            SimpleNamespace(level=0.0, alarm=False),
            SimpleNamespace(level=0.0, alarm=False),
        )
        self.drift = 0.0
        self.comparison = None
        self.completes = True  # does a look complete a block?
        self.restored = None  # (state, seconds away)

    def update(self, at_s, sample, *, known, engines):
        return self.comparison if known and self.completes else None

    def former_log_ratio(self, block):
        """What steps took in the run before: nothing is known of it."""

    def export_state(self):
        return {"learnt": 1.0}

    def restore(self, state, away_seconds):
        self.restored = state, away_seconds


HOT = (gpu(throttle_reasons=("hw_thermal_slowdown",)),)
CALM = (gpu(),)

_OF_BLOCK = {each.name for each in fields(Block)}
_FLAGS = ("slow", "starved")


class Judged:
    """Lets one judge see block after block."""

    def __init__(self):
        self.judge = EngineJudge("0")
        self.past = self.judge.baseline = Past()
        self.at_s, self.waited_s = 0.0, 0.0
        self.sample = EngineSample(
            engine="0", cache_config_info={"num_gpu_blocks": "1000", "block_size": "16"}
        )

    def see(self, seconds=5.0, *, gpus=None, waits=None, **differs):
        """Show blocks for so long, and return the last verdict; `differs`: from those of an engine that is well;
        `waits`: for a CPU, so much of the time (None: its processes are not seen)."""
        of_block = {name: value for name, value in differs.items() if name in _OF_BLOCK}
        others = {name: value for name, value in differs.items() if name not in _OF_BLOCK}
        for name in _FLAGS:
            getattr(self.past, name).alarm = bool(others.get(name))
            getattr(self.past, name).level = others.pop(f"{name}_level", 1.0 if others.get(name) else 0.0)  # fmt: skip
        for _ in range(round(seconds / BLOCK.seconds)):
            self.at_s += BLOCK.seconds
            slower = {"step_seconds": BLOCK.step_seconds * exp(others.get("slow_log_ratio") or 0.0)}
            block = replace(BLOCK, at_s=self.at_s, **(slower | of_block))
            self.past.comparison = replace(COMPARISON, block=block, **others)
            self.waited_s += BLOCK.seconds * (waits or 0.0)
            cpu = None if waits is None else EngineCpu(engine="0", waited_seconds=self.waited_s)
            verdict = self.look(gpus=gpus, cpu=cpu)
        return verdict

    def look(self, *, known=True, gpus=None, cpu=None):
        """Look at it, and return the verdict."""
        return self.judge.update(
            EngineLook(
                at_s=self.at_s, known=known, sample=self.sample, gpus=gpus, engines=1, cpu=cpu
            )
        )

    @property
    def kept(self):
        """What the next run of the watcher would know."""
        return self.judge.export_state()


def well(seconds=300.0):
    """A judge that has seen an engine which is well."""
    judged = Judged()
    judged.see(seconds)
    return judged


def evidence(verdict, name):
    """The evidence of that name, for or against."""
    return next(each for each in (*verdict.evidence_for, *verdict.evidence_against) if each.name == name)  # fmt: skip


def drained(load):
    """The alarm still holds, and this block adds nothing to it."""
    return load | {"starved_now": False} if load.get("starved") else load | {"slow_now": False}


def said(verdict):
    return verdict.state, verdict.cause, verdict.severity, verdict.restart_advised
