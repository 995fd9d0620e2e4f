"""A log without an error whose engine does nothing."""

import pytest

from tests.diagnosis.whole_log import diagnose
from vllm_watch.diagnosis import stillness

READY = "(APIServer pid=1) INFO:     Application startup complete.\n"
PROBE = '(APIServer pid=1) INFO:     10.0.0.2:5512 - "GET /health HTTP/1.1" 200 OK\n'
ANSWERED = '(APIServer pid=1) INFO:     10.0.0.9:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
STARTED = "(EngineCore pid=2) INFO 03-07 10:00:20 [core.py:112] Initializing a V1 LLM engine (v0.17.0) with config: model='/m'\n"
LOADED = "(Worker_TP0 pid=5) INFO 03-07 10:01:44 [gpu_model_runner.py:4259] Model loading took 9.8 GiB memory and 65.2 seconds\n"
ENCODER = "(Worker_TP0 pid=5) INFO 03-07 10:01:45 [gpu_model_runner.py:5196] Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items.\n"
STALL = "(EngineCore pid=2) INFO 03-07 10:0{}:45 [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds.\n"
WAITS = "(APIServer pid=1) INFO 03-07 10:{}:00 [core_client.py:1] Waiting for 1 local, 0 remote core engine proc(s) to start.\n"
NCCL = "(Worker_TP0 pid=5) INFO 03-07 10:00:30 [pynccl.py:111] vLLM is using nccl==2.27.5\n"
STOP = "(APIServer pid=1) INFO 03-07 10:05:00 [launcher.py:254] [shutdown] API server: shutdown triggered\n"
LATER = "(APIServer pid=1) INFO 05-17 10:{}:00 [x.py:1] Route: /health\n"

DIED = "ERROR 01-16 17:16:49 [core_client.py:605] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"


def report(at: str, prompt: float, generation: float, running: int, waiting: int = 0) -> str:
    """A line about throughput."""
    return f"(APIServer pid=1) INFO 05-17 {at} [loggers.py:259] Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {generation} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: 12.0%\n"


WORKS = READY + report("10:00:00", 300.0, 80.0, 4)
HUNG = WORKS + report("10:00:10", 0.0, 0.0, 4)  # vllm #42897: then silence
STORIES = {
    "silence while requests run": (HUNG + PROBE * 20 + LATER.format("09"), "engine_hang"),
    "probes alone have no times": (WORKS + PROBE * 3 + HUNG[len(WORKS):] + PROBE * 40, "engine_hang"),
    "requests that are accepted and not answered": (WORKS + PROBE * 3 + HUNG[len(WORKS):] + ANSWERED + PROBE * 40, "engine_hang"),
    "reports of nothing": (WORKS + "".join(report(f"10:0{n // 6}:{n % 6}5", 0.0, 0.0, 1) for n in range(15)), "engine_hang"),
    "nothing is scheduled": (WORKS + "".join(report(f"10:0{n // 6}:{n % 6}5", 0.0, 0.0, 0, 3) for n in range(15)), "engine_hang"),
    "half a minute in which none runs": (WORKS + "".join(report(f"10:00:{n}0", 0.0, 0.0, 0, 3) for n in range(1, 5)), "engine_hang"),
    "half a minute of a long prompt": (WORKS + "".join(report(f"10:00:{n}0", 0.0, 0.0, 1, 3) for n in range(1, 5)), "unknown"),
    "idle": (WORKS + report("10:00:10", 0.0, 1.0, 0) + PROBE * 400 + LATER.format("59"), "healthy"),
    "slow": ((report("22:54:32", 0.0, 5.4, 1, 14) + PROBE * 2) * 5 + PROBE * 8, "healthy"),  # llm-scaler #391
    "a queue that stands still": (WORKS + "".join(report(f"10:{n}:00", 0.0, 5.4, 1, 14) for n in range(10, 60, 10)), "unknown"),
    "a queue of some minutes": (WORKS + "".join(report(f"10:0{n}:00", 0.0, 5.4, 1, 14) for n in range(2, 9)), "healthy"),
    "a queue that moves": (WORKS + "".join(report(f"10:{n}:00", float(n == 30), 5.4, 1, 14) for n in range(25, 40)), "healthy"),
    "a queue beside free room": (READY + report("10:00:00", 900.0, 80.0, 29, 92) + "".join(report(f"10:0{n}:00", 900.0, 0.5, 4, 480) for n in (1, 2)), "unknown"),
    "a queue of a server of few places": (READY + report("10:00:00", 900.0, 80.0, 4, 92) + "".join(report(f"10:0{n}:00", 900.0, 8.0, 4, 480) for n in (1, 2)), "healthy"),
    "a script that ends after its answers": ("Processed prompts: 100%|##| 4/4 [00:00<00:00]\n" + DIED, "benign_warning_noise"),
    "a script whose second call dies": ("Processed prompts: 100%|##| 4/4 [00:00<00:00]\nAdding requests:   0%|  | 0/4 [00:00<?]\n" + DIED, "engine_dead"),
    "the log ends while it works": (WORKS, "healthy"),
    "one report of nothing": (HUNG, "unknown"),
    "it was asked to stop": (HUNG + STOP + LATER.format("09"), "healthy"),
    "a start that stalls while it profiles": (STARTED + LOADED + ENCODER + "".join(STALL.format(n) for n in (2, 3, 4)), "shm_broadcast_hang"),
    "one stall of a start": (STARTED + LOADED + ENCODER + STALL.format(2), "shm_broadcast_hang"),
    "a start that goes no further": (STARTED + LOADED + WAITS.format("05") + WAITS.format("15"), "engine_hang"),
    "a start that connects no ranks": (STARTED + NCCL + WAITS.format("05") + WAITS.format("19"), "engine_hang"),
    "a start under way": (STARTED + LOADED + WAITS.format("05"), "unknown"),
}  # fmt: skip


