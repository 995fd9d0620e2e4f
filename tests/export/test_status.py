"""The JSON of /api/v1/status: the records' own fields, nothing secret, nothing that JSON cannot say."""

import json
from dataclasses import replace

import pytest

from tests.export.demo_board import event
from tests.export.page_states import STATES
from tests.export.small_board import DOWN, ENGINE, SERVING, T, samples_of, small_board
from tests.told import made, told
from vllm_watch.board.board import Board
from vllm_watch.export.status import Status, public_arguments
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import Sight
from vllm_watch.story.base import CURES
from vllm_watch.story.kinds import KINDS, STORIES


def status_of(board: Board, not_ready: str | None = None) -> dict:
    return json.loads(Status(board).whole(not_ready))


def test_open_incidents_are_said_with_their_target():
    """What pages first, each with its evidence; those that ended are not."""
    board = small_board()
    ended = [told(id="ended"), told("resolved", id="ended")]
    board.tell(made(told(id="ticket", severity="ticket"), told(), *ended))
    chat, gone = status_of(board)["targets"]
    assert [incident["id"] for incident in chat["incidents"]] == ["engine_stalled-1", "ticket"]
    assert gone["incidents"] == []
    assert chat["incidents"][0] == {
        "id": "engine_stalled-1", "target": "chat", "engine": "0", "state": "open", "kind": "engine_stalled",
        "cause": "hang", "family": "", "severity": "page", "summary": "No step for 42 s.", "restart_advised": False, "related": [],
        "concerns": [], "restart_targets": [],
        "evidence": told()["evidence"], "opened_timestamp_seconds": T, "updated_timestamp_seconds": T,
        "resolved_timestamp_seconds": None, "resolution": None, "began_timestamp_seconds": T,
        "ended_timestamp_seconds": None, "closes_timestamp_seconds": None, "phase": "active", "meanwhile": "", "stacks": "", "times": 1, "requests_lost": None, "recurring": None,
        "worst": None,
        "title": "Stalled: hang", "says": "is stalled: hang", "first_step": STORIES["engine_stalled"].first_step_of("hang", advised=False),
        "cost": "No request gets a token.",
        "restart_outcome": STORIES["engine_stalled"].restart, "severity_reason": "", "runbook": "docs/detectors/engine_stalled.md",
        "runbook_url": "/runbooks/engine_stalled",
    }  # fmt: skip


def test_the_words_are_said_once():
    """Of every kind of incident, and of the steps of restarts."""
    board = small_board()
    many = told(target="vllm-watch", kind="engine_down", cause="unreachable")
    board.tell(made(told(id="advised", restart_advised=True), many))
    said = status_of(board)
    assert said["story"].keys() == set(KINDS)
    assert said["story"]["engine_down"]["causes"]["crash"]["title"] == "crash"
    assert said["story"]["stale_vram"]["of_gpus"] is True
    assert said["restart_steps"]["helped"]["ended"] == "helped"
    assert said["targets"][0]["incidents"][0]["restart_outcome"] == CURES
    assert said["targets"][0]["incidents"][0]["severity_reason"] == ""
    for base in ("", "https://watch.example/gpu-7"):
        board.external_url = base or None
        own = json.loads(Status(board).incidents("vllm-watch"))["incidents"][0]
        assert own["title"] == "Many targets at once: unreachable"
        assert own["runbook"] == "docs/detectors/engine_down.md#many-at-once"
        assert own["runbook_url"] == f"{base}/runbooks/engine_down#many-at-once"


def test_what_json_cannot_say_is_null():
    """A browser's JSON.parse fails on NaN."""
    board = small_board()
    odd = replace(ENGINE, requests_running=float("nan"), requests_waiting=float("inf"))
    board.publish(replace(SERVING, engines={"0": odd}))
    engine = status_of(board)["targets"][0]["signals"]["engines"]["0"]
    assert (engine["requests_running"], engine["requests_waiting"]) == (None, None)


def test_kept_text_follows_every_change():
    """What is kept per target is made anew when anything of it changes, also when it comes back under its name."""
    board = small_board()
    status = Status(board)
    before = status.target("gone")
    assert status.target("gone") is before
    board.call("health", "gone", "ok", 0.1, T)
    assert "health" in json.loads(status.target("gone") or "")["sources"]
    board.remove_target("gone")
    assert status.target("gone") is None
    board.add_target(Target(name="gone", url="http://10.0.0.3:8000"), 5.0)
    assert json.loads(status.target("gone") or "")["url"] == "http://10.0.0.3:8000"
    board.tell(made(told(target="gone")))
    assert json.loads(status.target("gone") or "")["incidents"][0]["cause"] == "hang"
    board.tell(made(told("updated", target="gone", cause="unknown")))
    assert json.loads(status.target("gone") or "")["incidents"][0]["cause"] == "unknown"
    board.tell(made(told("resolved", target="gone")))
    assert json.loads(status.target("gone") or "")["incidents"] == []
    board.publish(replace(DOWN, state="starting"))
    assert json.loads(status.target("gone") or "")["state"] == "starting"


