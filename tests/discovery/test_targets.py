"""Discovery: what stands in files is watched, and what goes wrong takes nothing away."""

import asyncio
import json
import threading

import pytest
import structlog

from vllm_watch.config import load
from vllm_watch.discovery.files import FileTargets
from vllm_watch.discovery.targets import Discovery

FILES = {
    "json": (
        "t.json",
        '[{"targets": ["a:8000", "b:8000"], "labels": {"group": "chat", "node": "n1"}}]',
        [("a-8000", "http://a:8000", "chat"), ("b-8000", "http://b:8000", "chat")],
    ),
    "yaml": (
        "t.yaml",
        "- targets: ['a:8000']\n  labels: {name: Chat 0, namespace: prod, pod: p, job: x}\n",
        [("chat-0", "http://a:8000", "chat-0")],
    ),
    "one name for several servers": (
        "t.yml",
        "- targets: ['a:1', 'b:1']\n  labels: {name: chat}\n",
        [("a-1", "http://a:1", "a-1"), ("b-1", "http://b:1", "b-1")],
    ),
    "scheme and prefix": (
        "t.json",
        '[{"targets": ["a:443"], "labels": {"__scheme__": "https", "__metrics_path__": "/llm/metrics"}}]',
        [("a-443-llm", "https://a:443/llm", "a-443-llm")],
    ),
    "IPv6": ("t.json", '[{"targets": ["[::1]:8000"]}]', [("1-8000", "http://[::1]:8000", "1-8000")]),
    "no targets": ("t.json", "[]", []),
    "twice the same": ("t.json", '[{"targets": ["a:1", "a:1"]}]', [("a-1", "http://a:1", "a-1")]),
}  # fmt: skip

BAD_FILES = {
    "half written": (
        "t.json",
        '[{"targets": ["a:80',
        "is not JSON: Unterminated string starting at: line 1 column 15 (char 14)",
    ),
    "empty": ("t.json", "", "is empty"),
    "not a list of groups": (
        "t.json",
        '["a:8000"]',
        'entry 0 is not {"targets": ["HOST:PORT"], "labels": {…}}',
    ),
    "labels are a list": (
        "t.yaml",
        "- targets: ['a:1']\n  labels: [x]\n",
        'entry 0 is not {"targets": ["HOST:PORT"], "labels": {…}}',
    ),
    "bad YAML": ("t.yaml", "- targets: [a", "line 2, column 1: did not find expected ',' or ']'"),
    "too large": ("t.json", " " * (4 << 20) + "[]", "is larger than 4 MiB"),
    "a long number": (
        "t.yaml",
        "- targets: [0x" + "f" * 5000 + "]\n",
        "line 1, column 13: a number of 5002 digits",
    ),
    "nested": ("t.json", "[" * 100_000, "is not JSON: it is nested too deep"),
}

LEFT_OUT = {
    "credentials": (
        ["a:8000", "me:s3cret@b:8000"],
        {},
        "1 left out, the first: '[hidden]@b:8000': url: 'http://[hidden]@b:8000/metrics' carries credentials",
    ),
    "not an address": (
        ["a:8000", "b c:1"],
        {},
        "1 left out, the first: 'b c:1': url: 'http://b c:1/metrics' is not the address of a server",
    ),
    "an infinity": (
        [float("inf"), 7, None],
        {},
        "3 left out, the first: inf is not HOST:PORT",
    ),
    "another path": (
        ["a:8000"],
        {"__metrics_path__": "/stats"},
        "1 left out, the first: 'a:8000': __metrics_path__ '/stats' does not end in /metrics",
    ),
}


class Clock:
    """Monotonic time that tests move."""

    def __init__(self):
        self.now = 1000.0

    def after(self, seconds):
        self.now += seconds
        return self.now


async def test_static_targets_are_told_once():
    discovery = Discovery(load(None, environ={}, targets=["chat=http://a:1", "http://b:1"]))

    assert names(await discovery.refresh(0)) == ["chat", "b-1"]
    assert await discovery.refresh(100) is None


@pytest.mark.parametrize(("file", "text", "expected"), FILES.values(), ids=FILES)
async def test_file_sd(tmp_path, file, text, expected):
    (tmp_path / file).write_text(text)
    discovery = Discovery(config(tmp_path, file_sd=[file]))

    found = await discovery.refresh(0)

    assert [(one.name, one.url, one.group) for one in found] == expected
    assert discovery.problems == {}


@pytest.mark.parametrize(("file", "text", "problem"), BAD_FILES.values(), ids=BAD_FILES)
async def test_a_bad_file_keeps_its_last_good_targets(tmp_path, file, text, problem):
    """What cannot be read is said once and takes no target away; the next good content counts."""
    good = '[{"targets": ["a:8000"]}]'
    (tmp_path / file).write_text(good)
    discovery, clock = Discovery(config(tmp_path, file_sd=[file])), Clock()
    await discovery.refresh(clock.now)

    (tmp_path / file).write_text(text)
    with structlog.testing.capture_logs() as logs:
        changes = [await discovery.refresh(clock.after(30)) for _ in range(3)]

    kept = f"{problem}; its last good list (1) is kept"
    assert changes == [None, None, None]
    assert discovery.problems == {str(tmp_path / file): kept}
    assert [(line["event"], line["problem"]) for line in logs] == [("discovery_problem", kept)]

    (tmp_path / file).write_text(good.replace("a:8000", "new:8000"))
    with structlog.testing.capture_logs() as logs:
        assert names(await discovery.refresh(clock.after(30))) == ["new-8000"]
    assert [line["event"] for line in logs] == ["discovery_well_again"]


