"""What a scrape shows, compared as the text that Prometheus reads."""

import socket
import subprocess
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.export.demo_board import fill
from tests.export.small_board import (
    ENGINE,
    GPU,
    SERVING,
    T,
    samples_of,
    small_board,
    text_of,
)
from tests.told import made, told
from vllm_watch import __version__
from vllm_watch.board.board import Board
from vllm_watch.board.health import NotifierHealth, StoreHealth, WebHealth
from vllm_watch.board.restarts import (
    AttemptShown,
    Gate,
    Paused,
    RestartCounts,
    RestartPlan,
    RestartState,
    Waiting,
)
from vllm_watch.export.families import FAMILIES
from vllm_watch.export.gpu_families import THROTTLE_REASONS
from vllm_watch.export.text import render, wants_openmetrics
from vllm_watch.samples.gpu import GpuReading, ProcessSample
from vllm_watch.samples.observation import OUTCOMES
from vllm_watch.samples.target import Target
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.records import Quantiles
from vllm_watch.signals.state import STATES
from vllm_watch.signals.totals import BOUNDS, EngineTotals
from vllm_watch.story.kinds import KINDS

TOTALS = EngineTotals(
    prompt_tokens=1.0, generation_tokens=2.0, preemptions=0.0, requests_finished={"stop": 3.0},
    **{name: (9.0, 0.5, *[2.0] * len(bounds)) for name, bounds in BOUNDS.items()},
)  # fmt: skip
ENGINE_LABELS = r'target="chat",engine="0",model_name="say \"hi\" \\ twice"'


def one_hot(name: str, labels: str, label: str, words: tuple[str, ...], holds: str) -> list[str]:
    return [f'{name}{{{labels}{label}="{word}"}} {int(word == holds)}' for word in words]


