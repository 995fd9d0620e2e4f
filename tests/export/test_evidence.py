"""What is kept of a target: the recording, what the page shows of it, and the end of its log."""

import json
import tarfile
from dataclasses import replace

import pytest

from tests.restart.station import station
from vllm_watch.export.evidence import Evidence
from vllm_watch.incidents.incident import RESOLVED, IncidentEvent, ended
from vllm_watch.restart.evidence import EvidenceStore
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.sources.engine_log import TAIL_BYTES_MAX, EngineLog
from vllm_watch.state.attempt import Attempt

ATTEMPT = Attempt(
    id="x1", target="a", group="g", trigger="incident", hook="h", reason="", actor="",
    state="intent", began_t=1.0,
)  # fmt: skip


@pytest.fixture
async def one(tmp_path):
    async with station(tmp_path, start=False) as one:
        one.incident()
        scrape = Call(outcome="ok")
        one.recorder.observe(Observation(t=1.0, target="a", scrape=scrape), "a 1\n")
        yield one
        await one.recorder.close()


async def kept(one, folder, stacks=None):
    store = EvidenceStore(folder, Evidence(one.board, one.recorder, one.logs, stacks))
    with tarfile.open(await store.keep(ATTEMPT)) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive.getmembers()}


async def test_what_there_is_in_the_morning(one, tmp_path):
    found = await kept(one, tmp_path / "evidence")
    assert sorted(found) == [
        "a-x1/gpus.json", "a-x1/incidents.json", "a-x1/recording.jsonl.gz", "a-x1/target.json",
    ]  # fmt: skip
    assert b'"engine_stalled"' in found["a-x1/incidents.json"]
    assert json.loads(found["a-x1/target.json"])["name"] == "a"
    assert found["a-x1/recording.jsonl.gz"]


async def test_the_end_of_the_log(one, tmp_path):
    one.logs["a"] = log = EngineLog("a", tmp_path / "vllm.log")
    log.path.write_text(
        "x" * (TAIL_BYTES_MAX + 5) + "\nGET http://user:pass@host\nValueError: no such model"
    )
    tail = (await kept(one, tmp_path / "evidence"))["a-x1/engine.log"]
    assert tail.endswith(b"GET http://[hidden]@host\nValueError: no such model")
    assert len(tail) <= TAIL_BYTES_MAX


class FakeStacks:
    """Says what it was asked for."""

    async def of(self, *server):
        yield repr(server).encode()


async def test_the_stacks_of_what_hangs(one, tmp_path):
    entry = one.board.targets["a"]
    entry.target = replace(entry.target, url="http://127.0.0.1:8000")
    found = await kept(one, tmp_path / "evidence", FakeStacks())
    assert found["a-x1/stacks.txt"].startswith(b"(")
    (incident,) = one.board.targets["a"].incidents.open.values()
    over = ended(incident, 2.0, "healthy")
    one.board.tell([IncidentEvent(RESOLVED, 2.0, over)])
    assert "a-x1/stacks.txt" not in await kept(one, tmp_path / "evidence", FakeStacks())


async def test_no_stacks_of_a_server_elsewhere(one, tmp_path):
    """What runs here with its port is another server; the archive says why there are none."""
    entry = one.board.targets["a"]
    for url in ("http://192.0.2.7:8000", "http://localhost.evil:8000"):
        entry.target = replace(entry.target, url=url)
        found = await kept(one, tmp_path / "evidence", FakeStacks())
        assert "a-x1/stacks.txt" not in found
        assert b"it runs on another host" in found["a-x1/missing.txt"]