@pytest.mark.parametrize(("log", "failure"), STORIES.values(), ids=STORIES)
def test_story(log, failure):
    """The class."""
    assert diagnose(log.encode()).failure == failure


def test_since_when():
    """The last report is the line, and its time is named; a restart is right."""
    found = diagnose((HUNG + PROBE * 20 + LATER.format("09")).encode())
    assert found.line_number == 3
    assert "4 requests were running" in found.explanation
    assert "since 05-17 10:00:10" in found.explanation
    assert any("restart the engine" in each.what for each in found.fixes)


def test_a_start_that_stalls_names_its_phase_and_no_restart():
    """Vllm #36357: a restart stops at the same point, and a flag skips it."""
    log = STARTED + LOADED + ENCODER + "".join(STALL.format(n) for n in (2, 3, 4))
    found = diagnose(log.encode())
    assert "did not finish" in found.sentence
    assert "profiling" in found.sentence
    assert "--skip-mm-profiling" in [each.command for each in found.fixes]
    assert not any("restart the engine" in each.what for each in found.fixes)
    assert not found.deterministic_start_failure


def test_a_start_that_was_stopped_from_outside():
    """As a startup probe does that is too short."""
    found = diagnose((STARTED + LOADED + STOP).encode())
    assert (found.failure, found.found) == ("unknown", False)
    assert "stopped from outside before it came up" in found.explanation


def test_a_queue_that_stands_still_is_shown_with_its_numbers():
    """The engine makes tokens for one request, and admits none of the others."""
    log = WORKS + "".join(report(f"10:{n}:00", 0.0, 5.4, 1, 14) for n in range(10, 60, 10))
    found = diagnose(log.encode())
    assert "1 requests are running and 14 waiting" in found.explanation
    assert "(40 minutes)" in found.explanation
    assert (found.found, found.fatal) == (True, False)


def test_a_server_that_was_stopped():
    """An error after the request to stop follows from it."""
    failed = "(APIServer pid=1) ERROR 03-07 10:05:01 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n"
    for log, errors in ((WORKS + STOP, False), (WORKS + STOP + failed, True)):
        found = diagnose(log.encode())
        assert (found.failure, found.found) == ("healthy", False)
        assert "It was stopped on request (line 3)." in found.explanation
        assert ("are a consequence of the stop" in found.explanation) == errors


@pytest.mark.parametrize(("accepted", "drafted", "useless"), [(0, 900, True), (18, 900, True), (19, 900, False), (0, 0, False)])  # fmt: skip
def test_drafts_of_which_almost_none_is_accepted(accepted, drafted, useless):
    """Two in a hundred are the limit: a draft model that fits gets ten times as many."""
    line = f"SpecDecoding metrics: Mean acceptance length: 1.02, Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position"
    assert stillness.unaccepted(line.encode()) is useless


SHUT = "(EngineCore pid=9) INFO 05-12 11:36:00 [core.py:1] Shutdown initiated (timeout=0)\n"
IGNORED = "(APIServer pid=1) Could not cache the file. Will ignore error and continue. Error: [Errno 13] Permission denied: '/h/a.json'\n"
RAISED = 'Traceback (most recent call last):\n  File "/x/a.py", line 1, in f\nValueError: a plugin returned nothing\n'


@pytest.mark.parametrize(("log", "failure"), [
    (SHUT + DIED, "benign_warning_noise"),
    (READY + SHUT + DIED, "engine_dead"),  # a server needs its engine
    (READY + SHUT + RAISED, "unknown"),  # the engine ends with the server's own error
    (IGNORED + READY, "healthy"),
])  # fmt: skip
def test_an_end_and_an_error_that_hinder_no_server(log, failure):
    """An engine that a script ends is not dead, and a program that ignores an error goes on. All else is a failure."""
    found = diagnose(log.encode())
    assert (found.failure, found.found) == (failure, failure in ("engine_dead", "unknown"))


@pytest.mark.parametrize(("place", "number"), [("core.py:2", 1), ("api.py:9", 2)])
def test_lines_of_one_message_share_what_stands_before_its_text(place, number):
    """A line of another place is a message of its own, and explains more than one that only passes another on."""
    passed = "ERROR 05-12 11:36:00 [core.py:2] RuntimeError: Worker failed with error 'a() got no list', please check the stack trace above for the root cause\n"
    log = passed + f"ERROR 05-12 11:36:00 [{place}] Position: 5\n"
    assert diagnose(log.encode()).line_number == number