def test_whole_text():
    """Every series of a small board, in the order of the table; what is unknown has none."""
    engine = f"{{{ENGINE_LABELS}"
    assert samples_of(small_board()) == [
        f'vllm_watch_build_info{{version="{__version__}"}} 1',
        "vllm_watch_signal_window_seconds 60.0",
        "vllm_watch_targets 2",
        *one_hot("vllm_watch_gpu_reading_status", "", "status", ("ok", "no_driver", "hung", "error"), "ok"),
        'vllm_watch_target_info{target="chat",url="http://10.0.0.1:8000",group="deployment/chat",namespace="",pod="chat-0",node="",address="10.0.0.1:8000",model_name="say \\"hi\\" \\\\ twice"} 1',
        'vllm_watch_target_info{target="gone",url="http://10.0.0.2:8000",group="",namespace="",pod="",node="",address="10.0.0.2:8000",model_name=""} 1',
        'vllm_watch_target_up{target="chat"} 1',
        'vllm_watch_target_up{target="gone"} 0',
        *one_hot("vllm_watch_target_scrape_outcome", 'target="chat",', "outcome", OUTCOMES, "ok"),
        *one_hot("vllm_watch_target_scrape_outcome", 'target="gone",', "outcome", OUTCOMES, "refused"),
        'vllm_watch_target_last_observation_timestamp_seconds{target="chat"} 1763700000.0',
        'vllm_watch_target_last_observation_timestamp_seconds{target="gone"} 1763700000.0',
        'vllm_watch_target_interval_seconds{target="chat"} 5.0',
        'vllm_watch_target_interval_seconds{target="gone"} 5.0',
        'vllm_watch_target_health_status_code{target="chat"} 200',
        'vllm_watch_target_vllm_info{target="chat",version="0.33.0",engine_kind="V1"} 1',
        'vllm_watch_target_unknown_families{target="chat"} 0',
        *(f'vllm_watch_incidents_total{{target="{name}",kind="{kind}"}} 0' for name in ("chat", "gone") for kind in sorted(KINDS)),
        *one_hot("vllm_watch_engine_state", f"{ENGINE_LABELS},", "state", STATES, "serving"),
        *one_hot("vllm_watch_engine_state", 'target="gone",engine="",model_name="",', "state", STATES, "down"),
        f"vllm_watch_engine_health_ratio{engine}}} 1",
        'vllm_watch_engine_health_ratio{target="gone",engine="",model_name=""} 0',
        f"vllm_watch_engine_requests_running{engine}}} 3.0",
        f"vllm_watch_engine_requests_waiting{engine}}} 0.0",
        f'vllm_watch_engine_requests_waiting_by_reason{engine},reason="capacity"}} 0.0',
        f'vllm_watch_engine_requests_waiting_by_reason{engine},reason="deferred"}} 0.0',
        f"vllm_watch_engine_kv_cache_usage_ratio{engine}}} 0.25",
        f"vllm_watch_engine_sleeping{engine}}} 0",
        f"vllm_watch_engine_generation_tokens_per_second{engine}}} 812.5",
        f'vllm_watch_engine_time_to_first_token_seconds{engine},quantile="0.5"}} 0.1',
        f'vllm_watch_engine_time_to_first_token_seconds{engine},quantile="0.95"}} 0.25',
        f'vllm_watch_engine_time_to_first_token_seconds{engine},quantile="0.99"}} 0.5',
        f'vllm_watch_engine_slo_attainment_ratio{engine},objective="ttft"}} 0.99',
        f"vllm_watch_engine_last_progress_timestamp_seconds{engine}}} 1763699999.0",
        f"vllm_watch_engine_restarts_total{engine}}} 0",
        'vllm_watch_source_last_success_timestamp_seconds{source="metrics",target="chat"} 1763700000.0',
        'vllm_watch_source_last_success_timestamp_seconds{source="nvml",target=""} 1763700000.0',
        'vllm_watch_source_duration_seconds{source="metrics",target="chat"} 0.004',
        'vllm_watch_source_duration_seconds{source="metrics",target="gone"} 0.001',
        'vllm_watch_source_duration_seconds{source="nvml",target=""} 0.011',
        'vllm_watch_source_calls_total{source="metrics",target="chat"} 1',
        'vllm_watch_source_calls_total{source="metrics",target="gone"} 1',
        'vllm_watch_source_calls_total{source="nvml",target=""} 1',
        'vllm_watch_source_errors_total{source="metrics",target="gone",reason="refused"} 1',
        f'vllm_watch_gpu_info{{gpu="GPU-7f3a",index="0",name="NVIDIA H200",host="{socket.gethostname()}",driver_version="570.124",mig_parent=""}} 1',
        'vllm_watch_gpu_memory_total_bytes{gpu="GPU-7f3a"} 149250113536',
        'vllm_watch_gpu_memory_used_bytes{gpu="GPU-7f3a"} 128849018880',
        'vllm_watch_gpu_utilization_ratio{gpu="GPU-7f3a"} 0.93',
        *one_hot("vllm_watch_gpu_throttle_reason", 'gpu="GPU-7f3a",', "reason", THROTTLE_REASONS, "sw_power_cap"),
        'vllm_watch_gpu_xid_errors_total{gpu="GPU-7f3a",xid="79"} 1',
        'vllm_watch_gpu_holder_memory_bytes{gpu="GPU-7f3a",pid="41210",verdict="unknown",uid="1000",command="VLLM::EngineCore"} 127775277056',
    ]  # fmt: skip


def full_board() -> Board:
    """Every story of the demo: multi-engine, down, lost GPU, names that look like markup."""
    board = Board()
    fill(board, extra=3, now=T, back_seconds=30)
    return board


def own_metrics() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def test_promtool_finds_nothing_to_say():
    """Names, units, types and help texts keep Prometheus' rules, by its own linter."""
    body = render(full_board(), own_metrics())
    said = subprocess.run(
        ["promtool", "check", "metrics"], input=body, capture_output=True, timeout=600, check=False
    )
    # python_info and process_* are the client library's, which end in no unit that promtool disputes.
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


def test_text_and_openmetrics_say_the_same():
    """Both parsers of prometheus_client accept their format, and find the same values."""
    board = full_board()
    signals = board.targets["llama-70b-a"].signals
    engines = {name: replace(each, totals=TOTALS) for name, each in signals.engines.items()}
    board.publish(replace(signals, engines=engines))
    text = {
        (s.name, *sorted(s.labels.items())): s.value
        for f in parse_text(text_of(board))
        for s in f.samples
    }
    families = list(parse_openmetrics(text_of(board, openmetrics=True)))
    openmetrics = {
        (s.name, *sorted(s.labels.items())): s.value for f in families for s in f.samples
    }
    assert text == openmetrics
    assert len(text) > 500
    assert {f.type for f in families} == {"gauge", "counter", "summary", "histogram", "info"}


