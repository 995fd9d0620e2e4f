"""What the live view says is wrong, first: incidents, evidence, restarts, stale GPU memory, the watcher itself."""

import re
import textwrap
import time
from dataclasses import replace

import pytest

from tests.cli.top_pictures import PAGE, page
from tests.cli.top_screen import (
    GIB,
    add,
    engine,
    first_look,
    names,
    part,
    reading,
    selected,
    watching,
)
from tests.told import made
from vllm_watch.board import restarts
from vllm_watch.board.health import StoreHealth
from vllm_watch.board.restarts import AttemptShown, Gate, RestartPlan, Waiting
from vllm_watch.cli.helpers.top import text
from vllm_watch.cli.helpers.top.story import restart_lines
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents.incident import Worst
from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.samples.target import WATCHER
from vllm_watch.signals.holders.records import STALE, UNKNOWN, GpuHolders, Holder, Judged
from vllm_watch.story.kinds import STORIES

NOON = 1_800_000_000.0


def incident(target, kind="engine_stalled", cause="hang", severity="page", *, label="0", t=NOON, **more):  # fmt: skip
    said = {
        "summary": f"{target} does nothing.", "restart_advised": False,
        "evidence": {
            "for": [{"name": "steps", "value": 0, "unit": "s", "expected": 0.5, "text": "no step for 20 s"}],
            "against": [{"name": "health", "value": 200, "unit": "", "expected": None, "text": "/health answers"}],
        },
    }  # fmt: skip
    return {
        "event": "opened", "t": t, "id": f"{kind}-{target}-{label}", "target": target, "engine": label,
        "kind": kind, "cause": cause, "severity": severity, **said, **more,
    }  # fmt: skip


async def test_what_pages_comes_first_and_the_rest_is_counted(server, board):
    """Each incident is a line with severity, engine, cause and words; what does not fit is counted."""
    for number in range(4):
        add(board, f"e{number}", engine("0", "serving"))
        board.tell(made(incident(f"e{number}", "overload", "demand", "ticket")))  # fmt: skip
    add(board, "sick", engine("0", "stalled"))
    often = {"times": 3, "within_seconds": 2460.0, "ill_seconds": 180.0, "earlier": "", "text": "recurring: 3rd time in 41 min"}  # fmt: skip
    board.tell(made(incident("sick", times=3, recurring=often), incident(WATCHER, "engine_down", "unreachable", label=None)))  # fmt: skip
    async with watching(server).run_test(size=(160, 20)) as pilot:
        await first_look(pilot)
        lines = part(pilot, "wrong").splitlines()
        of_sick, of_watcher = sorted(lines[:2], key=lambda line: "sick" not in line)
        assert of_sick.split()[:4] == ["critical", "sick/0", "Stalled:", "hang"]
        assert "sick does nothing." in of_sick
        assert often["text"] in of_sick
        assert "Many targets at once: unreachable" in of_watcher
        assert lines[2].split()[:2] == ["warning", "e0/0"]
        assert lines[3] == " and 3 warning more"
        assert (names(pilot)[0], selected(pilot)) == ("sick", "sick")


async def test_the_detail_says_what_to_do_before_why(server, board):
    """Of the worst: what it is, what to do, where that is written, the restart, then the evidence."""
    add(board, "sick", engine("0", "stalled", state_text="no step for 20 s"))
    board.tell(made(incident("sick", restart_advised=True)))
    step = STORIES["engine_stalled"].first_step_of("hang", advised=True)
    to_do = f"{step} Runbook on the page: /runbooks/engine_stalled"
    first, *more = textwrap.wrap(to_do, 110)
    async with watching(server).run_test(size=(120, 40)) as pilot:
        await first_look(pilot)
        assert part(pilot, "detail").splitlines()[1:-1] == [
            "sick: sick does nothing.",
            "  cost     No request gets a token.",
            f"  do       {first}",
            *(f"           {line}" for line in more),
            "  restart  A restart is advised: it usually fixes this.",
            "  evidence no step for 20 s (0 s, expected 0.5 s)",
            "  against  /health answers",
        ]
        await pilot.press("down")
        assert part(pilot, "detail").splitlines()[1] == "chat-0: 12 running, 3 waiting"


@pytest.mark.parametrize(("state", "begins"), [("stalled", "sick: not scraped for "), ("down", "sick: sick does nothing.")])  # fmt: skip
async def test_what_is_down_is_not_called_unscraped_as_well(server, board, state, begins):
    """It would read as trouble of the watcher; of an engine that answered, it says how old the news is."""
    add(board, "sick", engine("0", state, state_text="no step for 20 s"), t=time.time() - 600.0)
    board.tell(made(incident("sick")))
    async with watching(server).run_test(size=(120, 40)) as pilot:
        await first_look(pilot)
        assert part(pilot, "detail").splitlines()[1].startswith(begins)


