"""Draining: what makes progress is waited for, to the deadline; what makes none is not."""

import asyncio
from dataclasses import replace

import pytest

from vllm_watch.restart import drain
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


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "POLL_SECONDS", 0.01)


WORK: dict[str, tuple[TargetSignals | None, float | None]] = {
    "all engines count": (serving((2, 1), (3, 0)), 6.0),
    "waiting unknown is none": (serving((2, None)), 2.0),
    "running unknown is unknown": (serving((2, 1), (None, 0)), None),
    "no engine is seen": (serving(), None),
    "it does not answer": (replace(SERVING, up=False), None),
    "no look yet": (None, None),
}


@pytest.mark.parametrize(("signals", "left"), WORK.values(), ids=WORK)
def test_work(signals: TargetSignals | None, left: float | None) -> None:
    """How many requests are in hand."""
    assert drain.work(signals) == left


STORIES: dict[str, tuple[list[TargetSignals | None], str, int]] = {
    # looks in turn (the last one stays), how it went, how often it was said that requests may finish
    "nothing in hand": ([serving((0, 0))], "no request was in hand after 0 s", 0),
    "they finish": (
        [serving((2, 1)), serving((1, 0)), serving((0, 0))], "no request was in hand", 2),
    "they do not finish": ([serving((5, 0))], "5 requests were still in hand", 1),
    "it hangs": ([replace(SERVING, state="stalled")], "the engine makes no progress", 0),
    "it is down": ([replace(SERVING, up=False, state="down")], "makes no progress", 0),
    "it is loading": ([replace(SERVING, state="starting")], "makes no progress", 0),
    "it comes to hang meanwhile": (
        [serving((2, 1)), replace(SERVING, state="stalled")], "makes no progress", 1),
    "it was never seen": ([None], "makes no progress", 0),
    "nobody knows how many": ([serving((None, None))], "their number is not known", 0),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "words", "told"), STORIES.values(), ids=STORIES)
async def test_story(looks: list[TargetSignals | None], words: str, told: int) -> None:
    """It ends by itself, and says how."""
    said: list[str] = []
    left = list(looks)
    async with asyncio.timeout(10):
        how = await drain.wait(
            DrainSettings(deadline_seconds=0.2),
            lambda: left.pop(0) if len(left) > 1 else left[0],
            said.append,
        )
    assert words in how
    assert len(said) >= told
    assert all("may finish, for" in each for each in said)


async def test_switched_off() -> None:
    """Nobody is waited for, and it is said which key did that."""
    how = await drain.wait(
        DrainSettings(enabled=False), lambda: serving((5, 5)), list[str]().append
    )
    assert "restart.drain.enabled" in how
