"""The verdicts, live: a real engine is hurt in six ways, each of which is named; and when it is well, nobody is woken.

One engine and one daemon serve nearly all tests of this file, since each fault needs an engine that was
seen healthy for a while. The tests may run alone or in any order; in the order of the file they wait least.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.real_vllm.daemon import Daemon
from tests.real_vllm.faults import slowed, stopped_at_work
from tests.real_vllm.load import Load, under_load
from tests.real_vllm.server import SMALL, USUAL, RealVllm
from tests.real_vllm.ward import TARGET, Incident, Ward, start
from tests.real_vllm.witness import comes_to, pace

pytestmark = pytest.mark.real_vllm

HEALTHY_SECONDS = float(os.environ.get("REAL_VLLM_HEALTHY_SECONDS", "120"))
MIXED = Load(prompt_tokens=(16, 500), output_tokens=(16, 300))
SHORT = Load(prompt_tokens=(30, 60), output_tokens=(30, 50))
# Two of them fit into the KV cache with little room beside; the next ones stand before all others.
PINNING = Load(clients=6, prompt_tokens=(5900, 6000), output_tokens=(2000, 2100))
# A dozen fit as they come and two when they have grown.
THRASHING = Load(clients=12, prompt_tokens=(30, 60), output_tokens=(1700, 1900))
# Never all between two requests at once.
BUSY = Load(clients=4, prompt_tokens=(16, 64), output_tokens=(600, 1200))
MINUTES = 60.0  # of recording: all there is
REACHED_SECONDS_MAX = 90.0  # to bring an engine to where a fault is one


@contextlib.contextmanager
def opened(vllm: RealVllm, folder: Path) -> Iterator[Ward]:
    """A ward of its own; what its daemon saw is kept beside its log, for a test that fails."""
    with start(vllm, folder) as daemon:
        ward = Ward(vllm, daemon)
        try:
            yield ward
        finally:
            ward.without_load()
            kept = folder / "recording.jsonl.gz"
            with contextlib.suppress(
                OSError
            ):  # a daemon that died: its end is told when it is left
                kept.write_bytes(daemon.recorded(TARGET, MINUTES))
                print(f"\n{kept}\n{daemon.log}\n{ward.said()}")


@pytest.fixture(scope="module")
def shared_ward(shared_vllm: RealVllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with opened(shared_vllm, tmp_path_factory.mktemp("judgement")) as ward:
        yield ward


@pytest.fixture
def ward(shared_ward: Ward) -> Ward:
    """An engine of the usual size, learnt and well, under a mixed load."""
    shared_ward.admit(USUAL, MIXED)
    shared_ward.healthy()
    return shared_ward


@pytest.fixture
def small_ward(shared_ward: Ward, tmp_path: Path) -> Iterator[Ward]:
    """The same with a KV cache that a few long generations fill, under short requests.

    It has a daemon of its own: to one that has just seen a collapse end, the next looks like its return, and
    it waits for twice as long before it says that it is over.
    """
    shared_ward.without_load()
    with opened(shared_ward.vllm, tmp_path) as ward:
        ward.admit(SMALL, SHORT)
        ward.healthy()
        yield ward


def is_so(incident: Incident, *, severity: str, restart_advised: bool) -> None:
    """What people are told, and that it comes with numbers and words."""
    assert (incident["severity"], incident["restart_advised"]) == (severity, restart_advised)
    assert incident["engine"] == (None if incident["kind"] == "engine_down" else "0")
    assert incident["evidence"]["for"]
    assert all(each["text"] for each in incident["evidence"]["for"])


def test_mixed_load_pages_nobody(shared_ward: Ward) -> None:
    """From its first request on, an engine under a light load of mixed requests is not called ill."""
    shared_ward.admit(USUAL, MIXED)
    shared_ward.settled()
    shared_ward.passes(HEALTHY_SECONDS)

    assert pace(shared_ward.vllm.url, 2.0).generated > 0


def test_saturation_pages_nobody(ward: Ward) -> None:
    """Nearly twice what the engine can do, the usual load among it: it is busy, not unhealthy."""
    more = replace(
        MIXED,
        requests_per_second=1.2 * ward.requests_per_second_max,
        in_flight_max=600,
        requests_max=1_000_000,
        seconds_max=2 * HEALTHY_SECONDS,
        seed=1,
    )
    ward.passes(HEALTHY_SECONDS, more)


def test_slow_engine(ward: Ward) -> None:
    """Each step takes seven times as long, at the same load: a ticket at once, then a page, then a restart helps."""
    usual = pace(ward.vllm.url, 8.0)
    began = time.monotonic()
    with slowed(ward.vllm, "engine_core"):
        incident = ward.opens("throughput_collapse", "slow_engine", began)
        is_so(incident, severity="ticket", restart_advised=False)
        ward.becomes(incident, severity="page", restart_advised=False)
        incident = ward.becomes(incident, severity="page", restart_advised=True)
        assert pace(ward.vllm.url, 2.0).steps < 0.6 * usual.steps
    ward.resolves(incident)


def test_hang(ward: Ward) -> None:
    """The engine core stands still with work in hand, and everything answers 200."""
    with stopped_at_work(ward.vllm, "engine_core"):
        began = time.monotonic()
        incident = ward.opens("engine_stalled", "hang", began)
        is_so(incident, severity="ticket", restart_advised=False)  # not yet: most pauses end
        ward.becomes(incident, severity="page", restart_advised=False)
    ward.resolves(incident)


def test_api_hang(ward: Ward) -> None:
    """Connections are accepted, and nobody answers."""
    began = time.monotonic()
    with ward.vllm.stopped("api_server"):
        incident = ward.opens("engine_down", "api_hang", began)
        is_so(incident, severity="ticket", restart_advised=False)  # not yet: it may be busy
        ward.becomes(incident, severity="page", restart_advised=True)
    ward.resolves(incident)


@pytest.mark.long
def test_kv_pinning(ward: Ward) -> None:
    """Two requests hold the KV cache and all others wait: no restart, for they end by themselves."""
    usual = pace(ward.vllm.url, 8.0)
    began = time.monotonic()
    with under_load(ward.vllm.url, PINNING):
        comes_to(
            ward.vllm.url,
            lambda now: (
                now.last.kv_usage > 0.7
                and now.last.waiting > now.last.running
                and now.generated < 0.75 * usual.generated
            ),
            REACHED_SECONDS_MAX,
            every_seconds=8.0,
        )
        incident = ward.opens("throughput_collapse", "kv_pinning", began)
        is_so(incident, severity="page", restart_advised=False)
    ward.resolves(incident)
    assert not any(restart for _, _, restart in ward.claims[incident["id"]])


def test_crash(ward: Ward) -> None:
    """The engine core dies and takes the server with it: its supervisor restarts it, not we."""
    with under_load(ward.vllm.url, BUSY):
        comes_to(ward.vllm.url, lambda now: now.last.running >= 2, REACHED_SECONDS_MAX)
        began = time.monotonic()
        ward.vllm.kill("engine_core")
        incident = ward.opens("engine_down", "crash", began)
    is_so(incident, severity="page", restart_advised=False)
    ward.vllm.wait_gone()
    ward.without_load()
    ward.vllm.restart(SMALL)  # as the next test wants it
    ward.resolves(incident, "restarted")


@pytest.mark.long
def test_preemption_thrash(small_ward: Ward) -> None:
    """Requests become so long that they push each other out: no restart, for they would come again."""
    ward = small_ward
    usual = pace(ward.vllm.url, 8.0)
    ward.without_load()
    began = time.monotonic()
    with under_load(ward.vllm.url, THRASHING):
        comes_to(
            ward.vllm.url,
            lambda now: (
                now.preempted > 0.5
                and now.last.waiting >= 1
                and now.generated < 0.75 * usual.generated
            ),
            REACHED_SECONDS_MAX,
            every_seconds=8.0,
        )
        incident = ward.opens("throughput_collapse", "preemption_thrash", began)
        assert not incident["restart_advised"]
    ward.usual_load(SHORT)
    ward.resolves(incident)
    assert not any(restart for _, _, restart in ward.claims[incident["id"]])


def told_by(daemon: Daemon) -> list[dict[str, Any]]:
    """Every incident that was opened or resolved, in order."""
    said = ("incident_opened", "incident_resolved")
    return [each for each in daemon.logged() if each["event"] in said]


def test_recording_says_the_same(shared_ward: Ward, tmp_path: Path) -> None:
    """Replayed, all that the daemon saw leads to the very incidents that it told of while it saw it."""
    daemon, trace = shared_ward.daemon, tmp_path / "recording.jsonl.gz"
    while True:  # until nothing is told in between: a recording and a log of the same looks
        told = told_by(daemon)
        trace.write_bytes(daemon.recorded(TARGET, MINUTES))
        if told_by(daemon) == told:
            break
    replay = [sys.executable, "-m", "vllm_watch", "replay", str(trace), "--json"]
    said = subprocess.run(replay, check=True, capture_output=True, timeout=600, text=True).stdout
    events = [json.loads(line) for line in said.splitlines()]

    def plain(each: Incident) -> tuple[str, str, str, str]:
        # The id holds the target's name, which a recording lacks.
        return each["kind"], each["cause"], each["severity"], each["summary"]

    expected = [plain(each) for each in told]
    assert [plain(each) for each in events if each["event"] != "updated"] == expected
