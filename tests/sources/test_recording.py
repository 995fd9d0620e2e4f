"""Trace files: what is written is read, what others write is read, and damage is named by its line."""

import gzip
import io
import json
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from vllm_watch.errors import RecordingError
from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.samples.observation import (
    CANARY_OUTCOMES,
    OUTCOMES,
    Call,
    CanaryCall,
    EngineCpu,
    Observation,
    ProcessState,
    Reading,
    ServerSample,
)
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.sources.recording import Writer, read, to_observation
from vllm_watch.sources.trace_line import SERVER_FIELDS, to_line
from vllm_watch.support import regular_file

URL = "http://127.0.0.1:8000"
BODY = 'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'

TYPES = {
    int: some.integers(0, 2**53), float: some.floats(0, 1), str: some.text(max_size=20), bool: some.booleans(),
    tuple[str, ...]: some.lists(some.text(max_size=20), max_size=2).map(tuple),
    tuple[int, ...]: some.lists(some.integers(0, 2**53), max_size=2).map(tuple),
}  # fmt: skip


def maybe(strategy):
    return some.none() | strategy


def records(kind, **given):
    """Records of a kind: a field that is added to it is carried, too."""
    for each in fields(kind):
        options = get_args(each.type)
        if each.name not in given:
            known = TYPES[options[0] if NoneType in options else each.type]
            given[each.name] = maybe(known) if NoneType in options else known
    return some.builds(kind, **given)


def several(strategy):
    return maybe(some.lists(strategy, max_size=2).map(tuple))


said = maybe(some.sampled_from(["timeout", "Cannot connect to host", "größer\n"]))
calls = records(
    Call, outcome=some.sampled_from(OUTCOMES), status=maybe(some.integers(100, 599)), error=said,
    latency_s=some.floats(0, 100), kept=some.just(False),
)  # fmt: skip
types = maybe(some.sampled_from(["compute", "graphics", "mps", "other"]))
gpus = records(GpuSample, processes=several(records(ProcessSample, type=types)))
servers = records(ServerSample)
engines = some.sampled_from(("0", "7"))
canaries = records(CanaryCall, outcome=maybe(some.sampled_from(CANARY_OUTCOMES)), engine=maybe(engines))  # fmt: skip
times = some.floats(0, 4e9)
observations = some.builds(
    Observation, t=times, target=some.just(URL), monotonic_s=maybe(times), scrape=calls, health=maybe(calls),
    reading=maybe(some.builds(Reading, vllm=some.booleans(), server=servers)), gpus=several(gpus),
    process=maybe(records(ProcessState)), cpu=several(records(EngineCpu, engine=engines)), canary=maybe(canaries),
)  # fmt: skip


def observed(t=1.0, **fields):
    fields = {"target": URL, "scrape": Call(outcome="ok", status=200, latency_s=0.25)} | fields
    return Observation(t=t, **fields)


def written(path, count, body=BODY, bytes_max=1 << 30):
    with Writer(path, bytes_max=bytes_max) as writer:
        for second in range(count):
            writer.write(to_line(observed(float(second)), body))
    return path


def lines_file(tmp_path, *lines, name="trace.jsonl", end="\n"):
    path = tmp_path / name
    path.write_bytes("\n".join(lines).encode() + end.encode())
    return path


def line(**said):
    return json.dumps({"t": 1.0, "target": URL} | said)


