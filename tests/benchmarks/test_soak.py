"""Two hours of the soak hold, and every breach that it looks for is found when it is there."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak.books import Books, Call, Limits
from benchmarks.soak.soak import RSS_MB_MAX
from benchmarks.soak.truth import AFTER_SECONDS, Truth
from vllm_watch.state.attempt import Attempt

ROOT = Path(__file__).parents[2]
SEED, HOURS = 36, 2
EVENT = {
    "id": "i1", "target": "a", "engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page",
    "summary": "no step for 40 s", "restart_advised": True, "event": "opened",
}  # fmt: skip
OPEN = 'vllm_watch_incident_open{target="a",engine="0",kind="engine_stalled",cause="hang",severity="page"}'
TOTAL = 'vllm_watch_incidents_total{target="a",kind="engine_stalled"}'


def test_two_hours_hold(tmp_path: Path) -> None:
    """A day in small: engines fall ill, the watcher restarts them and is restarted itself, and nothing is broken."""
    words = f"--seeds 1 --first {SEED} --hours {HOURS} --jobs 1 --keep {tmp_path}".split()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.iterdir()
    result = json.loads(kept.read_text())
    assert result["broken"] == []
    assert result["runs"] >= 2, "the watcher was restarted"
    assert result["pages"] >= 3
    assert 50 < result["rss_mb"] < RSS_MB_MAX, "beside an engine that means harm"
    assert result["calls"] >= 2
    assert result["troubles"] >= 4


def books() -> Books:
    return Books(Truth(), {"g": Limits(cooldown_s=900.0, per_hour=2, per_day=3)})


Step = Callable[[Books], None]


def ill(**how: Any) -> Step:
    """The engine hangs from the beginning on."""
    return lambda of: of.truth.begin("hang", "a", 0.0, **how) and None


def well(t: float) -> Step:
    return lambda of: setattr(of.truth.troubles[0], "end_t", t)


def told(t: float, *events: Mapping[str, object]) -> Step:
    """The watcher tells of it: EVENT with these changes, each an event."""
    return lambda of: of.told([EVENT | dict(each) for each in events or ({},)], t)


def looked(count: int, t: float = 10.0, seconds: float = 10.0) -> Step:
    def look(of: Books) -> None:
        for _ in range(count):
            of.looked("a", t, seconds)

    return look


def call(t: float, *, run: int = 0, attempt: str = "", incident: str = "", **how: bool) -> Step:
    """A hook is called."""
    made = Call(t, run, attempt or f"at {t}", "a", "g", "incident", incident or f"of {t}")
    return lambda of: of.called(made, **{"paused": False, "forbidden": False} | how)


def kept(**incidents: Mapping[str, object]) -> Step:
    """What is in the state file."""
    return lambda of: of.kept(incidents, (), 6.0)


NO_RESTART = {"restart_advised": False}
TICKET = {"severity": "ticket", **NO_RESTART}
BREACHES: dict[str, tuple[str, tuple[Step, ...]]] = {
    "a page of a healthy engine": ("is healthy and pages", (told(5.0, NO_RESTART),)),
    "a page long after": ("is healthy and pages", (ill(), well(10.0), told(11.0 + AFTER_SECONDS, NO_RESTART))),
    "a ticket that becomes a page": ("is healthy and pages", (told(5.0, TICKET), told(6.0, {"event": "updated", **NO_RESTART}))),
    "advice where no restart cures": ("cures nothing is advised", (ill(restarts=False), told(5.0))),
    "opened twice": ("was opened twice", (ill(), told(5.0, {}, {}))),
    "a dead engine missed": ("hang is not told after 130 s", (ill(within_s=120.0), looked(13))),
    # A ticket for another matter is none for this.
    "not even a ticket": ("hang is not even a ticket after 130 s", (ill(noted_s=120.0, within_s=300.0), told(5.0, {"kind": "stale_vram", **TICKET}), looked(14))),
    "a ticket that never becomes a page": ("hang is not told after 310 s", (ill(noted_s=120.0, within_s=300.0), told(5.0, {"kind": "engine_down", **TICKET}), looked(31))),
    "a restart of a healthy engine": ("is healthy and is restarted", (call(5.0),)),
    # Its hang is over for the truth by less than a restart takes to be called off, but its last look saw it serve.
    "a restart of one that made tokens": ("its last look saw tokens move", (ill(), told(5.0), lambda of: of.tokens_moved.update(a=True), call(10.0, incident="i1"))),
    "a restart while paused": ("while restarts are paused", (ill(), call(5.0, paused=True))),
    "a restart in a forbidden hour": ("in a window that forbids", (ill(), call(5.0, forbidden=True))),
    "the cooldown": ("within its cooldown", (ill(), call(0.0), call(890.0))),
    "the budget of the hour": ("3 times in a hour of 2", (ill(), *map(call, (0.0, 1000.0, 2000.0)))),
    "the budget of the day": ("4 times in a day of 3", (ill(), *map(call, (0.0, 10_000.0, 20_000.0, 30_000.0)))),
    "two restarts for one incident": ("gets a second restart", (ill(), call(0.0, incident="i1"), call(10_000.0, incident="i1"))),
    "called again by the next run": ("by another run of the watcher", (ill(), call(0.0, attempt="x", incident="i1"), call(5.0, attempt="x", incident="i1", run=1))),
    "an incident lost": ("was told and is not kept", (ill(), told(5.0), kept())),
    "an end lost": ("was told as ended and is kept as opened", (ill(), told(5.0, {}, {"event": "resolved"}), kept(i1=EVENT))),
    "an attempt lost": ("is not in the journal", (ill(), call(5.0), kept())),
}  # fmt: skip


@pytest.mark.parametrize(("words", "steps"), BREACHES.values(), ids=BREACHES)
def test_breach_is_found(words: str, steps: tuple[Step, ...]) -> None:
    """What must never happen is said once, in words that name it."""
    of = books()
    for step in steps:
        step(of)
    assert len(of.broken) == 1, of.broken
    assert words in of.broken[0]


def test_what_may_be_is_no_breach() -> None:
    """An engine that is ill pages in time and is restarted as the budgets allow; a person may ask for more."""
    of = books()
    steps = (
        ill(within_s=120.0), looked(1, 5.0), told(10.0), looked(1, 500.0, 490.0), call(20.0, attempt="x", incident="i1"),
        call(25.0, attempt="x", incident="i1"),  # the first call surely did nothing
        lambda of: of.resets.append(1000.0), call(2000.0, incident="i1"), well(3000.0),
        told(3100.0, {"event": "resolved", **NO_RESTART}),
    )  # fmt: skip
    for step in steps:
        step(of)
    assert of.broken == []


def test_metrics_are_held_against_the_records() -> None:
    """Too many, too few and none at all are told; what ended before this run of the watcher does not count."""
    of = books()
    ill()(of)
    told(5.0)(of)
    attempts = [
        Attempt(id=name, target="a", group="g", trigger="incident", hook="h", reason="", actor="", state=state, began_t=1.0)
        for name, state in (("x", "helped"), ("y", "failed"), ("z", "verifying"))
    ]  # fmt: skip
    of.ended_before = {"y": "failed"}
    helped = 'vllm_watch_restarts_total{target="a",trigger="incident",outcome="helped"}'
    right = {OPEN: 1.0, TOTAL: 1.0, helped: 1.0}
    assert of.exported(right, attempts) == []
    assert len(of.exported(right | {TOTAL: 2.0}, attempts)) == 1
    assert len(of.exported({OPEN: 1.0, TOTAL: 1.0}, attempts)) == 1
    failed = 'vllm_watch_restarts_total{target="a",trigger="incident",outcome="failed"}'
    assert len(of.exported(right | {failed: 1.0}, attempts)) == 1
