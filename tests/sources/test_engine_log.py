"""A log is followed while it grows, is rotated, truncated, missing or in the way; it never holds a look up."""

import asyncio
import os

import pytest

from vllm_watch.sources import engine_log
from vllm_watch.sources.engine_log import EngineLog

BANNER = "INFO 11-21 03:00:00 [api_server.py:1805] vLLM API server version 0.10.1\nINFO 11-21 03:00:01 [m.py:1] Starting to load model x...\n"
NO_ROOM = "ERROR 11-21 03:00:09 [core.py:7] ValueError: No available memory for the cache blocks.\n"
READY = "INFO:     Application startup complete.\n"
REFUSED = (
    "ERROR 11-21 03:01:00 [s.py:1] ValueError: This model's maximum context length is 9 tokens.\n"
)
OOM = "ERROR 11-21 03:02:00 [core.py:7] torch.OutOfMemoryError: CUDA out of memory.\n"


@pytest.fixture
def log(tmp_path):
    followed = EngineLog("llama", tmp_path / "vllm.log")
    yield followed
    followed.close()


def append(log, text):
    with log.path.open("a") as file:
        file.write(text)


def failure(log):
    found = log.read()
    return None if found is None else found.failure


def test_as_it_grows(log):
    """Nothing while it starts, the failure when it is written, nothing again when the next start is up."""
    append(log, BANNER)
    assert failure(log) is None
    append(log, NO_ROOM[:40])
    assert failure(log) is None
    append(log, NO_ROOM[40:])
    found = log.read()
    assert found is not None
    assert (found.failure, found.deterministic) == ("oom_kv_alloc_or_profiling", False)
    assert found.root_cause_line == NO_ROOM.strip()
    append(log, BANNER + READY)
    assert failure(log) is None


def test_attention_kernels_of_the_last_start(log):
    """They are known once the log names them, and anew after the next start."""
    append(log, BANNER)
    log.read()
    assert log.attention_backend is None
    append(log, "INFO 11-21 03:00:02 [cuda.py:290] Using XFormers backend.\n" + READY)
    log.read()
    assert log.attention_backend == "XFormers"
    append(log, BANNER + "INFO 11-21 03:10:02 [cuda.py:275] Using FLASH_ATTN attention backend\n")
    log.read()
    assert log.attention_backend == "FLASH_ATTN"


def test_only_what_ends_an_engine_is_told(log):
    """A request that was too long is no reason why an engine is down; memory that ran out in service is."""
    append(log, BANNER + READY + REFUSED)
    assert failure(log) is None
    append(log, OOM)
    found = log.read()
    assert found is not None
    assert (found.failure, found.deterministic) == ("oom_runtime", False)


def test_a_start_error_in_service_ends_a_request_at_most(log):
    """The same words once it serves: no failure of the engine, unless it is said to be dead."""
    append(log, BANNER + READY + "ImportError: cannot import name 'x' from 'y'\n")
    assert failure(log) is None
    append(log, "ERROR 11-21 03:02:00 [c.py:7] EngineCore encountered a fatal error.\n")
    assert failure(log) == "missing_dependency_or_import_error"


def test_rotated_by_renaming(log):
    """The end of the old file and the beginning of the new one are both read, and state goes on."""
    append(log, BANNER + READY)
    assert failure(log) is None
    with log.path.open("a") as old:
        log.path.rename(log.path.with_suffix(".1"))
        assert failure(log) is None  # the new one is not there yet
        old.write(OOM)
    log.path.write_text("INFO 11-21 04:00:00 [a.py:1] on it goes\n")
    assert failure(log) == "oom_runtime"
    append(log, BANNER + NO_ROOM)
    assert failure(log) == "oom_kv_alloc_or_profiling"


def test_truncated(log):
    """copytruncate empties the file under the writer: what comes after is read, the engine still serves."""
    append(log, BANNER + READY + "x\n" * 1000)
    assert failure(log) is None
    os.truncate(log.path, 0)
    append(log, OOM)
    assert failure(log) == "oom_runtime"


def test_not_there_yet(log, capsys):
    """It is waited for, and said once."""
    assert failure(log) is None
    assert failure(log) is None
    append(log, BANNER + NO_ROOM)
    assert failure(log) == "oom_kv_alloc_or_profiling"
    assert capsys.readouterr().out.count("engine_log_unreadable") == 1


def test_a_pipe_is_refused_and_does_not_block(log):
    os.mkfifo(log.path)
    assert failure(log) is None


def test_a_long_log_is_read_in_bounded_pieces_from_near_its_end(log, monkeypatch):
    """What is older than the backlog is left out; the rest takes as many looks as it needs."""
    monkeypatch.setattr(engine_log, "BACKLOG_BYTES_MAX", 4000)
    monkeypatch.setattr(engine_log, "PIECE_BYTES_MAX", 1500)
    append(log, BANNER + NO_ROOM + "x\n" * 5000 + BANNER + OOM)
    assert failure(log) is None
    said = [failure(log) for _ in range(3)]
    assert said[-1] == "oom_loading_weights"


async def test_beside_the_loop(log):
    """A read is begun and not waited for; its finding is there soon after."""
    append(log, BANNER + NO_ROOM)
    log.read_on()
    log.read_on()  # one is under way: nothing more is begun
    assert log.start_failure is None
    async with asyncio.timeout(10):
        while log.start_failure is None:
            await asyncio.sleep(0.01)
    assert log.start_failure.failure == "oom_kv_alloc_or_profiling"


async def test_a_line_that_cannot_be_understood_ends_nothing(log, monkeypatch):
    """JSON nested so deep that no parser follows, as docker would wrap a line; and whatever else goes wrong."""
    append(log, BANNER + '{"log":"' + NO_ROOM.strip() + '","a":' + "[" * 15_000 + "\n" + NO_ROOM)
    assert failure(log) == "oom_kv_alloc_or_profiling"

    read, broken = log.read, [True]

    def breaks_once():
        if broken:
            raise RuntimeError(broken.pop())
        return read()

    monkeypatch.setattr(log, "read", breaks_once)
    for _ in range(2):
        log.read_on()
        while log._busy:
            await asyncio.sleep(0.01)
    assert not broken
    assert log.start_failure.failure == "oom_kv_alloc_or_profiling"


@pytest.mark.parametrize("cut", [1, 10, 20])
async def test_the_tail_begins_with_a_whole_line(tmp_path, cut):
    """Half a secret has no name beside it, by which it would be hidden."""
    log = tmp_path / "log"
    secret, rest = "api_key=S3CRET" + "x" * 40, "\n" + "a line\n" * engine_log.TAIL_BYTES_MAX
    log.write_text("INFO\n" + secret + rest[: engine_log.TAIL_BYTES_MAX - cut])
    [tail] = [each async for each in EngineLog("a", log).tail()]
    assert tail.startswith(b"a line\n")


async def test_the_tail_of_one_long_line_begins_with_a_whole_word(tmp_path):
    log = tmp_path / "log"
    log.write_text("word " * (engine_log.TAIL_BYTES_MAX // 5 + 2))
    [tail] = [each async for each in EngineLog("a", log).tail()]
    assert tail.startswith(b"word ")
    assert len(tail) > engine_log.TAIL_BYTES_MAX - 10
