"""Verification: a table of what can follow a restart, and what is said of it."""

import json
from dataclasses import replace

import pytest

from tests.restart.world import state_before
from vllm_watch.restart import verify
from vllm_watch.restart.verify import Process, Verification
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import VerifySettings
from vllm_watch.signals.records import EngineSignals, TargetSignals

SETTINGS = VerifySettings(start_seconds=1200, settle_seconds=300)
OLD, NEW = 1000.0, 2000.0  # start times of the processes
FRESH = EngineSignals(engine="0", state="serving", throughput_ratio=1.0)
UP = TargetSignals(
    target="chat-0", t=0.0, up=True, outcome="ok", state="serving", state_text="2 requests run",
    health_status=200, process_start_time=OLD, engines={"0": FRESH},
)  # fmt: skip
STUCK = replace(UP, state="stalled", state_text="no step for 90 s")


def up(start=NEW, ratio=1.0, **more):
    engine = replace(FRESH, throughput_ratio=ratio)
    return replace(UP, process_start_time=start, engines={"0": engine}, **more)


DOWN = replace(UP, up=False, outcome="refused", state="down", state_text="refused", engines={})
LOADING = up(state="starting", state_text="it loads")
UNWELL = up(health_status=503)
TWO = replace(up(), engines={"0": FRESH, "1": replace(FRESH, engine="1", throughput_ratio=0.5)})
STALLED = up(state="stalled", state_text="no step for 40 s", ratio=None)

Look = tuple[float, TargetSignals, tuple[str, ...]]
STORIES: dict[str, tuple[list[Look], str | None, str]] = {
    "helped": (
        [(5, DOWN, ()), (300, DOWN, ()), (400, LOADING, ()), (410, up(), ())],
        verify.HELPED, "100% of a fresh engine's throughput"),
    "nothing was restarted": (
        [(5, up(OLD), ()), (119, up(OLD), ()), (120, up(OLD), ())],
        verify.DID_NOT_HELP, "the old process still serves"),
    "the old one is given time to end": ([(119, up(OLD), ())], None, "still answers"),
    "it does not come back": (
        [(5, DOWN, ()), (1199, DOWN, ()), (1200, DOWN, ())],
        verify.DID_NOT_HELP, "nothing answers 1200 s"),
    "a long load is waited for": ([(5, DOWN, ()), (1199, DOWN, ())], None, "1199 of at most 1200"),
    "it answers and never serves": (
        [(300, UNWELL, ()), (1200, UNWELL, ())], verify.DID_NOT_HELP, "does not serve"),
    "the same trouble again": (
        [(300, STALLED, ("engine_stalled",)), (600, STALLED, ("engine_stalled",))],
        verify.DID_NOT_HELP, "again: engine_stalled"),
    "the trouble's last moments are waited out": (
        [(300, up(), ("engine_stalled",)), (320, up(), ())], verify.HELPED, "100%"),
    "the trouble is still told, though it does well": ([(300, up(), ("engine_stalled",))], None, "has served for 0 s"),
    "the trouble is told to the end, though it does well": (
        [(300, up(), ("engine_stalled",)), (600, up(), ("engine_stalled",))],
        verify.DID_NOT_HELP, "again: engine_stalled"),
    "the trouble is told for long, and then no more": (
        [(300, up(), ("engine_stalled",)), (600, up(), ())], verify.HELPED, "nothing is wrong with it"),
    "slow as before": (
        [(300, up(ratio=0.5), ()), (600, up(ratio=0.5), ())],
        verify.DID_NOT_HELP, "only 50%"),
    "slow at first, cold caches": (
        [(300, up(ratio=0.5), ()), (599, up(ratio=0.9), ())], verify.HELPED, "90%"),
    "no traffic": (
        [(300, up(ratio=None), ()), (600, up(ratio=None), ())],
        verify.HELPED, "too little traffic"),
    "too early to tell": ([(300, up(ratio=None), ())], None, "has served for 0 s"),
    "it falls over while settling, and gets up": (
        [(300, up(ratio=None), ()), (500, DOWN, ()), (700, up(ratio=None), ()), (999, up(ratio=None), ())],
        None, "has served for 299 s"),
    "it falls over after the time of a start": (
        [(1100, up(ratio=None), ()), (1201, DOWN, ())], verify.DID_NOT_HELP, "nothing answers 1201 s"),
    "nobody asks for its health": ([(300, up(health_status=None), ())], verify.HELPED, "100%"),
    "how it is is not known": ([(300, up(state="unknown"), ())], None, "does not serve yet"),
    "how it is never gets known": (
        [(300, up(state="unknown"), ()), (1200, up(state="unknown"), ())], verify.DID_NOT_HELP, "does not serve"),
    "another trouble than before": ([(300, up(), ("overload",))], verify.HELPED, "100%"),
    "fast, and ill already": ([(300, up(state="collapsed"), ())], None, "has served for 0 s"),
    "fast, and ill to the end": (
        [(300, up(state="failing", state_text="it answers with 500"), ()),
         (600, up(state="failing", state_text="it answers with 500"), ())],
        verify.DID_NOT_HELP, "again: it answers with 500"),
    "one engine of two is slow": (
        [(300, TWO, ()), (600, TWO, ())], verify.DID_NOT_HELP, "only 50%"),
    "as fast as a fresh one may be slow": ([(300, up(ratio=0.8), ())], verify.HELPED, "80%"),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "outcome", "words"), STORIES.values(), ids=STORIES)
