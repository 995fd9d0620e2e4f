"""Commands against something else than a daemon: an answer in pieces is read whole, nonsense is one sentence."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.answering import Answering, answer, answering
from tests.restart.hooks.calls import call
from vllm_watch.__main__ import main
from vllm_watch.cli.helpers import hub
from vllm_watch.restart.hooks import base, gate
from vllm_watch.settings.hooks import GateHook

COMMANDS = {
    "pause": ("pause", "--reason", "x"),
    "resume": ("resume",),
    "approve": ("approve", "engine_down-a-1"),
    "silence": ("silence", "engine_down-a-1", "--reason", "x"),
    "restart": ("restart", "a"),
}
READING = {
    "journal": ("journal",),
    "explain": ("explain", "engine_down-a-1"),
    "top": ("top", "--once"),
    "advise": ("advise",),
}


@pytest.fixture
def other() -> Iterator[Answering]:
    with answering() as one:
        yield one


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("a-token-of-enough-characters")
    file.chmod(0o600)
    return file


def run(
    capsys, other: Answering, *arguments: object, token: Path | None = None
) -> tuple[int, str, str]:
    extra = ("--token-file", token) if token else ()
    status = main([*map(str, (*arguments, "--url", other.url, *extra))])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_answer_in_two_segments_is_read_whole(capsys, other, token, command) -> None:
    """The restart was done: it is not reported as if something else had answered."""
    whole = answer(
        json.dumps({"text": "every check passed", "attempt": "a1", "more": "x" * 3000}).encode()
    )
    for cut in (len(whole) - 1500, whole.index(b"\r\n\r\n") + 5):
        other.pieces = (whole[:cut], whole[cut:])
        status, out, err = run(capsys, other, *command, token=token)
        assert (status, out, err) == (0, "attempt a1 has begun: every check passed\n", "")


async def test_a_rehearsal_reads_the_daemons_answer_whole(other) -> None:
    """`hook test` of the hook `gate`: what the daemon knows of probes, in two segments."""
    whole = answer(b'{"liveness_asked_seconds": 1.0, "starts": [1795000000.0]}')
    other.pieces = (whole[:-20], whole[-20:])
    hook = gate.Hook(GateHook(name="gate"), base.Tools(watcher_url=other.url))
    first, _ = await hook.rehearse(call(process_start_time=1795000000.0))
    assert (first.ok, first.text.split("; ")[0]) == (True, "the liveness probe asked 1 s ago")
    other.pieces = (answer(NONSENSE["deep JSON"]),)
    first, _ = await hook.rehearse(call())
    assert (first.ok, "it does not answer at" in first.text) == (False, True)


NONSENSE = {
    "deep JSON": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a list": b"[1, 2]",
    "a number of 5,000 digits": b"9" * 5000,
    "no JSON": b"<html>It works!</html>",
    "no text": b"\xff\xfe\x00\x80",
    "nothing": b"",
    "other keys": b'{"status": "success", "data": null}',
    "keys of other types": b'{"error": [], "remedy": {}, "gates": 7, "attempt": {"a": []}, "text": null, "entries": 5, "targets": {}}',
    "gates of other types": b'{"gates": [1, {"gate": null}, "x"], "error": {"a": 1}}',
}


@pytest.mark.parametrize("status_line", ["200 OK", "409 Conflict", "404 Not Found", "500 Oh"])
@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_one_sentence(capsys, other, token, body, status_line) -> None:
    """Each command that changes something: no traceback, whatever answers with whichever status."""
    other.pieces = (answer(body, status_line),)
    other.pause_s = 0.0
    for command in (COMMANDS["pause"], COMMANDS["approve"]):
        status, out, err = run(capsys, other, *command, token=token)
        assert status in (0, 1, 2)
        assert "Traceback" not in out + err
        assert status != 2 or err.startswith("vllm-watch: ")


@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_in_place_of_a_status(capsys, other, body) -> None:
    """Commands that only read: status 2 and a sentence."""
    other.pieces = (answer(body),)
    other.pause_s = 0.0
    for command in READING.values():
        status, _, err = run(capsys, other, *command)
        assert status == 2, (command, err)
        assert err.startswith("vllm-watch: ")


BROKEN = {
    "no HTTP": (b"220 mail.example ESMTP\r\n",),
    "a head that does not end": (b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * 200_000,),
    "cut off in its body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",),
    "a chunk of no length": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",),
    "closed at once": (),
    "gzip that is none": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    ),
    "a redirect": (
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    ),
}


@pytest.mark.parametrize("pieces", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_breaks_off_is_one_sentence(capsys, other, token, pieces) -> None:
    """All commands: status 2, and who did not answer."""
    other.pieces, other.pause_s = pieces, 0.0
    for command in (*COMMANDS.values(), *READING.values()):
        with_token = token if command in COMMANDS.values() else None
        status, out, err = run(capsys, other, *command, token=with_token)
        assert (status, out) == (2, "")
        assert err.startswith("vllm-watch: ")


def test_a_body_without_end_is_left(capsys, other, token) -> None:
    other.pieces = (b"HTTP/1.1 200 OK\r\n\r\n", *([b" " * (1 << 20)] * 40))
    other.pause_s = 0.0
    status, _, err = run(capsys, other, *COMMANDS["pause"], token=token)
    assert (status, "more than 4,194,304 bytes" in err) == (2, True)


def test_a_hub_that_drips_is_left(capsys, other, monkeypatch, tmp_path) -> None:
    """One deadline for all that is fetched, however the bytes come."""
    monkeypatch.setattr(hub, "SECONDS", 0.5)
    monkeypatch.setenv("HF_ENDPOINT", other.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    other.pieces = (b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", *([b" "] * 9000))
    other.pause_s = 0.1
    status = main(["capacity", "org/model", "--gpu-name", "H100", "--from-hub"])
    assert (status, "incomplete after 0.5 s" in capsys.readouterr().err) == (2, True)
