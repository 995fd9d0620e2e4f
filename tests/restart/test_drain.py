"""Draining: what makes progress is waited for, to the deadline; what makes none is not."""

from dataclasses import replace

import pytest

from vllm_watch.restart import restart
from vllm_watch.settings.restart import DrainSettings
from vllm_watch.signals.records import EngineSignals, TargetSignals

SERVING = TargetSignals(
    target="chat-0", t=1.0, up=True, outcome="ok", state="serving", state_text="",
    engines={"0": EngineSignals(engine="0", requests_running=2.0, requests_waiting=1.0)},
)  # fmt: skip


def serving(*counts: tuple[float | None, float | None]) -> TargetSignals:
    """A server whose engines have so many requests running and waiting."""
    engines = {
        str(n): EngineSignals(engine=str(n), requests_running=running, requests_waiting=waiting)
        for n, (running, waiting) in enumerate(counts)
    }
    return replace(SERVING, engines=engines)


WORK: dict[str, tuple[TargetSignals, float | None]] = {
    "all engines count": (serving((2, 1), (3, 0)), 6.0),
    "waiting unknown is none": (serving((2, None)), 2.0),
    "running unknown is unknown": (serving((2, 1), (None, 0)), None),
    "no engine is seen": (serving(), None),
    "it does not answer": (replace(SERVING, up=False), None),
}


@pytest.mark.parametrize(("signals", "left"), WORK.values(), ids=WORK)
def test_work(signals: TargetSignals, left: float | None) -> None:
    """How many requests are in hand."""
    assert restart.requests_in_flight(signals) == left


STORIES: dict[str, tuple[list[TargetSignals | None], str]] = {
    # looks, one a second; the last one ends it, and how it went
    "nothing in hand": ([serving((0, 0))], "no request was in flight after 0 s"),
    "they finish": ([serving((2, 1)), serving((1, 0)), serving((0, 0))], "no request was in flight after 2 s"),
    "they do not finish": ([serving((5, 0))] * 4, "5 requests were still in flight after 3 s"),
    "it hangs": ([replace(SERVING, state="stalled")], "the engine makes no progress"),
    "it is down": ([replace(SERVING, up=False, state="down")], "makes no progress"),
    "it is loading": ([replace(SERVING, state="starting")], "makes no progress"),
    "it comes to hang meanwhile": (
        [serving((2, 1)), replace(SERVING, state="stalled")], "makes no progress"),
    "it was never seen": ([None], "makes no progress"),
    "nobody knows how many": ([serving((None, None))], "their number is not known"),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "words"), STORIES.values(), ids=STORIES)
def test_story(looks: list[TargetSignals | None], words: str) -> None:
    """It ends by itself, and says how."""
    told = [
        restart.drain_progress(DrainSettings(deadline_seconds=3), look, s)
        for s, look in enumerate(looks)
    ]
    assert [over for over, _ in told] == [False] * (len(looks) - 1) + [True]
    assert all("waiting at most" in text for _, text in told[:-1])
    assert words in told[-1][1]


def test_switched_off() -> None:
    """Nobody is waited for, and it is said which key did that."""
    over, text = restart.drain_progress(DrainSettings(enabled=False), serving((5, 5)), 0.0)
    assert over
    assert "restart.drain.enabled" in text
