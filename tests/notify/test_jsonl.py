"""Events as JSON lines: in order, bounded, whole lines only, and never in anybody's way."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from vllm_watch.notify import jsonl
from vllm_watch.notify.jsonl import Stream
from vllm_watch.settings.notifications import JsonlStream


class Heard:
    """What a stream tells of itself, by its thread."""

    def __init__(self):
        self.reports = []
        self.event = threading.Event()

    def __call__(self, report):
        self.reports.append(report)
        self.event.set()

    def outcomes(self):
        return [each.outcome for each in self.reports]


def stream(path, **more):
    heard = Heard()
    return Stream(JsonlStream(name="ev", path=path, **more), heard), heard


def lines(path):
    return [json.loads(each) for each in path.read_text().splitlines()]


def test_events_are_lines_in_order(tmp_path):
    """What JSON has not is null, no text breaks a line, and no secret is in it."""
    path = tmp_path / "events.jsonl"
    one, heard = stream(path)
    event = {"t": 1.5, "event": "opened", "evidence": {"for": [{"value": float("nan"), "text": "a\nb"}]},
             "summary": "https://u:s3cr3t@h/"}  # fmt: skip
    one.put(event)
    one.put({"event": "resolved"})
    one.close()
    assert lines(path) == [
        {"t": 1.5, "event": "opened", "evidence": {"for": [{"value": None, "text": "a b"}]},
         "summary": "https://[hidden]@h/"},
        {"event": "resolved"},
    ]  # fmt: skip
    assert heard.outcomes() == ["sent", "sent"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_is_renamed_before_it_is_too_large(tmp_path):
    """So many files at most, the newest lines in the first, none lost between them."""
    path = tmp_path / "events.jsonl"
    one, _ = stream(path, bytes_max=64 << 10, files_max=3)
    for number in range(1000):
        one.put({"number": number, "text": "x" * 200})
    one.close()
    files = [path, tmp_path / "events.jsonl.1", tmp_path / "events.jsonl.2"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 64 << 10 for file in files)
    kept = [line["number"] for file in reversed(files) for line in lines(file)]
    assert kept == list(range(kept[0], 1000))


def test_one_file_begins_anew(tmp_path):
    """With files_max 1 nothing is kept beside it."""
    path = tmp_path / "events.jsonl"
    one, _ = stream(path, bytes_max=64 << 10, files_max=1)
    for _ in range(1000):
        one.put({"text": "x" * 200})
    one.close()
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size <= 64 << 10


def test_a_half_line_of_a_killed_watcher_does_not_swallow_the_next(tmp_path):
    """The next begins on a line of its own."""
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "opened"}\n{"event": "reso')
    one, _ = stream(path)
    one.put({"event": "opened"})
    one.close()
    assert path.read_text().splitlines()[1:] == ['{"event": "reso', '{"event": "opened"}']


def test_a_file_that_was_moved_is_begun_anew(tmp_path):
    """By logrotate, while it is written."""
    path = tmp_path / "events.jsonl"
    one, heard = stream(path)
    one.put({"number": 1})
    assert heard.event.wait(10)
    path.rename(tmp_path / "old")
    one.put({"number": 2})
    one.close()
    assert (lines(tmp_path / "old"), lines(path)) == ([{"number": 1}], [{"number": 2}])


def test_a_folder_that_is_not_there_costs_lines_and_says_so(tmp_path):
    """Each is counted as dropped; it goes on when the folder is there."""
    path = tmp_path / "later" / "events.jsonl"
    one, heard = stream(path)
    one.put({"number": 1})
    assert heard.event.wait(10)
    deadline = time.monotonic() + 10
    while heard.outcomes() != ["failed", "dropped"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard.outcomes() == ["failed", "dropped"]
    assert "No such file" in heard.reports[0].because
    assert [each.ok for each in jsonl.check(one._settings)] == [False]
    path.parent.mkdir()
    one.put({"number": 2})
    one.close()
    assert lines(path) == [{"number": 2}]


def test_a_reader_that_hangs_holds_up_nobody(tmp_path, monkeypatch):
    """A pipe that nobody reads: the queue fills up, the rest is counted, and its end is not waited for."""
    monkeypatch.setattr(jsonl, "QUEUE_MAX", 50)
    monkeypatch.setattr(jsonl, "CLOSE_SECONDS", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDWR)  # so that opening does not wait, and nothing is ever read
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4096)  # less than the queue, whoever runs first
    one, heard = stream(pipe)
    for number in range(2000):
        one.put({"number": number, "text": "x" * 300})
    one.close()
    assert one._thread.is_alive()
    assert heard.outcomes().count("dropped") > 1000
    os.close(reading)


def test_stdout():
    """Without a path: whole lines on the process's own output."""
    code = """
from vllm_watch.notify import jsonl
from vllm_watch.settings.notifications import JsonlStream
jsonl.CLOSE_SECONDS = 60.0  # however busy the machine
one = jsonl.Stream(JsonlStream(name="ev"), lambda _: None)
for number in range(3):
    one.put({"number": number})
one.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=True, text=True
    )
    assert [json.loads(line)["number"] for line in done.stdout.splitlines()] == [0, 1, 2]


@pytest.mark.parametrize(("mode", "ok"), [(0o700, True), (0o500, os.geteuid() == 0)])
def test_check(tmp_path, mode, ok):
    """Can it be written here, before there is anything to write?"""
    folder = tmp_path / "folder"
    folder.mkdir(mode=mode)
    [found] = jsonl.check(JsonlStream(name="ev", path=folder / "x"))
    assert (found.ok, found.remedy is None) == (ok, ok)
