"""The model of an attempt: nothing breaks in any of its states, each of its guards is needed, and it is of this code."""

import importlib
from dataclasses import fields
from operator import attrgetter
from typing import Any

import pytest

from tests.restart.exploring import explored, forgotten, story
from tests.restart.model import CALLS_MAX, FOLLOWS, OPEN, SPENT, STEPS, Guards, watcher, world
from vllm_watch.restart import restart
from vllm_watch.state.attempt import ENDED_STATES, OPEN_STATES, Attempt

WORLD = {"replace", "recover", "sicken", "disk", "lose the lock", "kill", "start"}

WITHOUT = {
    "writes_first": "called before it was on the disk",
    "never_again": "called on another process than the decided one",
    "same_process": "called on another process than the decided one",
    "new_scrape": "called on another process than the decided one",
    "asks_again": "called for what the last scrape did not find",
    "counts_spent": "more restarts than the budget",
    "kept_in_memory": "forgotten",
    "pages": "forgotten",
}


def test_nothing_breaks_and_nobody_is_forgotten() -> None:
    """In every state that the watcher, its engine, its disk and its lock can come to; and it takes each step that it has."""
    came, broken = explored()
    assert broken is None, (broken.broken, story(came, broken))
    assert forgotten(came) == []
    taken = {
        (step, s.disk, after.disk)
        for s in came
        for step, after in (*world(s), *watcher(s, Guards()))
    }
    assert {step for step, *_ in taken} == WORLD | STEPS.keys()
    # What was spent has used the budget up: only one that was cancelled is followed by another.
    written = {(before, after) for _, before, after in taken if before not in ("", after)}
    following = {(state, after) for state, states in FOLLOWS.items() for after in states}
    assert written == following | {("cancelled", "intent")}


def test_every_guard_is_there_to_be_taken_away() -> None:
    """The table below has each."""
    assert set(WITHOUT) == {field.name for field in fields(Guards)}


@pytest.mark.parametrize("guard", WITHOUT)
def test_without_one_guard_something_breaks(guard: str) -> None:
    """And the story that shows it is the shortest that there is."""
    guards = Guards(**{guard: False})
    came, broken = explored(guards)
    if broken is None:
        assert forgotten(came, guards)
    assert WITHOUT[guard] == (broken.broken if broken else "forgotten")


def test_its_states_are_those_of_the_journal() -> None:
    """Each in both, open in both, and spent in both."""
    assert set(FOLLOWS) == {*OPEN_STATES, *ENDED_STATES}
    assert OPEN == OPEN_STATES
    known: dict[str, Any] = dict.fromkeys(
        ("id", "target", "group", "trigger", "hook", "reason", "actor"), ""
    )
    spent = [state for state in FOLLOWS if Attempt(**known, state=state, began_t=0.0).spent]
    assert set(spent) == set(SPENT)


@pytest.mark.parametrize("step", STEPS)
def test_its_steps_are_those_of_the_code(step: str) -> None:
    """Each is taken by a function that is there."""
    module, name = STEPS[step].split(".", 1)
    assert callable(attrgetter(name)(importlib.import_module(f"vllm_watch.restart.{module}")))


def test_calls_are_made_again_as_often_as_the_code_makes_them() -> None:
    """One, and the retries."""
    assert restart.RETRIES_MAX + 1 == CALLS_MAX