@given(run=some.lists(some.tuples(observations, maybe(some.text())), max_size=4))
def test_what_is_written_is_read(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("run") / "trace.jsonl.gz"
    with Writer(path, bytes_max=1 << 30) as writer:
        for observation, body in run:
            writer.write(to_line(observation, body))

    for raw, (observation, body) in zip(read(path), run, strict=True):
        server = observation.reading.server if observation.reading else ServerSample()
        assert raw.metrics == body
        for name in (
            "t", "target", "monotonic_s", "scrape", "health", "gpus", "process", "cpu", "canary",
        ):  # fmt: skip
            assert getattr(raw, name) == getattr(observation, name)
        for name in SERVER_FIELDS:
            assert getattr(raw.server, name) == getattr(server, name)


def test_a_line_has_the_published_keys():
    """Other programs find the keys of the published format, null where nothing is known."""
    call = Call(outcome="read_timeout", error="timeout", latency_s=4.0)
    process = ProcessSample(pid=7, type="compute", used_bytes=5)
    gpu = GpuSample(index=0, uuid="GPU-a", memory_used_bytes=6, processes=(process,))

    said = json.loads(to_line(observed(2.5, scrape=call, gpus=(gpu,)), None))

    assert said == {
        "t": 2.5, "target": URL, "ok": False, "status": None, "error": "timeout", "latency_s": 4.0,
        "outcome": "read_timeout", "health": None, "metrics": None,
        "gpus": [{"index": 0, "uuid": "GPU-a", "memory_used_bytes": 6,
                  "processes": [{"pid": 7, "type": "C", "used_bytes": 5}]}],
    }  # fmt: skip


def test_credentials_are_left_out():
    """A recording is sent around: user and password of a URL do not go with it."""
    call = Call(outcome="refused", error="cannot reach http://me:secret@host:1/metrics")

    text = to_line(observed(scrape=call, health=call), None, target="http://me:secret@host:1")

    assert b"secret" not in text
    assert b"host:1/metrics" in text


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"ok": True, "status": 200, "metrics": BODY}, "ok"),
        ({"metrics": BODY}, "ok"),
        ({"ok": False, "status": 503}, "http"),
        ({"ok": False, "error": "timeout"}, "read_timeout"),
        ({"error": "Connection timeout to host http://a:1"}, "connect_timeout"),
        ({"error": "ClientConnectorError: Cannot connect to host a:1 ssl:default [Connect call failed ('127.0.0.1', 1)]"}, "refused"),
        ({"error": "ClientConnectorDNSError: Cannot connect to host a:1 ssl:default [Name or service not known]"}, "dns"),
        ({"error": "ClientConnectorCertificateError: Cannot connect to host a:1 ssl:True [certificate verify failed]"}, "tls"),
        ({"error": "ServerDisconnectedError: Server disconnected"}, "disconnected"),
        ({"error": "body too large"}, "too_large"),
        ({"ok": False}, "disconnected"),
        ({}, "disconnected"),
        ({"ok": True, "outcome": "garbled"}, "garbled"),
        ({"error": "timeout", "outcome": "of a later version"}, "read_timeout"),
    ],
)  # fmt: skip
def test_outcome_is_derived_where_it_is_absent(tmp_path, said, outcome):
    """Recordings of others say only status and error; a failure never becomes `ok`."""
    (raw,) = read(lines_file(tmp_path, line(**said)))

    assert raw.scrape.outcome == outcome


