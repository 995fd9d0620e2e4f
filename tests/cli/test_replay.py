"""`vllm-watch replay`: a recording goes through the same Watch as live, and what comes out is printed."""

import gzip
import json

import pytest

from vllm_watch.__main__ import main
from vllm_watch.cli.replay import Summary
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.sources.trace_line import to_line

ONE, TWO = "http://10.0.0.7:8000", "http://10.0.0.8:8000"
OK = Call(outcome="ok", status=200, latency_s=0.004)
REFUSED = Call(outcome="refused", error="Connect call failed", latency_s=0.001)
BODY = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
"""


def body(second, running=2):
    return BODY.format(running=float(running), tokens=float(second * 100))


def observed(second, target=ONE, scrape=OK, **fields):
    return Observation(t=1.7e9 + second, target=target, scrape=scrape, health=scrape, **fields)


def crash():
    """A minute of work, then ten seconds without an answer."""
    for second in range(60):
        yield to_line(observed(second, gpus=(GpuSample(index=0, uuid="a"),)), body(second))
    for second in range(60, 70):
        yield to_line(observed(second, scrape=REFUSED), None)


@pytest.fixture
def trace(tmp_path):
    def write(lines):
        path = tmp_path / "trace.jsonl.gz"
        path.write_bytes(gzip.compress(b"".join(lines)))
        return str(path)

    return write


def replay(capsys, *argv):
    assert main(["replay", *argv]) == 0
    return capsys.readouterr().out


def test_a_recording_without_any_answer_has_a_state_too(trace, capsys):
    lines = (to_line(observed(second, scrape=REFUSED), None) for second in range(3))

    said = json.loads(replay(capsys, trace(lines), "--state", "--json"))

    assert (said["vllm"], said["engine_kind"], said["engines"]) == (False, None, {})
    assert said["why_not"] == "Connect call failed"
    assert said["t"] == 1.7e9 + 2


def test_incidents_are_all_that_json_prints(trace, capsys):
    """One JSON object a line for each incident event, and nothing else on stdout."""
    events = [json.loads(line) for line in replay(capsys, trace(crash()), "--json").splitlines()]
    assert [(e["event"], e["kind"], e["cause"], e["engine"]) for e in events] == [
        ("opened", "engine_down", "crash", None)
    ]


def summary(changes, seconds=120, **engine):
    """The summary of one look a second at an engine that changes its state at these seconds."""
    told, state = Summary(ONE), "unknown"
    for second in range(seconds):
        state = changes.get(second, state)
        signals = TargetSignals(
            target=ONE, t=second, up=True, outcome="ok", state=state, state_text=f"{state} since",
            version="0.33.0", engine_kind="V1", models=("m", "adapter"),
            engines={"0": EngineSignals(engine="0", model_name="m", **engine)},
        )  # fmt: skip
        told.add(observed(second), signals, [])
    return told.text(signals)


def test_the_summary_tells_what_the_recording_holds():
    """Span, outcomes, what runs there, and how the state changed, compared whole."""
    numbers = {"requests_running": 2.0, "kv_cache_usage_ratio": 0.25, "restarts": 1}

    assert summary({0: "idle", 60: "serving", 119: "down"}, **numbers) == SUMMARY


SUMMARY = """\
http://10.0.0.7:8000
  span        2023-11-14 22:13:20 to 22:15:19 UTC, 1 min 59 s
  scrapes     120 ok; every 1 s
  vLLM        0.33.0, V1 engine, m, adapter
  GPUs        not recorded
  engine 0    m, running 2, KV cache 25%, 1 restart seen
  states      idle 50.4%, serving 49.6%
              22:13:20 idle: idle since
              22:14:20 serving: serving since
              22:15:19 down: down since
  at the end  down: down since"""


def test_the_summary_tells_holes():
    """Two scrapes missed in a row are no jitter."""
    told = Summary("")
    for second in (0, 1, 2, 4, 5, 9, 10, 80, 81):
        told.add(observed(second), None, [])

    assert told.text(None).splitlines() == [
        "(no target named)",
        "  span        2023-11-14 22:13:20 to 22:14:41 UTC, 1 min 21 s",
        "  scrapes     9 ok; every 1 s, 2 holes of up to 1 min 10 s",
    ]


def test_configuration_sets_how_it_is_judged(trace, tmp_path, capsys):
    """Windows and names come from the configuration that the daemon would use."""
    config = tmp_path / "config.yaml"
    config.write_text(f"signals: {{window_seconds: 10}}\ntargets: [{{name: chat, url: '{ONE}'}}]\n")
    path = trace(to_line(observed(second), body(min(50, second))) for second in range(60))

    wide = json.loads(replay(capsys, path, "--state", "--json"))
    narrow = json.loads(replay(capsys, path, "--config", str(config), "--state", "--json"))

    rates = [
        said["signals"]["engines"]["0"]["generation_tokens_per_second"] for said in (wide, narrow)
    ]
    assert rates[0] > 50
    assert rates[1] < 20
    assert (wide["target"], narrow["target"]) == (ONE, "chat")


def test_without_json_a_summary_is_printed(trace, capsys):
    shown = replay(capsys, trace(crash()))

    assert shown.startswith(
        f"{ONE}\n  span        2023-11-14 22:13:20 to 22:14:29 UTC, 1 min 9 s\n"
    )
    assert "\n  scrapes     60 ok, 10 refused; every 1 s\n" in shown
    assert "\n  at the end  down: " in shown