def ended(state: str) -> AttemptShown:
    return AttemptShown(
        id="1", state=state, trigger="incident", reason="r", actor="a", hook="h", text="", began_timestamp_seconds=T - 60,
        ended_timestamp_seconds=T,
    )  # fmt: skip


def test_every_family_of_the_table_can_be_shown():
    """A row whose value is never found (a field renamed, say) would be missing here."""
    board = full_board()
    signals = board.targets["llama-70b-a"].signals
    engine = replace(
        signals.engines["0"], kv_cache_time_to_full_seconds=60.0, spec_acceptance_ratio=0.7,
        goodput_requests_per_second=2.0, prefix_cache_hit_ratio=0.5, throughput_ratio=0.9,
        cpu_wait_ratio=0.1, totals=TOTALS,
    )  # fmt: skip
    board.publish(replace(signals, engines={"0": engine}), late_seconds=0.01)
    gpu = replace(
        GPU, memory_reserved_bytes=1, temperature_celsius=60.0, fan_ratio=0.3, power_watts=300.0, power_limit_watts=700.0,
        sm_clock_hz=1e9, sm_clock_max_hz=2e9, ecc_uncorrected=0, remapped_rows_pending=False,
        remapped_rows_failed=False, lost=False, processes=GPU.processes[:1] if GPU.processes else None,
    )  # fmt: skip
    judged = HolderJudge().look(0.0, T, (gpu,))
    board.publish_gpus(GpuReading(status="ok", t=T, gpus=(gpu,)), judged)
    board.store = StoreHealth("state")
    board.store.count("full", "no room", T)
    board.store.count(None, None, T)
    board.notifiers["oncall"] = NotifierHealth("webhook")
    board.notifiers["oncall"].count("sent", 1, 0, None, T)
    board.web = WebHealth("web.yaml", last_success_timestamp_seconds=T)
    board.external_url = "https://watch.example"
    board.restarts = RestartState()
    plan = RestartPlan(
        mode="auto", hook="h", budget_remaining=1, payoff_ratio=0.5, next_scheduled_timestamp_seconds=T,
        last=ended("helped"),
        waiting=(Waiting(trigger="incident", reason="r", asked_timestamp_seconds=T, gate="window"),),
    )  # fmt: skip
    counts = RestartCounts({("incident", "helped"): 1}, {"window": 2})
    board.show_restart("llama-70b-a", plan, counts)
    shown = {line.split()[2] for line in text_of(board).splitlines() if line.startswith("# TYPE")}
    assert shown == {family.name for family in FAMILIES}


def incident_lines(board: Board) -> list[str]:
    """The series of incidents, without the counters that are still 0."""
    return [line for line in samples_of(board) if "_incident" in line and not line.endswith(" 0")]


def shown(of: str, **more: str) -> str:
    """The labels of `chat`'s stalled engine, but for what is said otherwise."""
    labels = {"target": "chat", "engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page"} | more  # fmt: skip
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"vllm_watch_incident_{of}{{{text}}}"


def test_open_incidents_are_1_and_every_one_is_counted():
    """A resolved one leaves its count; one of the whole server has no engine; a new cause is a new series."""
    board = small_board()
    server = {"engine": None, "kind": "engine_down", "cause": "crash"}
    board.tell(made(told(), told(id="down", **server)))
    opened = [
        'vllm_watch_incidents_total{target="chat",kind="engine_down"} 1',
        'vllm_watch_incidents_total{target="chat",kind="engine_stalled"} 1',
    ]
    down = {"engine": "", "kind": "engine_down", "cause": "crash"}
    assert incident_lines(board) == [
        f"{shown('open', **down)} 1", f"{shown('open')} 1",
        f"{shown('opened_timestamp_seconds', **down)} {T}", f"{shown('opened_timestamp_seconds')} {T}",
        f"{shown('began_timestamp_seconds', **down)} {T}", f"{shown('began_timestamp_seconds')} {T}",
        *opened,
    ]  # fmt: skip
    board.tell(made(told("resolved", id="down", **server), told("updated", cause="idle_wedged")))
    wedged = {"cause": "idle_wedged"}
    assert incident_lines(board) == [
        f"{shown('open', **wedged)} 1", f"{shown('opened_timestamp_seconds', **wedged)} {T}",
        f"{shown('began_timestamp_seconds', **wedged)} {T}", *opened,
    ]  # fmt: skip
    board.tell(made(told("resolved")))
    assert incident_lines(board) == opened