async def test_an_engine_that_recovers_is_not_called_stalled(server, board):
    """An incident outlives its trouble for a while: that is said, for how long it lasted, and when it closes."""
    add(board, "back", engine("0", "serving"))
    now = time.time()
    stalled = incident("back", t=now - 90)
    over = {"event": "updated", "t": now - 25, "phase": "recovering", "began": now - 95, "ended": now - 25, "requests_lost": 24}  # fmt: skip
    board.tell(made(stalled, stalled | over))
    async with watching(server).run_test(size=(150, 40)) as pilot:
        await first_look(pilot)
        said = part(pilot, "detail").splitlines()
        was = r"Stalled: hang for 1m10, 24 requests lost"
        assert re.fullmatch(rf"back: Recovered 2\ds ago \({was}\)", said[1])
        assert said[2] == "  was      back does nothing."
        assert not any("first" in line or "Runbook" in line for line in said)
        assert part(pilot, "wrong").split()[:2] == ["recovering", "back/0"]


def gpu(index, uuid, *holders, lost=False):
    return GpuSample(
        index=index, uuid=uuid, name="H100", memory_total_bytes=80 * GIB, memory_used_bytes=60 * GIB,
        processes=holders, lost=lost,
    )  # fmt: skip


async def test_stale_memory_and_who_to_ask_come_first(server, board):
    """Of many GPUs the lost one and the one with memory that nobody uses are seen, with the way to get it back."""
    orphan = ProcessSample(pid=4711, name="VLLM::EngineCore", used_bytes=20 * GIB)
    used = ProcessSample(pid=99, name="python3", used_bytes=40 * GIB)
    gpus = [gpu(0, "a", used), gpu(1, "b", used, orphan), *(gpu(n, f"g{n}") for n in range(2, 7)), gpu(7, "h", lost=True)]  # fmt: skip
    stale = Judged(verdict=STALE, reason="orphaned_worker", remedy="vllm-watch gpus --reclaim 4711")
    judged = [
        GpuHolders(
            gpu=gpus[1], unaccounted_bytes=3 * GIB, unaccounted=Judged(verdict=STALE, reason="unaccounted", remedy="reset the GPU"),
            holders=(Holder(process=used, judged=Judged(verdict=UNKNOWN)), Holder(process=orphan, judged=stale)),
        )
    ]  # fmt: skip
    board.publish_gpus(reading(*gpus), judged)
    async with watching(server).run_test(size=(110, 24)) as pilot:
        await first_look(pilot)
        shown = part(pilot, "gpus").splitlines()
        assert "2 of 8: a taller terminal shows more" in shown[0]
        assert shown[1] == " 7 lost: fell off the bus"
        assert shown[2].startswith(" 1 H100")
        assert "23.0 GiB stale" in shown[2]
        assert shown[3] == (
            "   stale  VLLM::EngineCore 4711 20.0 GiB, orphaned worker: vllm-watch gpus --reclaim 4711"
        )
        assert shown[4] == "   stale  3.0 GiB held by no visible process: reset the GPU"
        assert shown[5] == "   python3 99 40.0 GiB"


EVIDENCE = {
    "/health failed 8 times in a row": (503, "", 200, " (503, expected 200)"),
    "54% of its usual throughput, with 16 requests waiting": (0.54, "ratio", 1.0, ""),
    "no scheduler step for 20 s (longest pause so far: 3 s)": (20.0, "s", 3.0, ""),
    "its state is odd": ("odd", "", "even", " (expected even)"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "case"), EVIDENCE.items(), ids=EVIDENCE)
async def test_evidence_says_each_number_once(server, board, text, case):
    """What its sentence leaves out stands in brackets: the value, and what it would be if all were well."""
    value, unit, expected, more = case
    add(board, "sick", engine("0", "stalled"))
    piece = {"name": "n", "value": value, "unit": unit, "expected": expected, "text": text}
    board.tell(made(incident("sick", evidence={"for": [piece], "against": []})))
    async with watching(server).run_test(size=(140, 30)) as pilot:
        await first_look(pilot)
        assert f"  evidence {text}{more}" in part(pilot, "detail").splitlines()


