"""The text of a simulated engine is that of the real one, and says what the records say."""

import re
from pathlib import Path
from random import Random

import pytest

from benchmarks.lab.virtual import observe
from vllm_watch.lab.batch import EngineConfig
from vllm_watch.lab.exposition import Writer
from vllm_watch.lab.release import V0, V1, V1_SEVERAL_API_SERVERS
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.lab.workload import CHAT, COMPLETIONS, OpenLoop, Request, Sizes
from vllm_watch.sources.reading import Reader

CAPTURES = Path(__file__).parents[1] / "sources" / "captures"

# The server that a capture came from: how it was started, and what its text says that ours cannot know.
SERVERS = {
    "0.33.0-v1.txt": {"release": V1},
    "0.33.0-v1-dp2.txt": {"release": V1, "num_engines": 2},
    "0.33.0-v1-lora-spec.txt": {
        "release": V1, "max_loras": 4, "spec_tokens": 3, "config": EngineConfig(step_tokens=2),
    },
    "0.7.3-v0-multiproc.txt": {"release": V0},
}  # fmt: skip


@pytest.mark.parametrize("capture", SERVERS)
def test_text_equals_the_capture(capture):
    """Once numbers are masked, every line is the captured one: HELP, TYPE, names, labels, order."""
    expected = masked((CAPTURES / capture).read_text())

    assert masked(Writer(as_captured(**SERVERS[capture])).body()) == expected


def as_captured(**options):
    """A server to which happens what the captured ones had been asked."""
    vllm = SimulatedVllm("a", epoch=1.8e9, **options)
    for handler, reason in ((COMPLETIONS, "stop"), (CHAT, "length"), (COMPLETIONS, "abort")):
        request = Request(20, 5, handler=handler, finish_reason=reason, arrival_t=vllm.t)
        vllm.submit(request)
        if reason == "abort":
            vllm.abort(request)
        vllm.advance(vllm.t + 10)
    vllm.submit(Request(9000, 1, handler=CHAT))  # longer than the model allows: a 4xx
    vllm.http.record("/v1/models", "2xx", 0.001, 1.8e9, method="GET")
    if vllm.max_loras:
        vllm.lora_sets = {("fr-lora,sql-lora", "sql-lora"): 1.8e9}
    return vllm


def masked(text):
    """Sample values always; in the configuration of several engines also their sum of blocks."""
    lines = [
        line if line.startswith("#") else re.sub(r" \S+$", " N", line) for line in text.splitlines()
    ]
    return [re.sub(r'num_gpu_blocks="\d+"', 'num_gpu_blocks="N"', line) for line in lines]


READ_BACK = {
    **SERVERS,
    "several API servers": {"release": V1_SEVERAL_API_SERVERS, "num_engines": 2},
    "asleep": {"release": V1},
}


@pytest.mark.parametrize("name", READ_BACK)
def test_reading_the_text_gives_the_records_of_virtual_time(name):
    """What the daemon reads from the wire and what virtual time hands out are equal, field by field."""
    rng = Random(5)
    loras = ("fr-lora", "sql-lora") if READ_BACK[name].get("max_loras") else ()
    workload = OpenLoop(rng, Sizes(rng, loras=loras), 3.0)
    vllm = SimulatedVllm("a", epoch=1.8e9, workload=workload, **READ_BACK[name])
    vllm.advance(60.0)
    if name == "asleep":
        vllm.sleep(2)

    read, said = Reader().read(Writer(vllm).body()), observe(vllm).reading

    assert read.vllm
    assert read.unknown_families == ()
    assert read.engine_kind == said.engine_kind
    for got, expected in zip(read.engines, said.engines, strict=True):
        for field in expected.__dataclass_fields__:
            assert getattr(got, field) == approximately(getattr(expected, field)), field
    for field in ("process_start_time", "process_open_fds", "process_cpu_seconds"):
        assert getattr(read.server, field) == approximately(getattr(said.server, field)), field


def approximately(value):
    """Unix times lose a microsecond in the text's 17 digits; nothing else may differ."""
    return pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