def test_holders_are_the_largest_first_and_without_secrets():
    """Their command lines are shown to whoever opens the page."""
    processes = status_of(small_board())["gpus"]["gpus"][0]["processes"]
    assert [process["pid"] for process in processes] == [41210, 7]
    assert processes[0]["cmdline"] == ["vllm", "serve", "--api-key", "[hidden]"]
    assert processes[1]["used_bytes"] is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, None),
        ((), []),
        (("vllm", "serve", "m", "--port", "8000"), ["vllm", "serve", "m", "--port", "8000"]),
        (("--api-key", "a", "b", "--n", "1"), ["--api-key", "[hidden]", "[hidden]", "--n", "1"]),
        (("HF_TOKEN=hf_1", "python"), ["HF_TOKEN=[hidden]", "python"]),
        (("--hf-token", "hf_1"), ["--hf-token", "[hidden]"]),
        (("--max-num-batched-tokens", "8192"), ["--max-num-batched-tokens", "8192"]),
        (("x" * 300,), ["x" * 256]),
        (("a",) * 100, ["a"] * 64),
    ],
)
def test_arguments_that_are_shown(given, shown):
    """Values of options named like secrets are hidden, the rest is bounded."""
    assert public_arguments(given) == shown


def test_an_incident_keeps_its_charts_as_they_stood_when_it_ended():
    """Those of its engine; of what is open they go on; of what nobody charted, or that is long past, there are none."""
    board = small_board()
    status = Status(board)

    def charts(name):
        return json.loads(status.incident_history(name) or "null")

    board.tell(made(told(id="a", engine="0"), told(id="b", engine="7")))
    board.publish(replace(SERVING, t=T + 5))
    assert charts("a")["engines"]["0"]["t"] == [T, T + 5]
    over = {"t": T + 30}
    board.tell(
        made(
            told("resolved", id="a", engine="0", **over),
            told("resolved", id="b", engine="7", **over),
        )
    )
    before = charts("a")
    board.publish(replace(SERVING, t=T + 60))
    board.remove_target("chat")
    assert charts("a") == before
    assert (before["t"], before["seconds"], list(before["engines"])) == (T + 30, 600.0, ["0"])
    assert charts("b")["engines"] == {}
    assert charts("nobody") is None


@pytest.mark.parametrize(
    ("state", "outcome", "step"),
    [
        ("restart under way", "A restart is under way.", "Nothing to do yet"),
        ("restart did not help", "vllm-watch will not restart it again: the last one did not help.", "Do not restart it again: "),
    ],
)  # fmt: skip
def test_a_restart_that_runs_or_failed_replaces_the_advice_to_restart(state, outcome, step):
    (one,) = [
        each for target in status_of(STATES[state]())["targets"] for each in target["incidents"]
    ]
    assert one["restart_outcome"] == outcome
    assert one["first_step"].startswith(step)


def test_a_restart_does_not_hide_the_first_step_of_a_gpu_fault():
    """It outlasts the restart; the incident that is restarted for waits."""
    board = STATES["restart under way"]()
    fault = {"engine": None, "kind": "gpu_fault", "cause": "gpu_lost", "severity": "page", "summary": "GPU 3 is lost"}  # fmt: skip
    board.tell(made(event("chat-1", fault, T)))
    steps = {
        each["kind"]: each["first_step"]
        for target in status_of(board)["targets"]
        for each in target["incidents"]
    }
    assert steps["gpu_fault"] == STORIES["gpu_fault"].first_step_of("gpu_lost")
    assert steps["throughput_collapse"].startswith("Nothing to do yet")


SIGHTS = {
    "overload": Sight("sees", ""),
    "engine_stalled": Sight("blind", "no counter of its work"),
    "throughput_collapse": Sight("partly", "no view of the GPUs"),
    "host_memory_growth": Sight("unknown", "too few looks yet"),
}


def seeing_board() -> Board:
    board = small_board()
    board.publish(replace(SERVING, detectors=SIGHTS))
    return board


def test_metrics_say_who_is_blind():
    """0 and 1 for those that are known, nothing for the rest."""
    said = [line for line in samples_of(seeing_board()) if line.startswith("vllm_watch_detector_")]
    assert said == [
        'vllm_watch_detector_blind{target="chat",detector="engine_stalled"} 1',
        'vllm_watch_detector_blind{target="chat",detector="overload"} 0',
        'vllm_watch_detector_blind{target="chat",detector="throughput_collapse"} 0',
        'vllm_watch_detector_partly_blind{target="chat",detector="engine_stalled"} 0',
        'vllm_watch_detector_partly_blind{target="chat",detector="overload"} 0',
        'vllm_watch_detector_partly_blind{target="chat",detector="throughput_collapse"} 1',
    ]