ATTEMPT = AttemptShown(
    id="a", state="helped", trigger="incident", reason="hang", actor="watcher", hook="command", text="",
    began_timestamp_seconds=NOON - 400, ended_timestamp_seconds=NOON - 300, payoff_ratio=0.4,
)  # fmt: skip
PLANS = {
    "restarts are off": (None, []),
    "nothing waits": (RestartPlan(mode="auto", hook="c"), []),
    "a person's yes is missing": (
        RestartPlan(mode="approve", hook="c", waiting=(Waiting(
            trigger="incident", reason="hang", asked_timestamp_seconds=NOON, incident_id="i-1", verdict="approve"),)),
        ["A restart for its incident waits for approval: vllm-watch approve i-1"],
    ),
    "gates refuse": (
        RestartPlan(mode="auto", hook="c", waiting=(Waiting(
            trigger="schedule", reason="weekly", asked_timestamp_seconds=NOON, verdict="wait", text="the budget is spent",
            until_timestamp_seconds=NOON, gates=(Gate(gate="budget", text="the budget is spent"), Gate(gate="peers", text="a peer is down."))),)),
        ["No restart on schedule now: the budget is spent. Next check 08:00Z.", "Also: a peer is down."],
    ),
    "one is under way": (
        RestartPlan(mode="auto", hook="c", under_way=AttemptShown(
            id="b", state="calling", trigger="manual", reason="r", actor="ann", hook="c", text="the hook is called",
            began_timestamp_seconds=NOON - 5)),
        ["A restart by ann has been under way for 5s: the hook is called."],
    ),
    "the last one helped": (
        RestartPlan(mode="auto", hook="c", last=ATTEMPT),
        ["The last restart, 5m00 ago, helped. It recovered 40% of baseline throughput."],
    ),
    "only a person may try again": (
        RestartPlan(mode="auto", hook="c", last=ATTEMPT, waiting=(Waiting(
            trigger="incident", reason="hang", asked_timestamp_seconds=NOON, verdict="refuse", text="the last restart did not help",
            gates=(Gate(gate="breaker", text="the last restart did not help"),)),)),
        ["No restart for its incident now: the last restart did not help."],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "told"), PLANS.values(), ids=PLANS)
def test_restarts_are_told_in_sentences(plan, told):
    """Why not now, who has to say yes, what is under way, and what the last one brought."""
    assert restart_lines(plan, NOON) == told


def test_a_dry_run_is_told_beside_its_own_incident():
    """Of another trouble of the same target it says nothing, nor of one that is well; how a restart ended is told anyway."""
    dry = replace(ATTEMPT, state="dry_run", incident_id="i-1")
    plan, helped = RestartPlan(mode="observe", hook="c", last=dry), replace(dry, state="helped")
    (said,) = restart_lines(plan, NOON, "i-1")
    assert said == "A restart was advised and left to you (observe mode)."
    assert restart_lines(plan, NOON) == [said]
    assert restart_lines(plan, NOON, "i-2") == restart_lines(plan, NOON, "") == []
    assert restart_lines(replace(plan, last=helped), NOON, "i-2") != []


async def test_the_watcher_says_what_it_cannot_do(server, board):
    """A hung driver, a full disk, a pause, a detector that is blind: in words, before what is fine."""
    board.call("nvml", "", "hung", 10.0, NOON)
    store = StoreHealth(folder="/var/lib/vllm-watch")
    store.count("full", "no space left", NOON)
    board.store = store
    board.restarts = restarts.RestartState(paused=restarts.Paused(actor="ann", reason="roll-out"))
    async with watching(server).run_test(size=(160, 24)) as pilot:
        await first_look(pilot)
        assert part(pilot, "watcher").startswith(
            "watcher nvml: hung · state is not saved (no space left) · restarts are paused by ann · 1 of 1 targets answer"
        )


def test_the_page_shows_what_the_terminal_does():
    """docs/top.md has its pictures from the lab; `python -m tests.cli.top_pictures` draws them anew."""
    assert PAGE.read_text() == page()


async def test_a_restart_that_waits_for_a_person_is_in_the_detail(server, board):
    """The line that the on-call engineer has to type stands on the screen."""
    add(board, "sick", engine("0", "stalled"))
    board.tell(made(incident("sick", restart_advised=True)))
    plan, (line,) = PLANS["a person's yes is missing"]
    board.show_restart("sick", plan, restarts.RestartCounts())
    async with watching(server).run_test(size=(120, 30)) as pilot:
        await first_look(pilot)
        assert f"  restart  {line}" in part(pilot, "detail").splitlines()
        assert part(pilot, "detail").endswith("restart mode approve")


async def test_the_detail_says_when_it_was_at_its_worst(server, board):
    """Where that is not what it says now; and when it is, by the clock, whether that was today or not."""
    add(board, "sick", engine("0", "collapsed"))
    (event,) = made(incident("sick", "throughput_collapse", "kv_leak"))
    then = Evidence(name="ratio", value=0.2, text="20% of its usual throughput, with 9 waiting")
    now = replace(then, value=0.5, text="50% of its usual throughput, with 3 waiting")
    told = replace(event.incident, evidence_for=(now,), updated_t=NOON + 60, worst=Worst(NOON, 5.0, then))  # fmt: skip
    board.tell([replace(event, incident=told)])
    async with watching(server).run_test(size=(120, 40)) as pilot:
        await first_look(pilot)
        lines = part(pilot, "detail").splitlines()
        assert f"  worst    {then.text}, at {text.clock(NOON, time.time())}" in lines
    assert text.clock(NOON, NOON + 60) == "08:00:00"
    assert text.clock(NOON, NOON + 86_400) == "Jan 15 08:00"
