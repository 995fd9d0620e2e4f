"""What shows that a core's server is gone: each sign, and each thing that speaks against it."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import SERVER, SERVICE, core, process
from vllm_watch.signals.holders.records import Limits
from vllm_watch.signals.holders.rules import is_superseded, orphan_sign
from vllm_watch.signals.holders.track import begin

OLD = core(99, ppid=1)
NEW = core(200, ppid=198, create_time=OLD.create_time + 3600)


def signed(one, others=(), *, idle_s=300.0, reparented_s=None):
    """What shows it of a process whose GPU has rested for so long."""
    track = begin(0.0, one)
    track.last_s, track.reparented_s = idle_s, reparented_s
    return orphan_sign(track, others, Limits())


SIGNS = {
    "it had a parent until now": (core(ppid=4700), 60.0, "its parent, process 4700, died; it is now a child of process 4700"),
    "... and its server is above it": (core(ancestors=("bash", SERVER)), 60.0, None),
    "nothing is above it": (core(ancestors=()), None, "it has no parent process left"),
    "a reaper alone is above it": (core(ancestors=("systemd",)), None, "now runs under “systemd”"),
    "only other parts of it": (core(ancestors=("VLLM::EngineCore",)), None, None),
    "a launcher": (core(ancestors=("python3 launcher.py", "systemd")), None, None),
    "a launcher that took it over": (
        core(ancestors=("python3 launcher.py", "systemd"), left_behind=True), None, "now runs under “python3 launcher.py”"),
}  # fmt: skip


@pytest.mark.parametrize(("one", "reparented_s", "words"), SIGNS.values(), ids=SIGNS)
def test_a_sign_of_its_own(one, reparented_s, words):
    """Whoever else runs here, and however short it was idle."""
    said = signed(one, idle_s=0.0, reparented_s=reparented_s)
    assert said is None if words is None else words in said


SUCCESSORS = {  # what differs of the old one, of the new one, and how long its GPU rests
    "as it is": ({}, {}, 300.0, True),
    "it worked a moment ago": ({}, {}, 299.0, False),
    "it has a parent": ({"ppid": 98}, {}, 300.0, False),
    "what is above it is known": ({"ancestors": ("python3 launcher.py",)}, {}, 300.0, False),
    "the other is older": ({}, {"create_time": OLD.create_time - 60}, 300.0, False),
    "both were started at once": ({}, {"create_time": OLD.create_time + 1.5}, 300.0, False),
    "when the other started is not known": ({}, {"create_time": None}, 300.0, False),
    "the other has lost its server, too": ({}, {"ppid": 1}, 300.0, False),
    "whether the other has a server is not known": ({}, {"ppid": None}, 300.0, False),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "idle_s", "told"), SUCCESSORS.values(), ids=SUCCESSORS)
def test_a_younger_one_with_a_server_shows_that_the_old_one_has_none(old, new, idle_s, told):
    """Without a word of what is above it: only an exact likeness, and only after five times the patience."""
    said = signed(replace(OLD, **old), [OLD, replace(NEW, **new)], idle_s=idle_s)
    assert (said is not None) is told
    assert not told or "process 200 of the same unit or container" in said


def test_a_worker_is_no_successor_of_a_core():
    worker = process(200, "VLLM::Worker_TP0", ppid=198, cgroup=SERVICE, create_time=NEW.create_time)
    assert signed(OLD, [worker]) is None
    assert signed(OLD, [worker, NEW]) is not None


@pytest.mark.parametrize(
    ("other", "superseded"),
    [
        ({}, True),
        ({"pid": 99}, False),
        ({"ppid": 1}, False),  # another part of the same engine, as far as anybody can tell
        ({"create_time": OLD.create_time}, False),
        ({"create_time": None}, False),
    ],
)
def test_which_engine_may_be_the_one_that_answers(other, superseded):
    """A younger one with another parent; one of many is enough."""
    assert is_superseded(OLD, [OLD, replace(NEW, **other)]) is superseded
    assert not is_superseded(OLD, [OLD])
