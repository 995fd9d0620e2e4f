"""How much of an engine's time goes by waiting for a CPU, and how much of a slowdown that explains."""

from dataclasses import replace

import pytest

from vllm_watch.samples.observation import EngineCpu
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.cpu_waits import StepWaits, Waits

STEP_SECONDS = 0.02


def cpu(waited, **fields):
    return EngineCpu(engine="0", waited_seconds=waited, **fields)


def block(at_s, slow=1.0, **fields):
    seconds = STEP_SECONDS * slow
    return Block(
        at_s=at_s, seconds=5.0, steps=5.0 / seconds, step_seconds=seconds,
        tokens_per_step=10.0, kv_usage=0.3, running=10.0, waiting=0.0, waiting_min=0.0, running_min=10.0,
        generated=100.0, prompted=0.0, finished=1.0, finished_tokens=100.0, preempted=0.0, **fields,
    )  # fmt: skip


class Engine:
    """Blocks of 5 s, at the ends of which it is looked at."""

    def __init__(self):
        self.waits = StepWaits()
        self.at_s = 1000.1  # no round number, as on a real clock
        self.waited = 0.0
        self.waits.look(self.at_s, cpu(0.0), known=True)

    def run(self, blocks, share, slow=1.0, *, well=None, expected=STEP_SECONDS, **fields):
        for _ in range(blocks):
            self.at_s += 5.0
            self.waited += share * 5.0
            self.waits.look(self.at_s, cpu(self.waited, **fields), known=True)
            made = block(self.at_s, slow)
            self.waits.take(made, expected, well=slow == 1.0 if well is None else well)
        return self.waits.judge()


SLOWDOWNS = {
    # share when fresh, share now, times as slow → explained
    "half of the time, twice as slow": (0.0, 0.5, 2.0, 1.0),
    "half of the time, four times as slow": (0.0, 0.5, 4.0, 0.5),
    "no more than ever": (0.3, 0.3, 2.0, 0.0),
    "more than it is slower": (0.0, 0.9, 2.0, 1.0),
    "not slower": (0.0, 0.5, 1.0, 0.0),
    "nearly all of the time": (0.0, 1.0, 100.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize(("fresh", "now", "slow", "explained"), SLOWDOWNS.values(), ids=SLOWDOWNS)
def test_what_the_waiting_explains(fresh, now, slow, explained):
    """Of the slowdown's logarithm: a step that waits half of its time takes twice as long."""
    engine = Engine()
    engine.run(20, fresh)
    waited = engine.run(40, now, slow, well=False)
    assert waited.explained_ratio == pytest.approx(explained, abs=0.01)
    assert waited.usual_share == pytest.approx(fresh)


def unseen(engine):
    """A look at which its processes were not seen."""
    engine.at_s += 5.0
    engine.waits.look(engine.at_s, None, known=True)
    engine.waits.take(block(engine.at_s), STEP_SECONDS, well=True)


def began_anew(engine):
    """The watcher or the processes: what is counted begins at nothing."""
    engine.waited = 0.0
    engine.run(1, 0.9)


def without_steps(engine):
    engine.at_s += 5.0
    engine.waited += 5.0
    engine.waits.look(engine.at_s, cpu(engine.waited), known=True)
    engine.waits.take(replace(block(engine.at_s), steps=0.0), STEP_SECONDS, well=True)


def after_a_gap(engine):
    """How long ago the look before was is not known."""
    engine.at_s += 5.0
    engine.waited += 5.0
    engine.waits.look(engine.at_s, cpu(engine.waited), known=False)
    engine.waits.take(block(engine.at_s), STEP_SECONDS, well=True)


@pytest.mark.parametrize("happens", [unseen, began_anew, without_steps, after_a_gap])
def test_a_block_that_was_not_seen_whole_says_nothing(happens):
    """What was found before it holds; the next one that is seen is believed."""
    engine = Engine()
    before = engine.run(20, 0.1)
    happens(engine)
    assert engine.waits.judge() == before
    engine.run(1, 0.1)
    assert engine.run(30, 0.5, 2.0).share == pytest.approx(0.5, abs=0.01)


def test_what_is_not_seen_for_long_is_unknown():
    """Half a minute; then nobody knows what has become of it. Where it is seen again, it goes on."""
    engine = Engine()
    engine.run(20, 0.1)
    for _ in range(6):
        unseen(engine)
    assert engine.waits.judge() is not None
    unseen(engine)
    assert engine.waits.judge() is None
    engine.run(1, 0.1)
    assert engine.run(1, 0.1).usual_share == pytest.approx(0.1)


def test_how_often_its_limit_was_used_up():
    """Of the periods in the last block; unknown without a limit, or where it was counted anew."""
    engine = Engine()
    assert engine.run(20, 0.1).throttled_share is None
    engine.run(1, 0.1, quota_periods=100.0, throttled_periods=10.0)
    waited = engine.run(1, 0.1, quota_periods=150.0, throttled_periods=50.0)
    assert waited.throttled_share == pytest.approx(0.8)
    assert engine.run(1, 0.1, quota_periods=10.0, throttled_periods=5.0).throttled_share is None


LOOKS = {
    # what was counted at looks 10 s apart → the share of the last minute
    "a tenth of the time": ((0.0, 1.0, 2.0), 0.1),
    "all of it, a long wait that has just ended counted now": ((0.0, 0.0, 30.0), 1.0),
    "only the last minute": ((0.0, *[60.0 + 2.0 * i for i in range(8)]), 0.2),
    "never seen": ((None, None), None),
    "not seen any more": ((0.0, 1.0, None), None),
    "not seen for a look": ((0.0, None, 2.0), 0.1),
    "counted anew": ((50.0, 51.0, 0.0, 3.0), 0.3),
}  # fmt: skip


@pytest.mark.parametrize(("counts", "ratio"), LOOKS.values(), ids=LOOKS)
def test_share_of_the_window(counts, ratio):
    """Unknown unless it was seen at the last scrape and at one before."""
    waits = Waits(60.0)
    for i, waited in enumerate(counts):
        waits.add(10.0 * i, None if waited is None else cpu(waited))
    assert waits.ratio() == (None if ratio is None else pytest.approx(ratio))