def test_incidents_that_are_alike_are_one_series():
    """Two of the same labels would cost the whole scrape: the oldest counts, and whether any is to be restarted."""
    board = small_board()
    gpu = {"kind": "stale_vram", "cause": "orphaned_worker", "engine": None, "severity": "ticket"}
    board.tell(made(told(t=T + 60, id="gpu 0", **gpu), told(id="gpu 1", **gpu | {"restart_advised": True}),
        told(t=T + 120, id="gpu 2", **gpu),))  # fmt: skip
    alike = gpu | {"engine": ""}
    assert incident_lines(board) == [
        f"{shown('open', **alike)} 1",
        f"{shown('opened_timestamp_seconds', **alike)} {T}",
        f"{shown('began_timestamp_seconds', **alike)} {T}",
        f"{shown('restart_advised', **alike)} 1",
        'vllm_watch_incidents_total{target="chat",kind="stale_vram"} 3',
    ]


def test_what_vanished_leaves_no_series():
    """A target, one engine of several and a GPU are gone from the next scrape, from every family."""
    board = small_board()
    board.publish(replace(SERVING, engines={"0": ENGINE, "1": replace(ENGINE, engine="1")}))
    board.publish(replace(SERVING, engines={"0": ENGINE}))
    assert not [line for line in samples_of(board) if 'engine="1"' in line]
    assert list(board.targets["chat"].history) == ["0"]
    for status, gpus in (("ok", ()), ("no_driver", ()), ("hung", None)):
        board.publish_gpus(GpuReading(status="ok", t=T, gpus=(GPU,)))
        board.publish_gpus(GpuReading(status=status, t=T, gpus=gpus))
        assert not [line for line in samples_of(board) if "GPU-7f3a" in line]
    board.remove_target("chat")
    assert not [line for line in samples_of(board) if '"chat"' in line]
    board.publish(SERVING)  # what was under way may not bring it back
    board.call("metrics", "chat", "ok", 0.1, T)
    assert not [line for line in samples_of(board) if '"chat"' in line]


def test_xid_counts_outlive_a_hung_driver_but_not_the_gpu():
    """A hung driver says nothing about which GPUs exist; a reading without the GPU does."""
    board = small_board()
    board.publish_gpus(GpuReading(status="hung", t=T))
    board.publish_gpus(GpuReading(status="ok", t=T, gpus=(GPU,)))
    assert 'vllm_watch_gpu_xid_errors_total{gpu="GPU-7f3a",xid="79"} 2' in samples_of(board)
    board.publish_gpus(GpuReading(status="ok", t=T, gpus=()))
    board.publish_gpus(GpuReading(status="ok", t=T, gpus=(replace(GPU, xid_errors=()),)))
    assert not [line for line in samples_of(board) if "xid" in line]


def test_twenty_holders_are_named_and_the_rest_summed():
    """A process that NVML lists twice (compute and graphics) counts once."""
    holders = tuple(ProcessSample(pid=i, used_bytes=i) for i in range(1, 26))
    board = small_board()
    board.publish_gpus(
        GpuReading(status="ok", t=T, gpus=(replace(GPU, processes=(*holders, holders[24])),))
    )
    lines = [line for line in samples_of(board) if "holder_memory" in line]
    assert len(lines) == 21
    assert lines[0].endswith('pid="25",verdict="unknown",uid="",command=""} 25')
    assert lines[-1].endswith('pid="other",verdict="unknown",uid="",command=""} 15')


def test_target_not_yet_looked_at_is_only_named():
    """Before the first look there is an identity and nothing that could be taken for a result: no incident was opened."""
    board = Board()
    board.add_target(Target(name="new", url="http://h:1"), 5.0)
    lines = [line for line in samples_of(board) if '"new"' in line]
    names = [line.split("{")[0].removeprefix("vllm_watch_") for line in lines]
    assert names == ["target_info", "target_interval_seconds", *["incidents_total"] * len(KINDS)]
    assert [line.split()[-1] for line in lines[2:]] == ["0"] * len(KINDS)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("\udcff", "?"),
        ("x" * 1000, "x" * 256 + "~3b41c9e6"),  # and a digest, so that no two become one
        ("} 1\nevil 1", r"} 1\nevil 1"),
    ],
)
def test_names_from_outside_cannot_break_the_text(name, shown):
    """Line breaks, bytes that are no text and endless names stay within their label."""
    board = small_board()
    board.publish(replace(SERVING, engines={"0": replace(ENGINE, model_name=name)}))
    assert (
        f'vllm_watch_engine_requests_running{{target="chat",engine="0",model_name="{shown}"}} 3.0'
        in samples_of(board)
    )