def test_story(looks, outcome, words):
    started = state_before(STUCK, ("engine_stalled",))
    verification = Verification(started, SETTINGS)
    for since_s, signals, kinds in looks:
        progress = verification.update(since_s, signals, kinds)

    assert progress.outcome == outcome
    assert words in progress.text


def test_start_takes_what_its_starts_took():
    """Twice the longest start that was seen replaces the default, in both directions; but not a few seconds."""
    least_s = verify.STARTUP_SECONDS_MIN
    for longest_s, default_s, limit_s in (
        (150.0, 1200, 300.0), (900.0, 1200, 1800.0), (36.0, 1200, least_s), (36.0, 100, 100.0),
    ):  # fmt: skip
        started = state_before(STUCK, ())
        settings = VerifySettings(start_seconds=default_s, settle_seconds=300)
        verification = Verification(started, settings, longest_s)
        assert verification.update(limit_s - 1, DOWN, ()).outcome is None
        assert verification.update(limit_s, DOWN, ()).outcome == verify.DID_NOT_HELP


def test_counters_that_began_anew_tell_a_new_process_where_its_start_time_is_unknown():
    """Old versions do not export when their process started."""
    blind = replace(STUCK, process_start_time=None)
    anew = replace(up(), process_start_time=None, engines={"0": replace(FRESH, restarts=1)})
    verification = Verification(state_before(blind, ()), SETTINGS)
    assert verification.update(5, blind, ()).text == "the old process still answers"
    assert verification.update(60, anew, ()).outcome == verify.HELPED


def test_server_that_stops_showing_its_start_time_is_not_a_new_process_for_that():
    """Known before, unknown after, or the other way round: then the counters tell."""
    blind = replace(up(OLD), process_start_time=None)
    for was, now in ((STUCK, blind), (replace(STUCK, process_start_time=None), up(OLD))):
        verification = Verification(state_before(was, ()), SETTINGS)
        assert verification.update(5, now, ()).text == "the old process still answers"
        assert verification.update(10, replace(now, engines={}), ()).outcome is None
        anew = replace(now, engines={"0": replace(FRESH, restarts=1)})
        assert verification.update(60, anew, ()).outcome == verify.HELPED


PAYOFFS: dict[str, tuple[TargetSignals, float | None, float | None]] = {
    "from nothing to all": (STUCK, 1.0, 1.0),
    "from half to nearly all": (replace(up(OLD, 0.5), state="collapsed"), 0.9, 0.4),
    "faster than fresh is fresh": (replace(up(OLD, 0.5), state="collapsed"), 1.3, 0.5),
    "unknown before": (replace(up(OLD, None), state="collapsed"), 1.0, None),
    "from a server that did not answer": (replace(DOWN, engines={"0": FRESH}), 1.0, 1.0),
    "from one that did not answer, nobody knows why": (
        replace(DOWN, state="unknown", engines={"0": FRESH}), 1.0, 1.0),
    "from one that was down by its own word": (up(OLD, 0.7, state="down"), 1.0, 1.0),
    "from better than fresh": (up(OLD, 1.2), 0.9, -0.1),
}  # fmt: skip


@pytest.mark.parametrize(("was", "ratio", "payoff"), PAYOFFS.values(), ids=PAYOFFS)
def test_payoff(was, ratio, payoff):
    verification = Verification(state_before(was, ()), SETTINGS)
    progress = verification.update(400, up(ratio=ratio), ())
    assert progress.payoff_ratio == (None if payoff is None else pytest.approx(payoff))


def test_what_a_restart_cost():
    verification = Verification(state_before(up(OLD, 0.7), ()), SETTINGS)
    assert verification.update(400, up(ratio=0.5), ()).outcome is None
    progress = verification.update(700, up(ratio=0.5), ())
    assert progress.outcome == verify.DID_NOT_HELP
    assert progress.payoff_ratio == pytest.approx(-0.2)


def test_what_was_so_before_outlives_the_watcher():
    """As the journal keeps it; of a server that never answered nothing is known, and whatever answers is new."""
    was = state_before(STUCK, ("engine_stalled", "overload"))
    assert verify.Before.from_json(json.loads(json.dumps(was.to_json()))) == was
    assert was.kinds == {"engine_stalled", "overload"}
    unseen = state_before(None, ("engine_down",))
    assert unseen == verify.Before(process=Process())
    assert Verification(unseen, SETTINGS).update(5, up(), ()).outcome == verify.HELPED


@pytest.mark.parametrize(("pod", "named"), [("llama-0", "llms/llama-0"), ("", "")])
def test_the_state_before_names_the_pod(pod, named):
    """It names a pod with its namespace, and of a server without one nothing."""
    target = Target(name="chat-0", url="http://10.0.0.1:8000", namespace="llms", pod=pod)
    process = verify.before(UP, (), Process.of(target, UP, (9, 7))).process
    assert (process.address, process.pod, process.pids) == ("10.0.0.1:8000", named, (7, 9))


def test_what_the_last_release_wrote_is_read():
    """A watcher that is upgraded while it verifies goes on."""
    kept = {
        "process_start_time": 7.0,
        "restarts": 2,
        "throughput_ratio": 0.3,
        "kinds": ["overload"],
    }
    process = Process(start_time=7.0, restarts=2)
    known = verify.Before(process=process, throughput_ratio=0.3, kinds=frozenset({"overload"}))
    assert verify.Before.from_json(kept) == known
