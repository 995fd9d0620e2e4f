"""Logs: one form for everything that logs, no secrets, and no tricks with the terminal."""

import ast
import io
import json
import logging
import os
import re
import warnings

import pytest
import structlog

from tests.test_conventions import SOURCES, name, tree
from vllm_watch.support import logs
from vllm_watch.support.redaction import is_secret_name

SECRETS = {
    "a key by its name": {"api_key": "s3cret"},
    "a token by its name": {"hook": {"bearer-token": "s3cret"}},
    "a header": {"headers": {"Authorization": "Bearer s3cret"}},
    "a header as text": {"error": "sent Authorization: Bearer s3cret to it"},
    "in a list": {"targets": [{"password": "s3cret"}, "http://u:s3cret@b"]},
    "in an object": {"error": ValueError("http://u:s3cret@b")},
    "too deep": {"a": {"b": {"c": {"d": {"e": {"url": "http://u:s3cret@b"}}}}}},
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_json_lines_where_nobody_looks():
    """Without a terminal every line is one JSON object with time in UTC, level, event and values."""
    stream = set_up()

    structlog.get_logger().info("target_up", target="chat", tokens=5, quota=None)

    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "event": "target_up", "level": "info", "target": "chat", "tokens": 5, "quota": None,
    }  # fmt: skip


def test_console_on_a_terminal():
    """A person sees words, not JSON; with format=json even a terminal sees JSON."""
    person = set_up(stream=Terminal())
    structlog.get_logger().info("target_up", target="chat")
    machine = set_up(stream=Terminal(), form="json")
    structlog.get_logger().info("target_up", target="chat")

    assert "target_up" in person.getvalue()
    assert "{" not in person.getvalue()
    assert json.loads(machine.getvalue())["target"] == "chat"


def test_the_standard_library_goes_the_same_way():
    """aiohttp, asyncio and warnings come as the same JSON; aiohttp's line per request does not."""
    stream = set_up()

    logging.getLogger("asyncio").warning("slow %s", "callback", extra={"seconds": 3})
    logging.getLogger("aiohttp.access").info("GET /metrics 200")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["seconds"]) == ("slow callback", "warning", 3)
    assert "DeprecationWarning: old" in second["event"]


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("values", SECRETS.values(), ids=SECRETS)
def test_no_secret_gets_out(values, form):
    """Whatever a secret is wrapped in, it is hidden, by name and by look, in both forms."""
    stream = set_up(form=form)

    structlog.get_logger().info("asked", **values)
    logging.getLogger("aiohttp").warning("asked", extra=values)

    assert "s3cret" not in stream.getvalue()
    assert stream.getvalue().count("[hidden]") >= 2


def test_an_exception_shows_no_local_variables():
    """A traceback is plain: names and lines, and secrets in the message hidden."""
    for form in ("json", "console"):
        stream = set_up(form=form)
        key = "s3cret-local"
        try:
            fail(key)
        except ValueError:
            structlog.get_logger().exception("failed")

        assert "ValueError: cannot ask http://[hidden]@b" in stream.getvalue()
        assert "s3cret-local" not in stream.getvalue()


def fail(api_key):
    raise ValueError(f"cannot ask http://u:{api_key}@b")


def set_up(stream=None, level="info", form="auto"):
    stream = io.StringIO() if stream is None else stream
    logs.configure(level, form, stream)
    return stream


@pytest.fixture
def journal(monkeypatch):
    """A stream that the journal reads, and what came there; it ends with the stream."""
    reading, writing = os.pipe()
    with open(reading) as read, open(writing, "w") as stream:
        file = os.fstat(writing)
        monkeypatch.setenv("JOURNAL_STREAM", f"{file.st_dev}:{file.st_ino}")
        yield stream, read


def test_lines_for_the_journal_begin_with_their_priority(journal, tmp_path):
    """systemd reads <N> at the beginning of a line; it is there only where the journal is the reader."""
    stream, read = journal
    logs.configure("debug", stream=stream)
    for level in ("debug", "info", "warning", "error", "critical"):
        getattr(structlog.get_logger(), level)("said")
    said = [read.readline() for _ in range(5)]
    assert [line[:3] for line in said] == ["<7>", "<6>", "<4>", "<3>", "<2>"]
    assert all(json.loads(line[3:])["event"] == "said" for line in said)

    redirected = tmp_path / "log"  # what the journal would read is not what is written to
    with redirected.open("w") as other:
        logs.configure("info", stream=other)
        structlog.get_logger().info("said")
    assert redirected.read_text().startswith("{")


def test_every_line_of_a_traceback_has_the_priority(journal):
    """For people a traceback has many lines, each of which the journal takes for itself."""
    stream, read = journal
    logs.configure("info", "console", stream)
    try:
        int("what went wrong")
    except ValueError:
        structlog.get_logger().exception("failed")
    stream.close()
    said = read.read().splitlines()
    assert len(said) > 2
    assert {line[:3] for line in said} == {"<3>"}


def test_no_line_of_ours_is_hidden_by_its_name() -> None:
    """A key such as `token` promises a secret, so its value is hidden: the name of a token needs another key."""
    hidden = []
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("_log.", "log.")):
                keys = [word.arg for word in node.keywords if word.arg and is_secret_name(word.arg)]
                hidden += [f"{name(path)}:{node.lineno}: {key}" for key in keys]
    assert hidden == []