def test_values_that_are_not_finite_are_spelled_as_prometheus_does():
    board = small_board()
    odd = replace(ENGINE, requests_running=float("nan"), requests_waiting=float("inf"),
                  queue_time_seconds=Quantiles(p50=float("-inf")))  # fmt: skip
    board.publish(replace(SERVING, engines={"0": odd}))
    for name, shown in (
        ("requests_running", "NaN"),
        ("requests_waiting", "+Inf"),
        ("queue_time_seconds", "-Inf"),
    ):
        (line,) = [
            each for each in samples_of(board) if each.startswith(f"vllm_watch_engine_{name}{{")
        ]
        assert line.endswith(f" {shown}")


def test_a_mad_server_cannot_fill_a_prometheus():
    """Of a label whose values the server makes up, so many are shown and no more."""
    board = small_board()
    mad = replace(ENGINE, requests_waiting_by_reason={f"r{i}": 1.0 for i in range(500)})
    board.publish(replace(SERVING, engines={"0": mad}))
    assert len([line for line in samples_of(board) if "waiting_by_reason" in line]) == 32


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=many", False),
    ],
)  # fmt: skip
def test_format_is_the_one_that_is_preferred(accept, openmetrics):
    """OpenMetrics only to those who prefer it, as Prometheus does."""
    assert wants_openmetrics(accept) is openmetrics


def test_restarts():
    """How attempts ended, which gates refused, what is left; nothing of a target that is not to be restarted."""
    board = full_board()
    board.restarts = RestartState(paused=Paused(actor="anna", reason="x"), journal_trouble="full")
    plan = RestartPlan(
        mode="approve", hook="h", budget_remaining=0, breaker="it did not help", last=ended("did_not_help"),
        waiting=(
            Waiting(trigger="incident", reason="r", asked_timestamp_seconds=T, verdict="approve", gate="approval"),
            Waiting(trigger="schedule", reason="r", asked_timestamp_seconds=T, verdict="wait", gate="window",
                    gates=(Gate(gate="window", text="not at this hour"), Gate(gate="budget", text="spent"))),
        ),
    )  # fmt: skip
    counts = RestartCounts({("manual", "did_not_help"): 3}, {"window": 2, "approval": 1})
    board.show_restart("llama-70b-a", plan, counts)
    assert [line for line in samples_of(board) if line.startswith("vllm_watch_restart")] == [
        "vllm_watch_restart_paused 1",
        "vllm_watch_restart_journal_ok 0",
        'vllm_watch_restarts_total{target="llama-70b-a",trigger="manual",outcome="did_not_help"} 3',
        'vllm_watch_restarts_blocked_total{target="llama-70b-a",blocker="approval"} 1',
        'vllm_watch_restarts_blocked_total{target="llama-70b-a",blocker="window"} 2',
        'vllm_watch_restart_mode_info{target="llama-70b-a",mode="approve"} 1',
        'vllm_watch_restart_budget_remaining{target="llama-70b-a"} 0',
        'vllm_watch_restart_breaker_open{target="llama-70b-a"} 1',
        'vllm_watch_restart_last_info{target="llama-70b-a",trigger="incident",outcome="did_not_help"} 1',
        f'vllm_watch_restart_last_timestamp_seconds{{target="llama-70b-a",trigger="incident",outcome="did_not_help"}} {T}',
        'vllm_watch_restart_under_way{target="llama-70b-a"} 0',
        'vllm_watch_restart_waiting{target="llama-70b-a",for="approval"} 1',
        'vllm_watch_restart_waiting{target="llama-70b-a",for="gate"} 1',
        'vllm_watch_restart_kept_back{target="llama-70b-a",gate="approval"} 1',
        'vllm_watch_restart_kept_back{target="llama-70b-a",gate="budget"} 1',
        'vllm_watch_restart_kept_back{target="llama-70b-a",gate="window"} 1',
    ]
