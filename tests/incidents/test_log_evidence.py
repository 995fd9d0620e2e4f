"""What a log says is told with the incident of the engine that is down or stuck, and with no other."""

import json

import pytest

from vllm_watch.board.board import Board
from vllm_watch.detectors.base import CLEAR, FIRING, Verdict
from vllm_watch.export.status import Status
from vllm_watch.incidents import verdicts
from vllm_watch.samples.engine_log import StartFailure
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.samples.target import Target
from vllm_watch.sources import trace_line
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


@pytest.mark.parametrize("failed", [FAILED, None])
def test_in_the_status_and_in_a_recording(failed):
    """The published form, or null; a replay sees what was seen live."""
    watch, board = Watch("llama"), Board(window_seconds=60.0)
    board.add_target(Target(name="llama", url="http://h:1", group="llama"), 5.0)
    watch.observe(observation(1e9, failed))
    assert watch.signals is not None
    board.publish(watch.signals)
    said = json.loads(Status(board).target("llama") or "{}")["signals"]["start_failure"]
    assert said == (failed and {
        "class": "kv_cache_too_small", "deterministic": True,
        "root_cause_line": "ValueError: x", "explanation": "It does not fit.",
    })  # fmt: skip
    line = trace_line.to_line(observation(1e9, failed), None)
    assert trace_line.from_line(line).start_failure == failed
