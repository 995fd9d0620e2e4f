"""What changes a verdict after its detector: the log of an engine that is down or stuck, and our own restart."""

from dataclasses import replace

import pytest

from vllm_watch.detectors.base import CLEAR, FIRING, Verdict
from vllm_watch.incidents import verdicts
from vllm_watch.incidents.verdicts import NO_RESTART, OwnRestart, RestartNews
from vllm_watch.samples.observation import Call, Observation, StartFailure
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.watch.watch import Watch

FAILED = StartFailure(
    failure="kv_cache_too_small", deterministic=True, root_cause_line="ValueError: x",
    explanation="It does not fit.", sentence="the KV cache is too small",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["engine_down", "engine_stalled"])
def test_added_to_what_is_found(kind):
    """The class, the reason, the line and whether it would happen again; the cause stays the detector's."""
    (said,) = verdicts.with_log([Verdict(state=FIRING, kind=kind, cause="crash", summary="gone")], FAILED)  # fmt: skip
    assert said.cause == "crash"
    assert said.summary == "gone; its log reports: the KV cache is too small"
    assert (said.evidence_for[-1].name, said.evidence_for[-1].value) == ("engine_log", "kv_cache_too_small")  # fmt: skip
    assert said.evidence_for[-1].text == (
        "its log reports: It does not fit. The line: ValueError: x The next start will fail the same way."
    )


@pytest.mark.parametrize(
    ("verdict", "failed"),
    [
        (Verdict(state=CLEAR, kind="engine_down"), FAILED),
        (Verdict(state=FIRING, kind="throughput_collapse"), FAILED),
        (Verdict(state=FIRING, kind="engine_down"), None),
    ],
)
def test_not_added(verdict, failed):
    """To nothing that is well, to nothing that a log does not explain, and not without a log."""
    assert list(verdicts.with_log([verdict], failed)) == [verdict]


def observation(t, failed):
    return Observation(
        t=t, target="llama", monotonic_s=t, scrape=Call(outcome="refused", error="refused"), start_failure=failed,
    )  # fmt: skip


def test_a_start_that_never_succeeds_is_explained():
    """The whole pipeline: half an hour of refusals open an incident, and the log says why."""
    watch = Watch("llama")
    events = [each for n in range(400) for each in watch.observe(observation(1e9 + 5 * n, FAILED))]
    opened = next(each.incident for each in events if each.incident.kind == "engine_down")
    assert "its log reports: the KV cache is too small" in opened.summary
    assert opened.evidence_for[-1].value == "kv_cache_too_small"


OLD = TargetSignals(
    target="x", t=1.0, up=True, outcome="ok", state="stalled", state_text="",
    process_start_time=1.0, engines={"0": EngineSignals(engine="0", restarts=2)},
)  # fmt: skip
SILENT = replace(OLD, up=False)
NEW = replace(OLD, process_start_time=2.0)
COUNTED = replace(OLD, engines={"0": EngineSignals(engine="0", restarts=3)})


def verdict(kind, state="firing", severity="ticket"):
    return Verdict(state=state, kind=kind, cause="crash", severity=severity, summary="refused")


UNDER_WAY = RestartNews(under_way=True)


def states(own, signals, *verdicts):
    return [each.state for each in own.judged(signals, verdicts)]


def begun():
    own = OwnRestart()
    own.follow(UNDER_WAY, OLD)
    return own


def missing(why):
    """It was under way, and is given up as one that did not bring the server back."""
    own = begun()
    own.follow(RestartNews(missing=why), SILENT)
    return own


def test_nothing_is_changed_where_nothing_is_restarted():
    """Every verdict passes as it is."""
    given = [verdict("engine_down"), verdict("overload", "clear")]
    assert OwnRestart().judged(SILENT, given) == given


WHILE_IT_RESTARTS = {
    "it is gone": (SILENT, "engine_down", "unknown"),
    "it hangs while it ends": (OLD, "engine_stalled", "unknown"),
    "its queue is long": (OLD, "overload", "firing"),
    "a GPU fell off the bus": (SILENT, "gpu_fault", "firing"),
    "another process is down again": (NEW, "engine_down", "firing"),
    "another process hangs": (NEW, "engine_stalled", "firing"),
    "counters began anew": (COUNTED, "engine_stalled", "firing"),
}


@pytest.mark.parametrize(
    ("signals", "kind", "state"), WHILE_IT_RESTARTS.values(), ids=WHILE_IT_RESTARTS
)
def test_while_it_restarts(signals, kind, state):
    """What an end and a start look like is not known to be trouble; everything else is."""
    assert states(begun(), signals, verdict(kind)) == [state]


def test_what_is_over_is_over():
    """A clear verdict closes what was open, also meanwhile."""
    assert states(begun(), SILENT, verdict("engine_down", "clear")) == ["clear"]


def test_the_new_process_is_judged_from_its_first_look_on():
    """Once it has answered, its own silence is news, while the restart is still being verified."""
    own = begun()
    assert states(own, SILENT, verdict("engine_down")) == ["unknown"]
    assert states(own, NEW) == []
    own.follow(UNDER_WAY, NEW)
    assert states(own, replace(NEW, up=False), verdict("engine_down")) == ["firing"]


@pytest.mark.parametrize("state", ["unknown", "firing"])
def test_a_server_that_does_not_come_back_pages(state):
    """However harmless its silence looks: a drained server that nobody used was stopped by us."""
    own = missing("vllm-watch restarted it at noon, and it did not come back")
    (found,) = own.judged(SILENT, [verdict("engine_down", state)])
    assert (found.state, found.severity, found.restart_advised) == ("firing", "page", False)
    assert found.cause == ("crash" if state == "firing" else "unknown")
    assert found.summary == "vllm-watch restarted it at noon, and it did not come back; refused"
    assert found.evidence_for[0].name == "restart"


def test_it_pages_until_it_answers():
    """Then it is judged as any other, though the same is still said of the restart."""
    own = missing("it should be back")
    assert states(own, SILENT, verdict("engine_stalled", "unknown")) == ["unknown"]
    assert states(own, NEW, verdict("engine_down", "clear")) == ["clear"]
    own.follow(RestartNews(missing="it should be back"), NEW)
    assert states(own, SILENT, verdict("engine_down", "unknown")) == ["unknown"]


def test_a_restart_that_was_given_up_leaves_nothing():
    """The server was never ended."""
    own = begun()
    own.follow(NO_RESTART, OLD)
    assert states(own, SILENT, verdict("engine_down")) == ["firing"]