@pytest.mark.parametrize(("targets", "labels", "problem"), LEFT_OUT.values(), ids=LEFT_OUT)
async def test_one_bad_entry_leaves_the_others(tmp_path, targets, labels, problem):
    """An entry that is no target is left out and told; its neighbours are watched."""
    groups = [{"targets": targets, "labels": labels}, {"targets": ["good:1"]}]
    (tmp_path / "t.json").write_text(json.dumps(groups))
    discovery = Discovery(config(tmp_path, file_sd=["t.json"]))

    assert "good-1" in names(await discovery.refresh(0))
    assert discovery.problems == {str(tmp_path / "t.json"): problem}


async def test_files_come_and_go(tmp_path):
    """Patterns find new files; a file that is gone takes its targets along; no file at all is told."""
    discovery, clock = Discovery(config(tmp_path, file_sd=["*.json"])), Clock()
    assert names(await discovery.refresh(clock.now)) == []
    assert discovery.problems == {str(tmp_path / "*.json"): "no such file"}

    for name in "ab":
        (tmp_path / f"{name}.json").write_text(json.dumps([{"targets": [f"{name}:1"]}]))
    assert names(await discovery.refresh(clock.after(30))) == ["a-1", "b-1"]
    assert discovery.problems == {}

    (tmp_path / "a.json").unlink()
    assert names(await discovery.refresh(clock.after(30))) == ["b-1"]


async def test_it_looks_no_oftener_than_told(tmp_path):
    """Between two looks a change waits; `refresh_seconds` is how long at most."""
    file = tmp_path / "t.json"
    file.write_text('[{"targets": ["a:1"]}]')
    discovery, clock = Discovery(config(tmp_path, file_sd=["t.json"], refresh_seconds=60)), Clock()
    await discovery.refresh(clock.now)
    file.write_text('[{"targets": ["bb:1"]}]')

    assert await discovery.refresh(clock.after(59.9)) is None
    assert names(await discovery.refresh(clock.after(0.1))) == ["bb-1"]


async def test_what_is_written_out_wins(tmp_path):
    """A server that is written out and found too is watched once; a name is never taken twice."""
    labels = {"name": "chat"}
    groups = [{"targets": [address], "labels": labels} for address in ("a:1", "b:1")]
    (tmp_path / "t.json").write_text(json.dumps(groups))
    discovery = Discovery(
        config(tmp_path, file_sd=["t.json"], targets=[{"name": "chat", "url": "http://a:1"}])
    )

    found = await discovery.refresh(0)

    assert [(one.name, one.url) for one in found] == [("chat", "http://a:1"), ("b-1", "http://b:1")]


async def test_more_than_ten_thousand_are_told(tmp_path):
    for file, count in (("1", 6000), ("2", 4002)):
        groups = [{"targets": [f"h{file}-{number:04}:1" for number in range(count)]}]
        (tmp_path / f"{file}.json").write_text(json.dumps(groups))
    discovery = Discovery(
        config(tmp_path, file_sd=["*.json"], targets=[{"name": "chat", "url": "http://a:1"}])
    )

    found = await discovery.refresh(0)

    assert (len(found), found[0].name, found[-1].name) == (10_000, "chat", "h2-3998-1")
    assert discovery.problems == {"discovery": "10003 targets are more than 10000: 3 are left out"}


async def test_a_file_of_more_than_ten_thousand_is_told(tmp_path):
    """One file alone cannot fill memory: it is read up to the bound."""
    groups = [{"targets": [f"h{number}:1" for number in range(10_002)]}]
    (tmp_path / "t.json").write_text(json.dumps(groups))
    discovery = Discovery(config(tmp_path, file_sd=["t.json"]))

    assert len(await discovery.refresh(0)) == 10_000
    assert discovery.problems == {str(tmp_path / "t.json"): "only its first 10000 targets are used"}


async def test_reload_while_files_are_read_is_not_answered_with_the_old_ones(tmp_path, monkeypatch):
    """What the old configuration found is dropped, nothing fails, and the new one is read at once."""
    (tmp_path / "t.json").write_text('[{"targets": ["a:1"]}]')
    reading, go_on, read = threading.Event(), threading.Event(), FileTargets.read

    def slow(files):
        reading.set()
        go_on.wait(30)
        return read(files)

    monkeypatch.setattr(FileTargets, "read", slow)
    discovery = Discovery(config(tmp_path, file_sd=["t.json"]))
    looking = asyncio.create_task(discovery.refresh(0))
    await asyncio.to_thread(reading.wait, 30)
    discovery.reconfigure(config(tmp_path, targets=[{"url": "http://new:1"}]))
    go_on.set()

    assert await looking is None
    assert names(await discovery.refresh(1)) == ["new-1"]


def config(folder, *, targets=(), **discovery):
    file = folder / "vllm-watch.yaml"
    file.write_text(json.dumps({"targets": list(targets), "discovery": discovery}))
    return load(file, environ={})


def names(targets):
    return [target.name for target in targets]