@pytest.mark.parametrize(
    ("said", "health"),
    [
        ({"health": 200}, Call(outcome="ok", status=200)),
        ({"health": 503}, Call(outcome="http", status=503)),
        ({"health": None, "health_error": "timeout"}, Call(outcome="read_timeout", error="timeout")),
        ({"health": None}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_health_is_unknown_where_nothing_is_said(tmp_path, said, health):
    """A null health was not asked for, or its answer is unknown: not the same as a failure."""
    (raw,) = read(lines_file(tmp_path, line(**said)))

    assert raw.health == health


def test_gpus_of_others_are_read(tmp_path):
    """Null and absent fields are unknown, unknown keys are skipped, letters become words."""
    entry = {"index": None, "memory_used_bytes": 5e9, "name": None, "of_a_later_version": [1],
             "processes": [{"used_bytes": None, "type": "G"}, {"pid": 3, "type": "C+G"}]}  # fmt: skip

    (raw,) = read(lines_file(tmp_path, line(gpus=[{"uuid": "a"}, entry], more=1)))

    hidden = ProcessSample(pid=0, type="graphics")
    both = ProcessSample(pid=3, type="C+G")
    assert raw.gpus == (
        GpuSample(index=0, uuid="a"),
        GpuSample(
            index=1, uuid="index:1", memory_used_bytes=5_000_000_000, processes=(hidden, both)
        ),
    )


@pytest.mark.parametrize("name", ["plain.jsonl", "packed.jsonl.gz", "chained.jsonl.gz"])
def test_plain_and_gzip_files_are_read(tmp_path, name):
    """The content decides, not the name; several gzip members are one file."""
    text = (line(t=1) + "\n" + line(t=2) + "\n\n").encode()
    half = len(text) // 2
    packed = {
        "plain.jsonl": text,
        "packed.jsonl.gz": gzip.compress(text),
        "chained.jsonl.gz": gzip.compress(text[:half]) + gzip.compress(text[half:]),
    }
    path = tmp_path / name
    path.write_bytes(packed[name])

    assert [raw.t for raw in read(path)] == [1.0, 2.0]


@pytest.mark.parametrize("begun", [0, 1])
def test_a_file_that_is_begun_while_it_is_opened_is_not_taken_for_text(begun, monkeypatch):
    """Its writer has made it and writes its first bytes just after the first look at them."""
    packed = gzip.compress(line(t=1).encode() + b"\n")

    class Begins(io.RawIOBase):
        steps = iter((packed[:begun], packed[begun:], b""))

        def readable(self):
            return True

        def readinto(self, room):
            step = next(self.steps, b"")
            room[: len(step)] = step
            return len(step)

    monkeypatch.setattr(regular_file, "opened", lambda _: io.BufferedReader(Begins()))
    assert [raw.t for raw in read(Path("trace"))] == []


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("cut", [2, 9, 40, 66, 70, 73, 76])
def test_a_last_line_that_was_cut_short_is_left_out(tmp_path, cut, end):
    """The writer was killed, or the disk was full: the lines before are good."""
    last = json.dumps(
        {"t": 3.0, "target": URL, "metrics": "ä " * 3, "ok": True}, ensure_ascii=False
    )
    path = tmp_path / "trace.jsonl"
    path.write_bytes(f"{line(t=1)}\n{line(t=2)}\n".encode() + last.encode()[:cut] + end.encode())

    assert cut < len(last.encode())
    assert [raw.t for raw in read(path)] == [1.0, 2.0]


def test_a_gzip_file_cut_anywhere_gives_all_lines_before_the_cut(tmp_path):
    """No cut behind the two bytes that say gzip is an error, and a longer file never gives less."""
    whole = written(tmp_path / "whole.jsonl.gz", 6).read_bytes()
    path, seen = tmp_path / "cut.jsonl.gz", 0
    for length in range(2, len(whole) + 1):
        path.write_bytes(whole[:length])
        times = [raw.t for raw in read(path)]
        assert times == [float(second) for second in range(len(times))]
        assert len(times) >= seen
        seen = len(times)
    assert seen == 6


@pytest.mark.parametrize(
    ("lines", "number", "said"),
    [
        ((line(), "{ broken", line()), 2, "not JSON from column 3 on"),
        ((line(), line()[:30], line()), 2, ""),
        ((line(), "no JSON"), 2, "not JSON from column 1 on"),
        ((line(), line() + "}"), 2, "not JSON from column "),
        (("[1]", line()), 1, "not a JSON object"),
        ((json.dumps({"target": URL}),), 1, "t: not a Unix time"),
        ((line(t=float("nan")),), 1, "t: 'nan' is out of range"),
        ((line(), line(metrics=5)), 2, "metrics: '5' has the wrong type"),
        ((line(status=True),), 1, "status: 'True' has the wrong type"),
        ((line(gpus=5),), 1, "gpus: not a list"),
        ((line(gpus=[5]),), 1, "gpus: not an object"),
        ((line(gpus=[{"power_watts": "hot"}]),), 1, "gpus: power_watts: not a number"),
        ((line(gpus=[{"index": float("inf")}]),), 1, "gpus: index: "),
        ((line(gpus=[{"processes": [{"pid": "7"}]}]),), 1, "gpus: processes: pid: not a number"),
        ((line(cpu=5),), 1, "cpu: not a list"),
        ((line(cpu=[{"engine": "0"}]),), 1, "cpu: an entry without engine or waited_seconds"),
        ((line(cpu=[{"engine": "0", "waited_seconds": -1}]),), 1, "cpu: waited_seconds: not a count"),
        (("[" * 100_000, line()), 1, "nested too deep"),
    ],
)  # fmt: skip
def test_other_damage_is_refused_by_its_line(tmp_path, lines, number, said):
    """The error names file and line, says what is wrong there, and what can be done."""
    path = lines_file(tmp_path, *lines)

    with pytest.raises(RecordingError) as caught:
        list(read(path))

    assert caught.value.cause.startswith(f"{path}, line {number}: ")
    assert said in caught.value.cause
    assert caught.value.remedy


def flipped(tmp_path):
    """Other bytes in the middle of gzip data."""
    data = bytearray(written(tmp_path / "trace.jsonl.gz", 40).read_bytes())
    data[len(data) // 2] ^= 0xFF
    return bytes(data)


DAMAGED = {
    "binary data within a line": (lambda _: b'{"t":1,"target":"\xff\xfe"}\n' + line().encode(), "line 1"),
    "other bytes, which are told after what could be read": (flipped, r"line \d+: "),
    "zeros, or gzip that unpacks without end": (
        lambda _: gzip.compress(line().encode() + b"\n" + bytes(5 << 20)), "line 2: longer than 1 MiB",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "said"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_bytes_are_refused(tmp_path, monkeypatch, data, said):
    """It is damage, not an end, and does not fill the memory."""
    monkeypatch.setattr("vllm_watch.sources.recording._LINE_BYTES_MAX", 1 << 20)
    path = tmp_path / "damaged"
    path.write_bytes(data(tmp_path))

    with pytest.raises(RecordingError, match=f"damaged, {said}"):
        list(read(path))


def test_a_file_or_folder_that_is_not_there_is_named(tmp_path):
    """An operator's slip is told as such, before anything is recorded."""
    with pytest.raises(RecordingError, match=r"no\.jsonl: No such file or directory"):
        list(read(tmp_path / "no.jsonl"))
    with pytest.raises(RecordingError, match="No such file or directory"):
        Writer(tmp_path / "no" / "trace.jsonl.gz", bytes_max=1 << 20)


OPENMETRICS = f"# TYPE vllm:num_requests_running gauge\n{BODY}# EOF\n"


@pytest.mark.parametrize("text", [BODY, OPENMETRICS], ids=["text", "OpenMetrics, by its last line"])
def test_metrics_text_becomes_a_reading(tmp_path, text):
    """The engine's numbers come from the text, the server's version from the line beside it."""
    (raw,) = read(lines_file(tmp_path, line(ok=True, metrics=text, version="0.33.0", paused=True)))

    reading = to_observation(raw, Reader()).reading

    assert [each.requests_running for each in reading.engines] == [3.0]
    assert (reading.server.version, reading.server.paused) == ("0.33.0", True)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"ok": True, "status": 200, "metrics": "<html>proxy</html>\n"}, "garbled"),
        ({"ok": True, "status": 200, "metrics": None}, "garbled"),
        ({"error": "timeout", "metrics": None}, "read_timeout"),
        ({"status": 502, "metrics": BODY}, "http"),
    ],
)
def test_a_text_that_cannot_be_read_gives_no_reading(tmp_path, said, outcome):
    """What was not understood is unknown, and is never called fine."""
    (raw,) = read(lines_file(tmp_path, line(**said)))

    observation = to_observation(raw, Reader())

    assert observation.reading is None
    assert observation.scrape.outcome == outcome


def test_every_line_can_be_read_before_the_file_is_closed(tmp_path):
    """A process that is killed has lost nothing that it wrote."""
    path = tmp_path / "trace.jsonl.gz"
    with Writer(path, bytes_max=1 << 30) as writer:
        for second in range(5):
            writer.write(to_line(observed(float(second)), BODY))
            assert [raw.t for raw in read(path)][-1] == second


def test_a_file_never_outgrows_its_bound_and_keeps_the_newest(tmp_path):
    """The oldest part goes; what stays is one file without a gap, at least a third of the bound."""
    path, bound, body = tmp_path / "ring.jsonl.gz", 64 << 10, "".join(map(chr, range(200, 600)))
    largest = 0
    with Writer(path, bytes_max=bound) as writer:
        for second in range(1500):
            writer.write(to_line(observed(float(second)), body * (1 + second % 3)))
            largest = max(largest, path.stat().st_size)
            assert writer.size_bytes == path.stat().st_size

    kept = [raw.t for raw in read(path)]
    assert largest <= bound
    assert kept == [float(second) for second in range(int(kept[0]), 1500)]
    assert bound / 3 < path.stat().st_size
    assert [file.name for file in tmp_path.iterdir()] == ["ring.jsonl.gz"]


def test_a_file_that_holds_something_is_left_alone(tmp_path):
    """Recording over an earlier recording would lose it."""
    path = written(tmp_path / "trace.jsonl.gz", 1)
    before = path.read_bytes()

    with pytest.raises(RecordingError, match="is not empty"):
        Writer(path, bytes_max=1 << 20)

    assert path.read_bytes() == before


def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path, monkeypatch):
    """The kernel's own full device: the error says what to do."""
    monkeypatch.setattr(recording, "_append_to", lambda _: open("/dev/full", "ab"))  # noqa: SIM115
    writer = Writer(tmp_path / "trace.jsonl.gz", bytes_max=1 << 20)

    with pytest.raises(RecordingError, match="No space left on device"):
        writer.write(to_line(observed(), BODY))
    with pytest.raises(RecordingError, match="No space left on device"):
        writer.close()


@pytest.mark.parametrize(
    "said",
    [
        '"monotonic_s": Infinity', '"latency_s": 1e999', '"monotonic_s": NaN', '"max_model_len": 1' + "0" * 4000,
        '"gpus": [{"power_watts": Infinity}]', '"gpus": [{"memory_used_bytes": 1' + "0" * 4000 + "}]", '"status": 1' + "0" * 5000,
        '"process": {"pid": 1, "start_time": -1e300}', '"canary": {"ok": true, "latency_s": Infinity}',
    ],
)  # fmt: skip
def test_numbers_beyond_all_observations_are_damage(tmp_path, said):
    path = tmp_path / "trace.jsonl"
    path.write_text(f'{line(t=1)}\n{{"t": 2, "target": "{URL}", {said}}}\n{line(t=3)}\n')
    with pytest.raises(RecordingError, match="line 2: "):
        list(read(path))
