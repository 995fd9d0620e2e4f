"""The canary from end to end: the real daemon, simulated engines on real ports, and a replay of it all."""

import asyncio
import gzip
import json
import sys
from random import Random

from tests.daemon_process import ROOT, daemon
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import OpenLoop, Sizes

ENVIRON = {
    "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "1",
    "VLLM_WATCH_CANARY__ENABLED": "true",
    "VLLM_WATCH_CANARY__INTERVAL_SECONDS": "10",
    "VLLM_WATCH_CANARY__TIMEOUT_SECONDS": "3",
}
FOUND_SECONDS = 120.0  # within 40 on an idle machine


def overloaded():
    """Four times what the engine can do: a queue that only grows."""
    rng = Random(1)
    sizes = Sizes(rng, prompt_tokens=2500, output_tokens=200)
    return SimulatedVllm("overloaded", workload=OpenLoop(rng, sizes, 12.0), config=L40S)


def target(status, name):
    return next(each for each in status["targets"] if each["name"] == name)


def canary_calls(status, name):
    return target(status, name)["sources"].get("canary", {}).get("calls", 0)


def incidents(status, name):
    return [each["kind"] + "/" + each["cause"] for each in target(status, name)["incidents"]]


async def replayed(trace):
    """The incident events of a recording, judged anew."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", "replay", str(trace), "--json",
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


async def test_an_idle_engine_that_wedges_is_found_and_nobody_else(tmp_path):
    """Beside it: an idle engine, an overloaded one, one with a key, one that pools, one that sleeps."""
    names = ("wedged", "idle", "asleep")
    servers = [SimulatedVllm(name) for name in names] + [overloaded()]
    servers += [SimulatedVllm("guarded", api_key="k"), SimulatedVllm("pooling", generates=False)]
    live = Live(Scene(servers))
    targets = await live.start()
    live.scene["asleep"].sleep(1)
    arguments = [part for each in targets for part in ("--target", f"{each.name}={each.url}")]
    try:
        async with daemon(*arguments, environ=ENVIRON) as process:
            status = await process.until(lambda s: canary_calls(s, "wedged"), FOUND_SECONDS)
            assert incidents(status, "wedged") == []
            live.scene["wedged"].fault("hang")
            status = await process.until(lambda s: incidents(s, "wedged"), FOUND_SECONDS)
            status = await process.until(lambda s: canary_calls(s, "idle") >= 2, FOUND_SECONDS)
            trace = tmp_path / "wedged.jsonl.gz"
            trace.write_bytes(await process.bytes("/api/v1/recording?target=wedged&minutes=9"))
            refused = {line["target"]: line["remedy"] for line in process.events("canary_refused")}
            _, metrics = await process.get("/metrics")
    finally:
        await live.stop()

    paged = [line for line in process.events("incident_opened") if line["severity"] == "page"]
    assert [(line["target"], line["cause"]) for line in paged] == [("wedged", "idle_wedged")]
    assert incidents(status, "idle") == []
    assert set(incidents(status, "overloaded")) <= {"overload/demand"}
    assert canary_calls(status, "overloaded") == canary_calls(status, "asleep") == 0
    assert "api_key_file" in refused["guarded"]
    assert refused.keys() == {"guarded", "pooling"}
    assert (
        'vllm_watch_source_errors_total{source="canary",target="wedged",reason="read_timeout"}'
        in metrics
    )
    said = gzip.decompress(trace.read_bytes()).decode()
    assert '"outcome":"unanswered"' in said
    first = (await replayed(trace))[0]
    assert (first["event"], first["cause"], first["t"]) == (
        "opened", "idle_wedged", opened_t(status),
    )  # fmt: skip


def opened_t(status):
    return target(status, "wedged")["incidents"][0]["opened_timestamp_seconds"]
